import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ApiResponse } from '../data/api.ts';
import type { Failure } from '../data/http.ts';
import { Icon } from './icons.tsx';
import type { Loaded } from '../data/load.ts';
import { formatNumber } from './format.tsx';
import { href } from '../router.ts';

/** Sets the title of the browser tab. */
export function usePageTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Operator console`;
  }, [title]);
}

/** The title of a screen, with its actions. */
export function PageHeader({
  title,
  lead,
  back,
  actions,
  badge,
}: {
  title: string;
  lead?: ComponentChildren;
  back?: ComponentChildren;
  actions?: ComponentChildren;
  badge?: ComponentChildren;
}) {
  usePageTitle(title);
  return (
    <header class="page-head">
      {back && <p class="back">{back}</p>}
      <div class="page-title">
        <div>
          <h1 tabIndex={-1}>
            <bdi>{title}</bdi> {badge}
          </h1>
          {lead && <p class="lead">{lead}</p>}
        </div>
        {actions && <div class="actions">{actions}</div>}
      </div>
    </header>
  );
}

export function Card({
  title,
  actions,
  children,
  isFlush = false,
}: {
  title?: string;
  actions?: ComponentChildren;
  children: ComponentChildren;
  isFlush?: boolean;
}) {
  return (
    <section class={isFlush ? 'card flush' : 'card'}>
      {title && (
        <div class="card-head">
          <h2>{title}</h2>
          {actions}
        </div>
      )}
      {children}
    </section>
  );
}

/** A figure in a list of figures (`<dl class="figures">`). */
export function Statistic({ label, value, to, note }: { label: string; value: string; to?: string; note?: string }) {
  return (
    <div class="figure">
      <dt>{label}</dt>
      <dd>
        {to ? <a href={href(to)}>{value}</a> : value}
        {note && <small>{note}</small>}
      </dd>
    </div>
  );
}

const tones: Record<string, string> = {
  active: 'good',
  trialing: 'info',
  suspended: 'warn',
  past_due: 'warn',
  deleted: 'bad',
  cancelled: 'bad',
  sent: 'good',
  pending: 'info',
  failed: 'bad',
};

export function Badge({ value, tone }: { value: string; tone?: string }) {
  return <span class={`badge ${tone ?? tones[value] ?? ''}`}>{value.replaceAll('_', ' ')}</span>;
}

/** A placeholder while the first response is loading. */
export function Skeleton({ lines = 4 }: { lines?: number }) {
  return (
    <div class="skeleton" role="status">
      <span class="hidden">Loading…</span>
      {Array.from({ length: lines }, (_, n) => (
        <span key={n} class={`bone bone-${n % 3}`} aria-hidden="true" />
      ))}
    </div>
  );
}

export function EmptyState({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** An error with a retry button, which is disabled until the time that the service asked to wait is over. */
export function ErrorMessage({ failure, onRetry }: { failure: Failure; onRetry?: () => void }) {
  const [seconds, setSeconds] = useState(failure.retryAfterSeconds ?? 0);
  useEffect(() => {
    setSeconds(failure.retryAfterSeconds ?? 0);
    if (!failure.retryAfterSeconds) return;
    const timer = setInterval(() => setSeconds((left) => Math.max(0, left - 1)), 1000);
    return () => clearInterval(timer);
  }, [failure]);
  return (
    <div class="problem" role="alert">
      <Icon name="warning" />
      <div>
        <p>{failure.message}</p>
        {failure.requestId && failure.status >= 500 && <p class="small">Request ID: {failure.requestId}</p>}
      </div>
      {onRetry && (
        <button type="button" class="button small-button" disabled={seconds > 0} onClick={onRetry}>
          {seconds > 0 ? `Try again in ${seconds} s` : 'Try again'}
        </button>
      )}
    </div>
  );
}

/** Renders loaded data, or a placeholder while it loads, or the error. */
export function AsyncContent<T>({
  state,
  children,
  lines = 4,
}: {
  state: Loaded<T>;
  children: (data: T) => ComponentChildren;
  lines?: number;
}) {
  return (
    <>
      {state.failure && <ErrorMessage failure={state.failure} onRetry={() => void state.reload()} />}
      {state.data !== undefined ? children(state.data) : !state.failure && <Skeleton lines={lines} />}
    </>
  );
}

interface PaginationProps {
  pagination: { page: number; pageSize: number; totalItems: number; totalPages: number };
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
          <button
            type="button"
            class="button small-button"
            disabled={page <= 1}
            onClick={() => onPage(Math.min(page - 1, totalPages))}
          >
            <Icon name="left" /> Previous
          </button>
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
    <button type="button" class="button" onClick={onFirst}>
      Go to the first page
    </button>
  </EmptyState>
);

interface SortProps {
  name: string;
  sort: string;
  order: string;
  onSort: (name: string, order: 'asc' | 'desc') => void;
  children: ComponentChildren;
  class?: string;
  /** The direction after the first click. */
  initialOrder?: 'asc' | 'desc';
}

/** A column header that sorts the list. */
export function SortableHeader({
  name,
  sort,
  order,
  onSort,
  children,
  class: className = '',
  initialOrder = 'asc',
}: SortProps) {
  const isSorted = sort === name;
  const next = isSorted ? (order === 'asc' ? 'desc' : 'asc') : initialOrder;
  return (
    <th scope="col" class={className} aria-sort={isSorted ? (order === 'asc' ? 'ascending' : 'descending') : undefined}>
      <button type="button" class="sort" onClick={() => onSort(name, next)}>
        {children}
        <span class={isSorted ? 'sort-mark' : 'sort-mark off'}>
          <Icon name={isSorted && order === 'asc' ? 'up' : 'down'} />
        </span>
      </button>
    </th>
  );
}

/** A search field with a magnifying glass. */
export function SearchBox({
  label,
  placeholder,
  value,
  onChange,
}: {
  label: string;
  placeholder: string;
  value: string;
  onChange: (value: string) => void;
}) {
  return (
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
}

/** A page of a list from the service. The previous page stays visible, dimmed, while the next one loads. */
export function PagedList<T>({
  state,
  lines,
  names,
  onPage,
  empty,
  children,
}: {
  state: Loaded<ApiResponse<T[]>>;
  lines: number;
  names: [string, string];
  /** Goes to a page; without a number, to the first one. */
  onPage: (page?: number) => void;
  /** Shown if the list has no items. */
  empty: ComponentChildren;
  children: (items: T[]) => ComponentChildren;
}) {
  return (
    <AsyncContent state={state} lines={lines}>
      {({ data, pagination }) => (
        <div aria-busy={state.isLoading} class={state.isLoading ? 'stale' : undefined}>
          {data.length > 0 ? children(data) : pagination.totalItems > 0 && <PageOutOfRange onFirst={() => onPage()} />}
          {/* Rendered before it has a text, so that screen readers announce the text. */}
          <div role="status">{pagination.totalItems === 0 && empty}</div>
          <Pagination pagination={pagination} names={names} onPage={onPage} />
        </div>
      )}
    </AsyncContent>
  );
}

/** Copies text to the clipboard. */
export function CopyButton({ text, children }: { text: string; children: ComponentChildren }) {
  const [isCopied, setCopied] = useState(false);
  const [isManual, setManual] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Browsers allow it only over https, and the operator may have denied the permission.
      setManual(true);
      return;
    }
    setCopied(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setCopied(false), 2000);
  };
  if (isManual)
    return <input readOnly class="by-hand" aria-label="Copy this text" value={text} ref={(input) => input?.select()} />;
  return (
    <button type="button" class="button" onClick={() => void copy()}>
      <Icon name={isCopied ? 'check' : 'copy'} /> <span aria-live="polite">{isCopied ? 'Copied' : children}</span>
    </button>
  );
}
