import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { AuditEntries } from '../audit-entries.tsx';
import { showToast } from '../dialogs.tsx';
import { actionName } from '../format.tsx';
import { Field, SelectField, TextField } from '../forms.tsx';
import { request, download } from '../api.ts';
import { toFailure, isAbort } from '../http.ts';
import { Icon } from '../icons.tsx';
import { useLoad, useDebounced } from '../load.ts';
import { Card, EmptyState, PageHeader, Pagination, PageOutOfRange, AsyncContent } from '../components.tsx';
import { route, setSearch } from '../router.ts';
import type { AuditLog, Tenant } from '../types.ts';

/** A combobox that searches schools. */
function SchoolPicker({ id, onPick }: { id: string; onPick: (id: string) => void }) {
  const list = useId();
  const [typed, setTyped] = useState<string>();
  const [activeIndex, setActiveIndex] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const selectedName = useLoad(id === '' ? 'no school' : `name of school ${id}`, async (signal) =>
    id === ''
      ? ''
      : (await request<Tenant>('GET', `/api/platform/tenants/${encodeURIComponent(id)}`, { signal })).data.name,
  );
  const search = useDebounced(typed ?? '', 200).trim();
  const matches = useLoad(`schools matching ${search}`, async (signal) =>
    search === ''
      ? []
      : (
          await request<Tenant[]>('GET', '/api/platform/tenants', {
            query: { search, pageSize: 8, sort: 'name' },
            signal,
          })
        ).data,
  );
  const options = typed === undefined || typed.trim() === '' ? [] : (matches.data ?? []);
  const isOpen = options.length > 0;
  useEffect(() => setActiveIndex(0), [matches.data]);
  const pickedNames = useRef<Record<string, string>>({});
  const pick = (pickedId: string, name = '') => {
    pickedNames.current[pickedId] = name;
    setTyped(undefined);
    onPick(pickedId);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Escape') setTyped(undefined);
    else if (event.key === 'Enter' && isOpen) {
      event.preventDefault();
      const option = options[activeIndex];
      if (option) pick(String(option.id), option.name);
    } else if (isOpen && (event.key === 'ArrowDown' || event.key === 'ArrowUp')) {
      event.preventDefault();
      setActiveIndex((now) => (now + (event.key === 'ArrowDown' ? 1 : options.length - 1)) % options.length);
    }
  };
  return (
    <Field label="School" name="tenant" isFilter>
      {(attributes) => (
        <div class="combo">
          <input
            {...attributes}
            ref={input}
            type="search"
            role="combobox"
            // The options are in the listbox below, not in a datalist.
            list={undefined}
            autocomplete="off"
            placeholder="Any school"
            aria-expanded={isOpen}
            aria-controls={list}
            aria-autocomplete="list"
            aria-activedescendant={isOpen ? `${list}-${activeIndex}` : undefined}
            value={typed ?? selectedName.data ?? pickedNames.current[id] ?? ''}
            onInput={(event) => {
              setTyped(event.currentTarget.value);
              if (event.currentTarget.value === '' && id !== '') pick('');
            }}
            onKeyDown={onKeyDown}
            onBlur={() => setTyped(undefined)}
          />
          <ul id={list} role="listbox" aria-label="Matching schools" hidden={!isOpen}>
            {options.map((school, n) => (
              <li
                key={school.id}
                id={`${list}-${n}`}
                role="option"
                aria-selected={n === activeIndex}
                // On mousedown, because the blur that follows closes the list.
                onMouseDown={(event) => {
                  event.preventDefault();
                  pick(String(school.id), school.name);
                }}
              >
                {school.name} <small>{school.subdomain}</small>
              </li>
            ))}
          </ul>
        </div>
      )}
    </Field>
  );
}

export function Audit() {
  const params = Object.fromEntries(route.value.search);
  const { tenant_id = '', action = '', from_date = '', to_date = '', page = '1' } = params;
  const change = (next: Record<string, string | undefined>) => setSearch({ ...params, page: undefined, ...next });
  const filters = { tenant_id, action, from_date, to_date };
  const query = { ...filters, page, pageSize: 25 };
  const entries = useLoad(
    `audit ${JSON.stringify(query)}`,
    (signal) => request<AuditLog[]>('GET', '/api/platform/audit-logs', { query, signal }),
    { keepPrevious: true },
  );
  const actions = useLoad(
    'audit actions',
    async (signal) => (await request<string[]>('GET', '/api/platform/audit-logs/actions', { signal })).data,
  );
  const [isExporting, setExporting] = useState(false);
  const exportCsv = async () => {
    setExporting(true);
    try {
      await download('/api/platform/audit-logs/export', { ...filters, format: 'csv' });
      showToast('Audit log exported.');
    } catch (thrown) {
      if (!isAbort(thrown)) showToast(toFailure(thrown).message, true);
    }
    setExporting(false);
  };
  const isFiltered = Object.values(filters).some((value) => value !== '');
  const knownActions = actions.data ?? [];
  const options = [
    ['', 'Any action'],
    ...[...new Set([...knownActions, ...(action ? [action] : [])])].map((name) => [name, actionName(name)]),
  ] as [string, string][];

  return (
    <>
      <PageHeader
        title="Audit log"
        lead="All actions by operators, and every request made while logged in to a school. Entries cannot be changed."
        actions={
          <button type="button" class="button" disabled={isExporting} onClick={() => void exportCsv()}>
            <Icon name="export" /> {isExporting ? 'Exporting…' : 'Export CSV'}
          </button>
        }
      />
      <Card isFlush>
        <div class="filters" role="search">
          <SchoolPicker id={tenant_id} onPick={(to) => change({ tenant_id: to })} />
          <SelectField
            label="Action"
            name="action"
            isFilter
            value={action}
            options={options}
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
            <button type="button" class="button" onClick={() => setSearch({})}>
              Clear
            </button>
          )}
        </div>
        {(from_date || to_date) && <p class="filter-note">Dates are in UTC and inclusive.</p>}
        <AsyncContent state={entries} lines={8}>
          {({ data, pagination }) => (
            <div aria-busy={entries.isLoading} class={entries.isLoading ? 'stale' : undefined}>
              {data.length > 0 ? (
                <AuditEntries entries={data} />
              ) : pagination.totalItems > 0 ? (
                <PageOutOfRange onFirst={() => change({})} />
              ) : (
                <EmptyState title={isFiltered ? 'No matching entries' : 'No entries yet'} />
              )}
              <Pagination
                pagination={pagination}
                names={['entry', 'entries']}
                onPage={(to) => change({ page: String(to) })}
              />
            </div>
          )}
        </AsyncContent>
      </Card>
    </>
  );
}
