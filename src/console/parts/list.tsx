import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type ApiResponse, request } from '../data/api.ts';
import { type Loaded, useDebounced, useLoad } from '../data/load.ts';
import { route, setSearch } from '../router.ts';
import { AsyncContent, EmptyState } from './components.tsx';
import { formatNumber } from './format.tsx';
import { Icon } from './icons.tsx';
import type { Sorting } from './table.tsx';
import { Button } from './button.tsx';

/** The text in the search box. Once the operator pauses, it becomes the search of the list. */
function useSearchText(search: string, onSearch: (search: string) => void): [string, (text: string) => void] {
  const [typed, setTyped] = useState(search);
  const debounced = useDebounced(typed, 200);
  const lastSearch = useRef(search);
  useEffect(() => {
    if (debounced.trim() === search) return;
    lastSearch.current = debounced.trim();
    onSearch(lastSearch.current);
  }, [debounced]);
  // Take over a search that came from a link or the back button. Ignore our own: the operator may have typed on.
  useEffect(() => {
    if (search === lastSearch.current) return;
    lastSearch.current = search;
    setTyped(search);
  }, [search]);
  return [typed, setTyped];
}

interface ListOptions<Filter extends string> {
  /** The parameters of the address, and of the API, that filter the list. */
  filters?: readonly Filter[];
  /** The sort without one in the address. Only for lists that can be sorted. */
  sort?: { sort: string; order: 'asc' | 'desc' };
  pageSize?: number;
}

export interface ListScreen<T, Filter extends string = string> {
  state: Loaded<ApiResponse<T[]>>;
  reload: () => Promise<void>;
  /** The filters in the address, each '' if it is not set. */
  filters: Record<Filter, string>;
  isFiltered: boolean;
  /** Changes parameters of the address, and goes to the first page. */
  change: (next: Partial<Record<Filter | 'sort' | 'order', string>>) => void;
  clear: () => void;
  /** Goes to a page; without a number, to the first one. */
  onPage: (page?: number) => void;
  sorting: Sorting;
  /** The text of the search box, which becomes the filter `search` once the operator pauses. */
  searchText: string;
  setSearchText: (text: string) => void;
}

/** A list of the API, whose filters, sort and page are kept in the address. */
export function useListScreen<T, Filter extends string = never>(
  path: string,
  { filters: names = [], sort, pageSize }: ListOptions<Filter> = {},
): ListScreen<T, Filter> {
  const params: Record<string, string> = Object.fromEntries(route.value.search);
  const filters = Object.fromEntries(names.map((name) => [name, params[name] ?? ''])) as Record<Filter, string>;
  const set = (next: Record<string, string | undefined>) => setSearch({ ...params, page: undefined, ...next });
  const sorted = sort && {
    sort: params['sort'] ?? sort.sort,
    order: params['order'] ?? sort.order,
  };
  const query = {
    ...filters,
    ...sorted,
    page: params['page'] ?? '1',
    pageSize,
  };
  const state = useLoad(`${path} ${JSON.stringify(query)}`, (signal) => request<T[]>('GET', path, { query, signal }), {
    keepPrevious: true,
  });
  const [searchText, setSearchText] = useSearchText(params['search'] ?? '', (search) => set({ search }));
  return {
    state,
    reload: state.reload,
    filters,
    isFiltered: names.some((name) => filters[name] !== ''),
    change: set,
    clear: () => {
      setSearchText('');
      setSearch({});
    },
    onPage: (page) => set({ page: page?.toString() }),
    sorting: {
      sort: '',
      order: 'asc',
      ...sorted,
      onSort: (name, order) => set({ sort: name, order }),
    },
    searchText,
    setSearchText,
  };
}

interface ListFiltersProps {
  list: Pick<ListScreen<unknown>, 'searchText' | 'setSearchText'>;
  label: string;
  placeholder: string;
  children?: ComponentChildren;
}

/** The search field of a list, with its other filters beside it. */
export const ListFilters = ({ list, label, placeholder, children }: ListFiltersProps) => (
  <div class="filters" role="search">
    <SearchBox label={label} placeholder={placeholder} value={list.searchText} onChange={list.setSearchText} />
    {children}
  </div>
);

interface PaginationProps {
  pagination: ApiResponse<unknown>['pagination'];
  onPage: (page: number) => void;
  /** The singular and the plural of the items. */
  names: [string, string];
}

/** The position in a list, and buttons for the previous and the next page. */
function Pagination({ pagination: { page, pageSize, totalItems, totalPages }, onPage, names }: PaginationProps) {
  const [singular, plural] = names;
  const first = (page - 1) * pageSize + 1;
  const last = Math.min(totalItems, first + pageSize - 1);
  const total = formatNumber(totalItems);
  // A list without items says so itself.
  const text =
    totalItems === 0
      ? ''
      : totalPages <= 1 || first > totalItems
        ? `${total} ${totalItems === 1 ? singular : plural}`
        : `${formatNumber(first)}–${formatNumber(last)} of ${total} ${plural}`;
  return (
    <nav class={totalItems === 0 ? 'hidden' : 'pager'} aria-label="Pagination">
      <p role="status" aria-live="polite">
        {text}
      </p>
      {totalPages > 1 && (
        <div class="pager-buttons">
          <Button
            icon="left"
            label="Previous"
            isSmall
            isDisabled={page <= 1}
            onClick={() => onPage(Math.min(page - 1, totalPages))}
          />
          <button
            type="button"
            class="button small-button"
            disabled={page >= totalPages}
            onClick={() => onPage(page + 1)}
          >
            Next <Icon name="right" />
          </button>
        </div>
      )}
    </nav>
  );
}

/** Shown when the address has a page number past the end of the list. */
const PageOutOfRange = ({ onFirst }: { onFirst: () => void }) => (
  <EmptyState title="This page does not exist.">
    <Button label="Go to the first page" onClick={onFirst} />
  </EmptyState>
);

interface PagedListProps<T> {
  list: Pick<ListScreen<T>, 'state' | 'onPage'>;
  names: [string, string];
  /** Shown if the list has no items. */
  empty: ComponentChildren;
  lines?: number;
  children: (items: T[]) => ComponentChildren;
}

/** A page of a list from the service. The previous page stays visible, dimmed, while the next one loads. */
export function PagedList<T>({ list: { state, onPage }, names, empty, lines = 4, children }: PagedListProps<T>) {
  return (
    <AsyncContent state={state} lines={lines}>
      {({ data, pagination }) => (
        <div aria-busy={state.isLoading} class={state.isLoading ? 'stale' : undefined}>
          {data.length > 0 ? children(data) : pagination.totalItems > 0 && <PageOutOfRange onFirst={() => onPage()} />}
          {/* Rendered before it has a text, so that screen readers announce the text. */}
          <div role="status">
            {pagination.totalItems === 0 && (typeof empty === 'string' ? <EmptyState title={empty} /> : empty)}
          </div>
          <Pagination pagination={pagination} names={names} onPage={onPage} />
        </div>
      )}
    </AsyncContent>
  );
}

interface SearchBoxProps {
  label: string;
  placeholder: string;
  value: string;
  onChange: (value: string) => void;
}

/** A search field with a magnifying glass. */
export const SearchBox = ({ label, placeholder, value, onChange }: SearchBoxProps) => (
  <div class="search">
    <Icon name="search" />
    <input
      type="search"
      aria-label={label}
      placeholder={placeholder}
      value={value}
      onInput={(event) => onChange(event.currentTarget.value)}
    />
  </div>
);
