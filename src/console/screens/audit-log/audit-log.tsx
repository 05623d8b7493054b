import { AuditEntries } from '../../parts/audit-entries.tsx';
import { ExportButton } from '../../parts/export-button.tsx';
import { actionName } from '../../parts/format.tsx';
import { SelectField, TextField } from '../../parts/fields.tsx';
import { request } from '../../data/api.ts';
import { useLoad } from '../../data/load.ts';
import { Card, PageHeader } from '../../parts/components.tsx';
import { type ListScreen, PagedList, useListScreen } from '../../parts/list.tsx';
import { SchoolPicker } from '../../parts/school-picker.tsx';
import type { AuditLog as AuditLogEntry } from '../../types.ts';

type Filter = 'tenant_id' | 'action' | 'from_date' | 'to_date';

function AuditFilters({ filters, isFiltered, change, clear }: ListScreen<AuditLogEntry, Filter>) {
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
        <SchoolPicker id={tenant_id} onPick={(to) => change({ tenant_id: to })} />
        <SelectField
          label="Action"
          name="action"
          isFilter
          value={action}
          options={[['', 'Any action'], ...[...names].map((name) => [name, actionName(name)] as const)]}
          onChange={(to) => change({ action: to })}
        />
        <TextField
          label="From"
          name="from_date"
          isFilter
          value={from_date}
          onChange={(to) => change({ from_date: to })}
          input={{ type: 'date' }}
        />
        <TextField
          label="To"
          name="to_date"
          isFilter
          value={to_date}
          onChange={(to) => change({ to_date: to })}
          input={{ type: 'date' }}
        />
        {isFiltered && (
          <button type="button" class="button" onClick={clear}>
            Clear
          </button>
        )}
      </div>
      {(from_date || to_date) && <p class="filter-note">Dates are in UTC and inclusive.</p>}
    </>
  );
}

export function AuditLog() {
  const list = useListScreen<AuditLogEntry, Filter>('/api/platform/audit-logs', {
    filters: ['tenant_id', 'action', 'from_date', 'to_date'],
    pageSize: 25,
  });
  return (
    <>
      <PageHeader
        title="Audit log"
        lead="All actions by operators, and every request made while logged in to a school. Entries cannot be changed."
        actions={
          <ExportButton
            path="/api/platform/audit-logs/export"
            query={list.filters}
            label="Export CSV"
            message="Audit log exported."
          />
        }
      />
      <Card isFlush>
        <AuditFilters {...list} />
        <PagedList
          list={list}
          lines={8}
          names={['entry', 'entries']}
          empty={list.isFiltered ? 'No matching entries' : 'No entries yet'}
        >
          {(entries) => <AuditEntries entries={entries} />}
        </PagedList>
      </Card>
    </>
  );
}
