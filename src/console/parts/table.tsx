import type { ComponentChildren } from 'preact';
import { Icon } from './icons.tsx';

export interface Column<T> {
  label: string;
  cell: (item: T) => ComponentChildren;
  /** The sort of the API; without it the column cannot be sorted. */
  sort?: string;
  /** The direction after the first click. */
  initialOrder?: 'desc';
  isNumber?: boolean;
  /** Phones have room for it. */
  isNarrow?: boolean;
}

export interface Sorting {
  sort: string;
  order: string;
  onSort: (name: string, order: 'asc' | 'desc') => void;
}

const classOf = ({ isNumber = false, isNarrow = false }: Pick<Column<never>, 'isNumber' | 'isNarrow'>) =>
  [isNumber && 'number', !isNarrow && 'wide-only'].filter(Boolean).join(' ') || undefined;

interface HeaderProps<T> {
  column: Column<T>;
  sorting: Sorting | undefined;
}

/** The header of a column, which sorts the list if the API can. */
function Header<T>({ column, sorting }: HeaderProps<T>) {
  const { label, sort, initialOrder = 'asc' } = column;
  if (!sorting || sort === undefined)
    return (
      <th scope="col" class={classOf(column)}>
        {label}
      </th>
    );
  const isSorted = sorting.sort === sort;
  const isAscending = sorting.order === 'asc';
  const next = isSorted ? (isAscending ? 'desc' : 'asc') : initialOrder;
  return (
    <th
      scope="col"
      class={classOf(column)}
      aria-sort={isSorted ? (isAscending ? 'ascending' : 'descending') : undefined}
    >
      <button type="button" class="sort" onClick={() => sorting.onSort(sort, next)}>
        {label}
        <span class={isSorted ? 'sort-mark' : 'sort-mark off'}>
          <Icon name={isSorted && isAscending ? 'up' : 'down'} />
        </span>
      </button>
    </th>
  );
}

interface Selection<T> {
  /** The selected items, of all pages. */
  selected: ReadonlyMap<string | number, T>;
  /** Selects or deselects items. */
  onSelect: (items: T[], isSelected: boolean) => void;
  /** The plural of the items. */
  names: string;
  nameOf: (item: T) => string;
}

interface TableProps<T> {
  caption?: string;
  items: T[];
  /** The first one has the header of each row. */
  columns: Column<T>[];
  keyOf: (item: T) => string | number;
  /** The buttons at the end of a row. */
  actions?: (item: T) => ComponentChildren;
  /** The link in the first cell covers the row. */
  isLinked?: boolean;
  isCompact?: boolean;
  sorting?: Sorting;
  selection?: Selection<T>;
}

export function Table<T>(props: TableProps<T>) {
  const { caption, items, columns, keyOf, actions, isLinked = false, isCompact = false, sorting, selection } = props;
  const [head, ...rest] = columns;
  const isSelected = (item: T) => selection?.selected.has(keyOf(item)) ?? false;
  const rowClass = (item: T) => [isLinked && 'row-link', isSelected(item) && 'selected'].filter(Boolean).join(' ');
  const selectedHere = items.filter(isSelected).length;
  return (
    <table class={`table${isCompact ? ' compact' : ''}${selection ? ' selectable' : ''}`}>
      {caption && <caption class="hidden">{caption}</caption>}
      <thead>
        <tr>
          {selection && (
            <td class="select-cell">
              <input
                type="checkbox"
                aria-label={`Select all ${selection.names} on this page`}
                checked={selectedHere === items.length}
                indeterminate={selectedHere > 0 && selectedHere < items.length}
                onChange={(event) => selection.onSelect(items, event.currentTarget.checked)}
              />
            </td>
          )}
          {columns.map((column, n) => (
            <Header key={column.label} column={n === 0 ? { ...column, isNarrow: true } : column} sorting={sorting} />
          ))}
          {actions && (
            <th scope="col">
              <span class="hidden">Actions</span>
            </th>
          )}
        </tr>
      </thead>
      <tbody>
        {items.map((item) => (
          <tr key={keyOf(item)} class={rowClass(item) || undefined}>
            {selection && (
              <td class="select-cell">
                <input
                  type="checkbox"
                  aria-label={`Select ${selection.nameOf(item)}`}
                  checked={isSelected(item)}
                  onChange={(event) => selection.onSelect([item], event.currentTarget.checked)}
                />
              </td>
            )}
            <th scope="row">{head?.cell(item)}</th>
            {rest.map((column) => (
              <td key={column.label} class={classOf(column)}>
                {column.cell(item)}
              </td>
            ))}
            {actions && <td class="number">{actions(item)}</td>}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

type NumberRow = [name: string, ...values: ComponentChildren[]];

interface NumberTableProps {
  caption?: string;
  /** The headers of the columns. */
  columns: readonly string[];
  /** The name of each row, and its values by column. */
  rows: NumberRow[];
}

/** A table of numbers, which are already formatted. */
export const NumberTable = ({ columns, rows, ...props }: NumberTableProps) => (
  <Table<NumberRow>
    {...props}
    isCompact
    items={rows}
    keyOf={([name]) => name}
    columns={columns.map((label, n) => ({ label, isNumber: n > 0, isNarrow: true, cell: (row) => row[n] }))}
  />
);
