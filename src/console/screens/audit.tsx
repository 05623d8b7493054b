import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { Entries } from '../changes.tsx';
import { say } from '../dialogs.tsx';
import { actionName } from '../format.tsx';
import { Field, Select, Text } from '../forms.tsx';
import { asFailure, ask, download, isGivenUp } from '../http.ts';
import { Icon } from '../icons.tsx';
import { useLoad, useSettled } from '../load.ts';
import { Card, Empty, Head, Pager, PastEnd, Show } from '../parts.tsx';
import { place, setSearch } from '../router.ts';
import type { AuditLog, Tenant } from '../types.ts';

/** Finds a school by what one types. */
function SchoolPicker({ id, onPick }: { id: string; onPick: (id: string) => void }) {
  const list = useId();
  const [typed, setTyped] = useState<string>();
  const [active, setActive] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const chosen = useLoad(id === '' ? 'no school' : `name of school ${id}`, async (signal) =>
    id === ''
      ? ''
      : (await ask<Tenant>('GET', `/api/platform/tenants/${encodeURIComponent(id)}`, { signal })).data.name,
  );
  const search = useSettled(typed ?? '', 200).trim();
  const found = useLoad(`schools that fit ${search}`, async (signal) =>
    search === ''
      ? []
      : (await ask<Tenant[]>('GET', '/api/platform/tenants', { query: { search, pageSize: 8, sort: 'name' }, signal }))
          .data,
  );
  const options = typed === undefined || typed.trim() === '' ? [] : (found.data ?? []);
  const isOpen = options.length > 0;
  useEffect(() => setActive(0), [found.data]);
  const picked = useRef<Record<string, string>>({});
  const pick = (to: string, name = '') => {
    picked.current[to] = name;
    setTyped(undefined);
    onPick(to);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Escape') setTyped(undefined);
    else if (event.key === 'Enter' && isOpen) {
      event.preventDefault();
      const option = options[active];
      if (option) pick(String(option.id), option.name);
    } else if (isOpen && (event.key === 'ArrowDown' || event.key === 'ArrowUp')) {
      event.preventDefault();
      setActive((now) => (now + (event.key === 'ArrowDown' ? 1 : options.length - 1)) % options.length);
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
            // The list is ours, below.
            list={undefined}
            autocomplete="off"
            placeholder="Any school"
            aria-expanded={isOpen}
            aria-controls={list}
            aria-autocomplete="list"
            aria-activedescendant={isOpen ? `${list}-${active}` : undefined}
            value={typed ?? chosen.data ?? picked.current[id] ?? ''}
            onInput={(event) => {
              setTyped(event.currentTarget.value);
              if (event.currentTarget.value === '' && id !== '') pick('');
            }}
            onKeyDown={onKeyDown}
            onBlur={() => setTyped(undefined)}
          />
          <ul id={list} role="listbox" aria-label="Schools that fit" hidden={!isOpen}>
            {options.map((school, n) => (
              <li
                key={school.id}
                id={`${list}-${n}`}
                role="option"
                aria-selected={n === active}
                // Before the field loses the focus, and with it the list.
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
  const given = Object.fromEntries(place.value.search);
  const { tenant_id = '', action = '', from_date = '', to_date = '', page = '1' } = given;
  const change = (next: Record<string, string | undefined>) => setSearch({ ...given, page: undefined, ...next });
  const filters = { tenant_id, action, from_date, to_date };
  const query = { ...filters, page, pageSize: 25 };
  const entries = useLoad(
    `audit ${JSON.stringify(query)}`,
    (signal) => ask<AuditLog[]>('GET', '/api/platform/audit-logs', { query, signal }),
    { keep: true },
  );
  const actions = useLoad(
    'audit actions',
    async (signal) => (await ask<string[]>('GET', '/api/platform/audit-logs/actions', { signal })).data,
  );
  const [isExporting, setExporting] = useState(false);
  const save = async () => {
    setExporting(true);
    try {
      await download('/api/platform/audit-logs/export', { ...filters, format: 'csv' });
      say('The audit log was exported.');
    } catch (thrown) {
      if (!isGivenUp(thrown)) say(asFailure(thrown).message, true);
    }
    setExporting(false);
  };
  const isFiltered = Object.values(filters).some((value) => value !== '');
  const known = actions.data ?? [];
  const options = [
    ['', 'Any action'],
    ...[...new Set([...known, ...(action ? [action] : [])])].map((one) => [one, actionName(one)]),
  ] as [string, string][];

  return (
    <>
      <Head
        title="Audit log"
        lead="What operators did, and every request under a log-in to a school. Nobody can change it."
        actions={
          <button type="button" class="button" disabled={isExporting} onClick={() => void save()}>
            <Icon name="export" /> {isExporting ? 'Exporting…' : 'Export CSV'}
          </button>
        }
      />
      <Card isFlush>
        <div class="filters" role="search">
          <SchoolPicker id={tenant_id} onPick={(to) => change({ tenant_id: to })} />
          <Select
            label="Action"
            name="action"
            isFilter
            value={action}
            options={options}
            onChange={(to) => change({ action: to })}
          />
          <Text
            label="From"
            name="from_date"
            isFilter
            value={from_date}
            onChange={(to) => change({ from_date: to })}
            input={{ type: 'date' }}
          />
          <Text
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
        {(from_date || to_date) && <p class="filter-note">Days are in UTC, both included.</p>}
        <Show what={entries} lines={8}>
          {({ data, pagination }) => (
            <div aria-busy={entries.isLoading} class={entries.isLoading ? 'stale' : undefined}>
              {data.length > 0 ? (
                <Entries entries={data} />
              ) : pagination.totalItems > 0 ? (
                <PastEnd onFirst={() => change({})} />
              ) : (
                <Empty title={isFiltered ? 'No entry fits.' : 'Nothing happened yet.'} />
              )}
              <Pager
                pagination={pagination}
                names={['entry', 'entries']}
                onPage={(to) => change({ page: String(to) })}
              />
            </div>
          )}
        </Show>
      </Card>
    </>
  );
}
