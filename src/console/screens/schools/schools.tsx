import { useState } from 'preact/hooks';
import { useStored } from '../../data/stored.ts';
import { Card, EmptyState, PageHeader, Segments } from '../../parts/components.tsx';
import { ExportButton } from '../../parts/export-button.tsx';
import { Icon } from '../../parts/icons.tsx';
import { ListFilters, PagedList, useListScreen } from '../../parts/list.tsx';
import { Table } from '../../parts/table.tsx';
import { href, route } from '../../router.ts';
import type { Tenant } from '../../types.ts';
import { BulkActions } from './bulk-actions.tsx';
import { columns, ColumnsDialog, defaultColumns, nameColumn } from './columns.tsx';
import { SavedFilters } from './saved-filters.tsx';
import { Button } from '../../parts/button.tsx';

const statuses = [
  ['', 'All'],
  ['active', 'Active'],
  ['suspended', 'Suspended'],
  ['deleted', 'Deleted'],
] as const;

const NoSchools = () => (
  <EmptyState title="No schools yet">
    <a class="button primary" href={href('/schools/new')}>
      Create your first school
    </a>
  </EmptyState>
);

const NoMatchingSchools = ({ onShowAll }: { onShowAll: () => void }) => (
  <EmptyState title="No matching schools">
    <Button label="Show all schools" onClick={onShowAll} />
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
  const list = useListScreen<Tenant, 'search' | 'status' | 'plan_id'>('/api/platform/tenants', {
    filters: ['search', 'status', 'plan_id'],
    sort: { sort: 'created_at', order: 'desc' },
  });
  const { filters, isFiltered, change } = list;
  const [shownColumns, setShownColumns] = useStored('school-columns', defaultColumns);
  const [isChoosingColumns, setChoosingColumns] = useState(false);
  const { selected, onSelect, replace } = useSelection();
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
            <Button label="Columns" onClick={() => setChoosingColumns(true)} />
            <a class="button primary" href={href('/schools/new')}>
              <Icon name="plus" /> Create school
            </a>
          </>
        }
      />
      <Card isFlush>
        <ListFilters list={list} label="Search schools" placeholder="Name, subdomain or email">
          <Segments
            legend="Status"
            name="status"
            options={statuses}
            value={filters.status}
            onChange={(status) => change({ status })}
          />
        </ListFilters>
        {filters.plan_id && (
          <p class="filter-note">
            Filtered by plan. <Button label="Show all" kind="link" onClick={() => change({ plan_id: '' })} />
          </p>
        )}
        <SavedFilters search={savable.toString()} isFiltered={isFiltered} />
        <BulkActions
          schools={[...selected.values()]}
          onRun={(failed) => {
            replace(failed);
            void list.reload();
          }}
          onClear={() => replace([])}
        />
        <PagedList
          list={list}
          lines={6}
          names={['school', 'schools']}
          empty={isFiltered ? <NoMatchingSchools onShowAll={list.clear} /> : <NoSchools />}
        >
          {(schools) => (
            <Table
              caption="Schools"
              items={schools}
              keyOf={({ id }) => id}
              columns={[nameColumn, ...shownColumns.flatMap((name) => columns[name] ?? [])]}
              sorting={list.sorting}
              selection={{ selected, onSelect, names: 'schools', nameOf: ({ name }) => name }}
              isLinked
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
