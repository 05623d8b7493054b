import { AuditEntries } from '../../parts/audit-entries.tsx';
import { ExportButton } from '../../parts/export-button.tsx';
import { actionName } from '../../parts/format.tsx';
import { SelectField, TextField } from '../../parts/fields.tsx';
import { useData } from '../../data/load.ts';
import { Card, PageHeader } from '../../parts/components.tsx';
import { type ListScreen, PagedList, useListScreen } from '../../parts/list.tsx';
import { SchoolPicker } from '../../parts/school-picker.tsx';
import type { AuditLog as AuditLogEntry } from '../../types.ts';
import { Button } from '../../parts/button.tsx';

type Filter = 'tenant_id' | 'action' | 'from_date' | 'to_date';

const dates = [
  ['from_date', 'From'],
  ['to_date', 'To'],
] as const;

function AuditFilters({ filters, isFiltered, change, clear }: ListScreen<AuditLogEntry, Filter>) {
  const { tenant_id, action, from_date, to_date } = filters;
  const actions = useData<string[]>('/api/platform/audit-logs/actions');
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
        {dates.map(([name, label]) => (
          <TextField
            key={name}
            label={label}
            name={name}
            isFilter
            value={filters[name]}
            onChange={(to) => change({ [name]: to })}
            input={{ type: 'date' }}
          />
        ))}
        {isFiltered && <Button label="Clear" onClick={clear} />}
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
