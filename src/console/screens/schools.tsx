import { useEffect, useRef, useState } from 'preact/hooks';
import { Timestamp, formatNumber } from '../format.tsx';
import { request } from '../api.ts';
import { Icon } from '../icons.tsx';
import { useLoad, useDebounced } from '../load.ts';
import {
  Badge,
  Card,
  EmptyState,
  PageHeader,
  Pagination,
  PageOutOfRange,
  AsyncContent,
  SortableHeader,
} from '../components.tsx';
import { href, route, setSearch } from '../router.ts';
import type { Tenant } from '../types.ts';

const statusOptions = [
  ['', 'All'],
  ['active', 'Active'],
  ['suspended', 'Suspended'],
  ['deleted', 'Deleted'],
] as const;

export function Schools() {
  const params = Object.fromEntries(route.value.search);
  const { search = '', status = '', plan_id = '', sort = 'created_at', order = 'desc', page = '1' } = params;
  const change = (next: Record<string, string | undefined>) => setSearch({ ...params, page: undefined, ...next });

  const [typed, setTyped] = useState(search);
  const debounced = useDebounced(typed, 200);
  const lastSearch = useRef(search);
  useEffect(() => {
    if (debounced.trim() === search) return;
    lastSearch.current = debounced.trim();
    change({ search: lastSearch.current });
  }, [debounced]);
  // Take over a search that came from a link or the back button. Ignore our own: the operator may have typed on.
  useEffect(() => {
    if (search === lastSearch.current) return;
    lastSearch.current = search;
    setTyped(search);
  }, [search]);

  const query = { search, status, plan_id, sort, order, page };
  const schools = useLoad(
    `schools ${JSON.stringify(query)}`,
    (signal) => request<Tenant[]>('GET', '/api/platform/tenants', { query, signal }),
    { keepPrevious: true },
  );
  const onSort = (name: string, nextOrder: 'asc' | 'desc') => change({ sort: name, order: nextOrder });
  const isFiltered = search !== '' || status !== '' || plan_id !== '';

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
          <div class="search">
            <Icon name="search" />
            <input
              type="search"
              aria-label="Search schools"
              placeholder="Name, subdomain or email"
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </div>
          <fieldset class="segments">
            <legend class="hidden">Status</legend>
            {statusOptions.map(([value, label]) => (
              <label key={value}>
                <input
                  type="radio"
                  name="status"
                  checked={status === value}
                  onChange={() => change({ status: value })}
                />
                <span>{label}</span>
              </label>
            ))}
          </fieldset>
        </div>
        {plan_id && (
          <p class="filter-note">
            Filtered by plan.{' '}
            <button type="button" class="link" onClick={() => change({ plan_id: undefined })}>
              Show all
            </button>
          </p>
        )}
        <AsyncContent state={schools} lines={6}>
          {({ data, pagination }) => (
            <div aria-busy={schools.isLoading} class={schools.isLoading ? 'stale' : undefined}>
              {data.length > 0 ? (
                <table class="table">
                  <caption class="hidden">Schools</caption>
                  <thead>
                    <tr>
                      <SortableHeader name="name" {...{ sort, order, onSort }}>
                        School
                      </SortableHeader>
                      <SortableHeader name="status" {...{ sort, order, onSort }}>
                        Status
                      </SortableHeader>
                      <SortableHeader name="plan" class="wide-only" {...{ sort, order, onSort }}>
                        Plan
                      </SortableHeader>
                      <SortableHeader
                        name="total_students"
                        class="number wide-only"
                        initialOrder="desc"
                        {...{ sort, order, onSort }}
                      >
                        Students
                      </SortableHeader>
                      <SortableHeader
                        name="created_at"
                        class="wide-only"
                        initialOrder="desc"
                        {...{ sort, order, onSort }}
                      >
                        Created
                      </SortableHeader>
                    </tr>
                  </thead>
                  <tbody>
                    {data.map((school) => (
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
              ) : pagination.totalItems > 0 ? (
                <PageOutOfRange onFirst={() => change({})} />
              ) : (
                <EmptyState title={isFiltered ? 'No matching schools' : 'No schools yet'}>
                  {isFiltered ? (
                    <button
                      type="button"
                      class="button"
                      onClick={() => {
                        setTyped('');
                        setSearch({});
                      }}
                    >
                      Show all schools
                    </button>
                  ) : (
                    <a class="button primary" href={href('/schools/new')}>
                      Create your first school
                    </a>
                  )}
                </EmptyState>
              )}
              <Pagination
                pagination={pagination}
                names={['school', 'schools']}
                onPage={(to) => change({ page: String(to) })}
              />
            </div>
          )}
        </AsyncContent>
      </Card>
    </>
  );
}
