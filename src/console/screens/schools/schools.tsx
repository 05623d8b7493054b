import { useState } from 'preact/hooks';
import { request } from '../../data/api.ts';
import { Icon } from '../../parts/icons.tsx';
import { useLoad } from '../../data/load.ts';
import { Card, EmptyState, PageHeader, PagedList, SearchBox, SortableHeader } from '../../parts/components.tsx';
import { ExportButton } from '../../parts/export-button.tsx';
import { href, route, setSearch } from '../../router.ts';
import { useSearchText } from '../../parts/search-text.ts';
import { useStored } from '../../data/stored.ts';
import type { Tenant } from '../../types.ts';
import { BulkActions } from './bulk-actions.tsx';
import { columns, ColumnsDialog, defaultColumns } from './columns.tsx';
import { SavedFilters } from './saved-filters.tsx';

const statusOptions = [
  ['', 'All'],
  ['active', 'Active'],
  ['suspended', 'Suspended'],
  ['deleted', 'Deleted'],
] as const;

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

interface Selection {
  /** The selected schools by id, of all pages. */
  selected: ReadonlyMap<number, Tenant>;
  /** Selects or deselects schools. */
  onSelect: (schools: Tenant[], isSelected: boolean) => void;
}

interface SchoolTableProps extends Selection {
  schools: Tenant[];
  shownColumns: string[];
  sorting: Sorting;
}

function SchoolTable({ schools, shownColumns, sorting, selected, onSelect }: SchoolTableProps) {
  const shown = shownColumns.flatMap((name) => {
    const column = columns[name];
    return column ? [{ name, ...column }] : [];
  });
  const selectedHere = schools.filter(({ id }) => selected.has(id)).length;
  const classOf = ({ isNumber = false, isNarrow = false }: { isNumber?: boolean; isNarrow?: boolean }) =>
    `${isNumber ? 'number' : ''} ${isNarrow ? '' : 'wide-only'}`.trim();
  return (
    <table class="table selectable">
      <caption class="hidden">Schools</caption>
      <thead>
        <tr>
          <td class="select-cell">
            <input
              type="checkbox"
              aria-label="Select all schools on this page"
              checked={selectedHere === schools.length}
              indeterminate={selectedHere > 0 && selectedHere < schools.length}
              onChange={(event) => onSelect(schools, event.currentTarget.checked)}
            />
          </td>
          <SortableHeader name="name" {...sorting}>
            School
          </SortableHeader>
          {shown.map((column) =>
            column.sort === undefined ? (
              <th key={column.name} scope="col" class={classOf(column)}>
                {column.label}
              </th>
            ) : (
              <SortableHeader
                key={column.name}
                name={column.sort}
                class={classOf(column)}
                initialOrder={column.initialOrder ?? 'asc'}
                {...sorting}
              >
                {column.label}
              </SortableHeader>
            ),
          )}
        </tr>
      </thead>
      <tbody>
        {schools.map((school) => (
          <tr key={school.id} class={selected.has(school.id) ? 'row-link selected' : 'row-link'}>
            <td class="select-cell">
              <input
                type="checkbox"
                aria-label={`Select ${school.name}`}
                checked={selected.has(school.id)}
                onChange={(event) => onSelect([school], event.currentTarget.checked)}
              />
            </td>
            <th scope="row">
              <a href={href(`/schools/${school.id}`)}>{school.name}</a>
              <small>
                {school.subdomain} · {school.contact_email}
              </small>
            </th>
            {shown.map((column) => (
              <td key={column.name} class={classOf(column)}>
                {column.cell(school)}
              </td>
            ))}
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

/** The schools that the operator has selected. They stay selected on other pages of the list. */
function useSelection() {
  const [selected, setSelected] = useState<ReadonlyMap<number, Tenant>>(new Map());
  const onSelect = (schools: Tenant[], isSelected: boolean) => {
    const next = new Map(selected);
    for (const school of schools) {
      if (isSelected) next.set(school.id, school);
      else next.delete(school.id);
    }
    setSelected(next);
  };
  const replace = (schools: Tenant[]) => setSelected(new Map(schools.map((school) => [school.id, school])));
  return { selected, onSelect, replace };
}

export function Schools() {
  const params = Object.fromEntries(route.value.search);
  const { search = '', status = '', plan_id = '', sort = 'created_at', order = 'desc', page = '1' } = params;
  const change = (next: Record<string, string | undefined>) => setSearch({ ...params, page: undefined, ...next });
  const [searchText, setSearchText] = useSearchText(search, (text) => change({ search: text }));
  const [shownColumns, setShownColumns] = useStored('school-columns', defaultColumns);
  const [isChoosingColumns, setChoosingColumns] = useState(false);
  const { selected, onSelect, replace } = useSelection();
  const filters = { search, status, plan_id };
  const query = { ...filters, sort, order, page };
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
  const savable = new URLSearchParams(route.value.search);
  savable.delete('page');

  return (
    <>
      <PageHeader
        title="Schools"
        actions={
          <>
            <ExportButton
              path="/api/platform/tenants/export"
              query={filters}
              label="Export CSV"
              message="Schools exported."
            />
            <button type="button" class="button" onClick={() => setChoosingColumns(true)}>
              Columns
            </button>
            <a class="button primary" href={href('/schools/new')}>
              <Icon name="plus" /> Create school
            </a>
          </>
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
        <SavedFilters search={savable.toString()} isFiltered={isFiltered} />
        <BulkActions
          schools={[...selected.values()]}
          onRun={(failed) => {
            replace(failed);
            void schools.reload();
          }}
          onClear={() => replace([])}
        />
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
              shownColumns={shownColumns}
              sorting={{ sort, order, onSort: (name, to) => change({ sort: name, order: to }) }}
              selected={selected}
              onSelect={onSelect}
            />
          )}
        </PagedList>
      </Card>
      {isChoosingColumns && (
        <ColumnsDialog chosen={shownColumns} onChange={setShownColumns} onClose={() => setChoosingColumns(false)} />
      )}
    </>
  );
}
