import { useEffect, useId, useState } from 'preact/hooks';
import { request } from './data/api.ts';
import { Dialog } from './parts/dialogs.tsx';
import { useDebounced, useLoad } from './data/load.ts';
import { navigate } from './router.ts';
import type { Tenant } from './types.ts';

/** A page of the console that the palette offers. */
export interface Page {
  path: string;
  label: string;
}

interface Option extends Page {
  /** What tells schools of the same name apart. */
  note: string;
}

/** The first schools that match a search. */
const useSchools = (search: string) =>
  useLoad(
    `palette ${search}`,
    async (signal) => {
      if (search === '') return [];
      const query = { search, pageSize: 8, sort: 'name' };
      return (await request<Tenant[]>('GET', '/api/platform/tenants', { query, signal })).data;
    },
    { keepPrevious: true },
  );

const contains = (label: string, text: string) => label.toLowerCase().includes(text.toLowerCase());

/** A dialog that goes to a page or a school by its name. */
export function Palette({ pages, onClose }: { pages: readonly Page[]; onClose: () => void }) {
  const [typed, setTyped] = useState('');
  const [activeIndex, setActiveIndex] = useState(0);
  const listId = useId();
  const text = typed.trim();
  const schools = useSchools(useDebounced(text, 150));
  const options: Option[] = [
    ...pages.filter(({ label }) => contains(label, text)).map((page) => ({ ...page, note: '' })),
    ...(text === '' ? [] : (schools.data ?? [])).map(({ id, name, subdomain }) => ({
      path: `/schools/${id}`,
      label: name,
      note: subdomain,
    })),
  ];
  useEffect(() => setActiveIndex(0), [text, schools.data]);
  const go = (option: Option | undefined) => {
    if (!option) return;
    onClose();
    void navigate(option.path);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Enter') {
      event.preventDefault();
      go(options[activeIndex]);
    } else if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && options.length > 0) {
      event.preventDefault();
      setActiveIndex((now) => (now + (event.key === 'ArrowDown' ? 1 : options.length - 1)) % options.length);
    }
  };
  const active = options[activeIndex];
  return (
    <Dialog title="Go to" onClose={onClose}>
      <div class="dialog-body">
        <input
          // Not a search field, which would take the first Escape to clear its text.
          type="text"
          role="combobox"
          // The options are in the listbox below, not in a datalist.
          list={undefined}
          aria-label="Page or school"
          placeholder="Page or school"
          autocomplete="off"
          spellcheck={false}
          aria-expanded={options.length > 0}
          aria-controls={listId}
          aria-autocomplete="list"
          aria-activedescendant={active ? `${listId}-${activeIndex}` : undefined}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
        <div class="palette-list">
          <ul id={listId} role="listbox" class="palette-options" aria-label="Pages and schools">
            {options.map((option, n) => (
              <li
                key={option.path}
                id={`${listId}-${n}`}
                role="option"
                aria-selected={n === activeIndex}
                ref={(element) => {
                  if (n === activeIndex) element?.scrollIntoView({ block: 'nearest' });
                }}
                onClick={() => go(option)}
              >
                <bdi>{option.label}</bdi> <small>{option.note}</small>
              </li>
            ))}
          </ul>
          <p role="status" class="muted small">
            {options.length === 0 && !schools.isLoading ? 'No matching page or school' : ''}
          </p>
        </div>
      </div>
    </Dialog>
  );
}
