import { useEffect, useRef, useState } from 'preact/hooks';
import { Moment, number } from '../format.tsx';
import { ask } from '../http.ts';
import { Icon } from '../icons.tsx';
import { useLoad, useSettled } from '../load.ts';
import { Badge, Card, Empty, Head, Pager, PastEnd, Show, SortHead } from '../parts.tsx';
import { href, place, setSearch } from '../router.ts';
import type { Tenant } from '../types.ts';

const states = [
  ['', 'All'],
  ['active', 'Active'],
  ['suspended', 'Suspended'],
  ['deleted', 'Deleted'],
] as const;

export function Schools() {
  const given = Object.fromEntries(place.value.search);
  const { search = '', status = '', plan_id = '', sort = 'created_at', order = 'desc', page = '1' } = given;
  const change = (next: Record<string, string | undefined>) => setSearch({ ...given, page: undefined, ...next });

  const [typed, setTyped] = useState(search);
  const settled = useSettled(typed, 200);
  const sent = useRef(search);
  useEffect(() => {
    if (settled.trim() === search) return;
    sent.current = settled.trim();
    change({ search: sent.current });
  }, [settled]);
  // A link or a step back that brings another search; our own comes when the reader has typed on already.
  useEffect(() => {
    if (search === sent.current) return;
    sent.current = search;
    setTyped(search);
  }, [search]);

  const query = { search, status, plan_id, sort, order, page };
  const schools = useLoad(
    `schools ${JSON.stringify(query)}`,
    (signal) => ask<Tenant[]>('GET', '/api/platform/tenants', { query, signal }),
    { keep: true },
  );
  const onSort = (name: string, direction: 'asc' | 'desc') => change({ sort: name, order: direction });
  const isFiltered = search !== '' || status !== '' || plan_id !== '';

  return (
    <>
      <Head
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
              placeholder="Name, subdomain or e-mail"
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </div>
          <fieldset class="segments">
            <legend class="hidden">Status</legend>
            {states.map(([value, label]) => (
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
            Only schools on one plan.{' '}
            <button type="button" class="link" onClick={() => change({ plan_id: undefined })}>
              Show all
            </button>
          </p>
        )}
        <Show what={schools} lines={6}>
          {({ data, pagination }) => (
            <div aria-busy={schools.isLoading} class={schools.isLoading ? 'stale' : undefined}>
              {data.length > 0 ? (
                <table class="table">
                  <caption class="hidden">Schools</caption>
                  <thead>
                    <tr>
                      <SortHead name="name" {...{ sort, order, onSort }}>
                        School
                      </SortHead>
                      <SortHead name="status" {...{ sort, order, onSort }}>
                        Status
                      </SortHead>
                      <SortHead name="plan" class="wide-only" {...{ sort, order, onSort }}>
                        Plan
                      </SortHead>
                      <SortHead
                        name="total_students"
                        class="number wide-only"
                        first="desc"
                        {...{ sort, order, onSort }}
                      >
                        Students
                      </SortHead>
                      <SortHead name="created_at" class="wide-only" first="desc" {...{ sort, order, onSort }}>
                        Created
                      </SortHead>
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
                        <td class="number wide-only">{number(school.stats.total_students)}</td>
                        <td class="wide-only">
                          <Moment at={school.created_at} />
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              ) : pagination.totalItems > 0 ? (
                <PastEnd onFirst={() => change({})} />
              ) : (
                <Empty title={isFiltered ? 'No school fits.' : 'There is no school yet.'}>
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
                      Create the first one
                    </a>
                  )}
                </Empty>
              )}
              <Pager
                pagination={pagination}
                names={['school', 'schools']}
                onPage={(to) => change({ page: String(to) })}
              />
            </div>
          )}
        </Show>
      </Card>
    </>
  );
}
