import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { Field } from './fields.tsx';
import { request } from '../data/api.ts';
import { useDebounced, useLoad } from '../data/load.ts';
import type { Tenant } from '../types.ts';

/** The name of a school, or an empty string if none is selected. */
const useSchoolName = (id: string) =>
  useLoad(id === '' ? 'no school' : `name of school ${id}`, async (signal) =>
    id === ''
      ? ''
      : (await request<Tenant>('GET', `/api/platform/tenants/${encodeURIComponent(id)}`, { signal })).data.name,
  );

/** The first schools that match a search. */
const useMatchingSchools = (search: string) =>
  useLoad(`schools matching ${search}`, async (signal) => {
    if (search === '') return [];
    const query = { search, pageSize: 8, sort: 'name' };
    return (await request<Tenant[]>('GET', '/api/platform/tenants', { query, signal })).data;
  });

interface OptionListProps {
  id: string;
  options: Tenant[];
  activeIndex: number;
  onPick: (school: Tenant) => void;
}

function OptionList({ id, options, activeIndex, onPick }: OptionListProps) {
  return (
    <ul id={id} role="listbox" aria-label="Matching schools" hidden={options.length === 0}>
      {options.map((school, n) => (
        <li
          key={school.id}
          id={`${id}-${n}`}
          role="option"
          aria-selected={n === activeIndex}
          // On mousedown, because the blur that follows closes the list.
          onMouseDown={(event) => {
            event.preventDefault();
            onPick(school);
          }}
        >
          {school.name} <small>{school.subdomain}</small>
        </li>
      ))}
    </ul>
  );
}

interface PickerProps {
  /** The selected school; empty for none. */
  id: string;
  /** Called with an empty id and no school when the operator clears the field. */
  onPick: (id: string, school?: Tenant) => void;
  label?: string;
  placeholder?: string;
  error?: string | undefined;
}

/** A combobox that searches schools. */
export function SchoolPicker({ id, onPick, label = 'School', placeholder = 'Any school', error }: PickerProps) {
  const listId = useId();
  /** Undefined while the operator is not typing: the input then shows the selected school. */
  const [typed, setTyped] = useState<string>();
  const [activeIndex, setActiveIndex] = useState(0);
  const selectedName = useSchoolName(id);
  const matches = useMatchingSchools(useDebounced(typed ?? '', 200).trim());
  const options = typed === undefined || typed.trim() === '' ? [] : (matches.data ?? []);
  const isOpen = options.length > 0;
  useEffect(() => setActiveIndex(0), [matches.data]);

  // Shown until the service has returned the name of the selected school.
  const pickedNames = useRef<Record<string, string>>({});
  const pick = (school: Tenant) => {
    pickedNames.current[school.id] = school.name;
    setTyped(undefined);
    onPick(String(school.id), school);
  };
  const onInput = (text: string) => {
    const isCleared = text === '' && id !== '';
    setTyped(isCleared ? undefined : text);
    if (isCleared) onPick('');
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Escape') {
      // The first Escape closes the list, not the dialog around it.
      if (isOpen) event.preventDefault();
      setTyped(undefined);
    }
    if (event.key === 'Enter' && isOpen) {
      event.preventDefault();
      const option = options[activeIndex];
      if (option) pick(option);
    } else if (isOpen && (event.key === 'ArrowDown' || event.key === 'ArrowUp')) {
      event.preventDefault();
      setActiveIndex((now) => (now + (event.key === 'ArrowDown' ? 1 : options.length - 1)) % options.length);
    }
  };
  return (
    <Field label={label} name="tenant" isFilter error={error}>
      {(attributes) => (
        <div class="combo">
          <input
            {...attributes}
            type="search"
            role="combobox"
            // The options are in the listbox below, not in a datalist.
            list={undefined}
            autocomplete="off"
            placeholder={placeholder}
            aria-expanded={isOpen}
            aria-controls={listId}
            aria-autocomplete="list"
            aria-activedescendant={isOpen ? `${listId}-${activeIndex}` : undefined}
            value={typed ?? selectedName.data ?? pickedNames.current[id] ?? ''}
            onInput={(event) => onInput(event.currentTarget.value)}
            onKeyDown={onKeyDown}
            onBlur={() => setTyped(undefined)}
          />
          <OptionList id={listId} options={options} activeIndex={activeIndex} onPick={pick} />
        </div>
      )}
    </Field>
  );
}
