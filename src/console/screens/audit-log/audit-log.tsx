import { AuditEntries } from '../../parts/audit-entries.tsx';
import { ExportButton } from '../../parts/export-button.tsx';
import { actionName } from '../../parts/format.tsx';
import { SelectField, TextField } from '../../parts/forms.tsx';
import { request } from '../../data/api.ts';
import { useLoad } from '../../data/load.ts';
import { Card, EmptyState, PageHeader, PagedList } from '../../parts/components.tsx';
import { route, setSearch } from '../../router.ts';
import { SchoolPicker } from '../../parts/school-picker.tsx';
import type { AuditLog as AuditLogEntry } from '../../types.ts';

interface Filters {
  tenant_id: string;
  action: string;
  from_date: string;
  to_date: string;
}

const isFiltered = (filters: Filters) => Object.values(filters).some((value) => value !== '');

function AuditFilters({ filters, onChange }: { filters: Filters; onChange: (change: Partial<Filters>) => void }) {
  const { tenant_id, action, from_date, to_date } = filters;
  const actions = useLoad(
    'audit actions',
    async (signal) => (await request<string[]>('GET', '/api/platform/audit-logs/actions', { signal })).data,
  );
  // The action of the address may be unknown, or the list may still be loading.
  const names = new Set([...(actions.data ?? []), ...(action ? [action] : [])]);
  return (
    <>
      <div class="filters" role="search">
        <SchoolPicker id={tenant_id} onPick={(to) => onChange({ tenant_id: to })} />
        <SelectField
          label="Action"
          name="action"
          isFilter
          value={action}
          options={[['', 'Any action'], ...[...names].map((name) => [name, actionName(name)] as const)]}
          onChange={(to) => onChange({ action: to })}
        />
        <TextField
          label="From"
          name="from_date"
          isFilter
          value={from_date}
          onChange={(to) => onChange({ from_date: to })}
          input={{ type: 'date' }}
        />
        <TextField
          label="To"
          name="to_date"
          isFilter
          value={to_date}
          onChange={(to) => onChange({ to_date: to })}
          input={{ type: 'date' }}
        />
        {isFiltered(filters) && (
          <button type="button" class="button" onClick={() => setSearch({})}>
            Clear
          </button>
        )}
      </div>
      {(from_date || to_date) && <p class="filter-note">Dates are in UTC and inclusive.</p>}
    </>
  );
}

export function AuditLog() {
  const params = Object.fromEntries(route.value.search);
  const { tenant_id = '', action = '', from_date = '', to_date = '', page = '1' } = params;
  const change = (next: Record<string, string | undefined>) => setSearch({ ...params, page: undefined, ...next });
  const filters = { tenant_id, action, from_date, to_date };
  const query = { ...filters, page, pageSize: 25 };
  const entries = useLoad(
    `audit ${JSON.stringify(query)}`,
    (signal) => request<AuditLogEntry[]>('GET', '/api/platform/audit-logs', { query, signal }),
    { keepPrevious: true },
  );
  return (
    <>
      <PageHeader
        title="Audit log"
        lead="All actions by operators, and every request made while logged in to a school. Entries cannot be changed."
        actions={
          <ExportButton
            path="/api/platform/audit-logs/export"
            query={{ ...filters }}
            label="Export CSV"
            message="Audit log exported."
          />
        }
      />
      <Card isFlush>
        <AuditFilters filters={filters} onChange={change} />
        <PagedList
          state={entries}
          lines={8}
          names={['entry', 'entries']}
          onPage={(to) => change({ page: to?.toString() })}
          empty={<EmptyState title={isFiltered(filters) ? 'No matching entries' : 'No entries yet'} />}
        >
          {(data) => <AuditEntries entries={data} />}
        </PagedList>
      </Card>
    </>
  );
}
