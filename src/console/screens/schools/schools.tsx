import { useEffect, useRef, useState } from 'preact/hooks';
import { Timestamp, formatNumber } from '../../format.tsx';
import { request } from '../../api.ts';
import { Icon } from '../../icons.tsx';
import { useLoad, useDebounced } from '../../load.ts';
import { Badge, Card, EmptyState, PageHeader, PagedList, SearchBox, SortableHeader } from '../../components.tsx';
import { href, route, setSearch } from '../../router.ts';
import type { Tenant } from '../../types.ts';

const statusOptions = [
  ['', 'All'],
  ['active', 'Active'],
  ['suspended', 'Suspended'],
  ['deleted', 'Deleted'],
] as const;

/** The text in the search box. Once the operator pauses, it becomes the search of the list. */
function useSearchText(search: string, onSearch: (search: string) => void): [string, (text: string) => void] {
  const [typed, setTyped] = useState(search);
  const debounced = useDebounced(typed, 200);
  const lastSearch = useRef(search);
  useEffect(() => {
    if (debounced.trim() === search) return;
    lastSearch.current = debounced.trim();
    onSearch(lastSearch.current);
  }, [debounced]);
  // Take over a search that came from a link or the back button. Ignore our own: the operator may have typed on.
  useEffect(() => {
    if (search === lastSearch.current) return;
    lastSearch.current = search;
    setTyped(search);
  }, [search]);
  return [typed, setTyped];
}

function StatusFilter({ status, onChange }: { status: string; onChange: (status: string) => void }) {
  return (
    <fieldset class="segments">
      <legend class="hidden">Status</legend>
      {statusOptions.map(([value, label]) => (
        <label key={value}>
          <input type="radio" name="status" checked={status === value} onChange={() => onChange(value)} />
          <span>{label}</span>
        </label>
      ))}
    </fieldset>
  );
}

interface Sorting {
  sort: string;
  order: string;
  onSort: (name: string, order: 'asc' | 'desc') => void;
}

function SchoolTable({ schools, sorting }: { schools: Tenant[]; sorting: Sorting }) {
  return (
    <table class="table">
      <caption class="hidden">Schools</caption>
      <thead>
        <tr>
          <SortableHeader name="name" {...sorting}>
            School
          </SortableHeader>
          <SortableHeader name="status" {...sorting}>
            Status
          </SortableHeader>
          <SortableHeader name="plan" class="wide-only" {...sorting}>
            Plan
          </SortableHeader>
          <SortableHeader name="total_students" class="number wide-only" initialOrder="desc" {...sorting}>
            Students
          </SortableHeader>
          <SortableHeader name="created_at" class="wide-only" initialOrder="desc" {...sorting}>
            Created
          </SortableHeader>
        </tr>
      </thead>
      <tbody>
        {schools.map((school) => (
          <tr key={school.id} class="row-link">
            <th scope="row">
              <a href={href(`/schools/${school.id}`)}>{school.name}</a>
              <small>
                {school.subdomain} · {school.contact_email}
              </small>
            </th>
            <td>
              <Badge value={school.status} />
            </td>
            <td class="wide-only">{school.plan.name}</td>
            <td class="number wide-only">{formatNumber(school.stats.total_students)}</td>
            <td class="wide-only">
              <Timestamp at={school.created_at} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const NoSchools = () => (
  <EmptyState title="No schools yet">
    <a class="button primary" href={href('/schools/new')}>
      Create your first school
    </a>
  </EmptyState>
);

const NoMatchingSchools = ({ onShowAll }: { onShowAll: () => void }) => (
  <EmptyState title="No matching schools">
    <button type="button" class="button" onClick={onShowAll}>
      Show all schools
    </button>
  </EmptyState>
);

export function Schools() {
  const params = Object.fromEntries(route.value.search);
  const { search = '', status = '', plan_id = '', sort = 'created_at', order = 'desc', page = '1' } = params;
  const change = (next: Record<string, string | undefined>) => setSearch({ ...params, page: undefined, ...next });
  const [searchText, setSearchText] = useSearchText(search, (text) => change({ search: text }));
  const query = { search, status, plan_id, sort, order, page };
  const schools = useLoad(
    `schools ${JSON.stringify(query)}`,
    (signal) => request<Tenant[]>('GET', '/api/platform/tenants', { query, signal }),
    { keepPrevious: true },
  );
  const isFiltered = search !== '' || status !== '' || plan_id !== '';
  const showAll = () => {
    setSearchText('');
    setSearch({});
  };

  return (
    <>
      <PageHeader
        title="Schools"
        actions={
          <a class="button primary" href={href('/schools/new')}>
            <Icon name="plus" /> Create school
          </a>
        }
      />
      <Card isFlush>
        <div class="filters" role="search">
          <SearchBox
            label="Search schools"
            placeholder="Name, subdomain or email"
            value={searchText}
            onChange={setSearchText}
          />
          <StatusFilter status={status} onChange={(to) => change({ status: to })} />
        </div>
        {plan_id && (
          <p class="filter-note">
            Filtered by plan.{' '}
            <button type="button" class="link" onClick={() => change({ plan_id: undefined })}>
              Show all
            </button>
          </p>
        )}
        <PagedList
          state={schools}
          lines={6}
          names={['school', 'schools']}
          onPage={(to) => change({ page: to?.toString() })}
          empty={isFiltered ? <NoMatchingSchools onShowAll={showAll} /> : <NoSchools />}
        >
          {(data) => (
            <SchoolTable
              schools={data}
              sorting={{ sort, order, onSort: (name, to) => change({ sort: name, order: to }) }}
            />
          )}
        </PagedList>
      </Card>
    </>
  );
}
