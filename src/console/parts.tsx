import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Failure } from './http.ts';
import { Icon } from './icons.tsx';
import type { Loaded } from './load.ts';
import { number } from './format.tsx';

/** Names the page in the browser’s tab. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Operators’ console`;
  }, [title]);
}

/** The head of a screen. */
export function Head({
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
  useTitle(title);
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

const tones: Record<string, string> = {
  active: 'good',
  trialing: 'info',
  suspended: 'warn',
  past_due: 'warn',
  deleted: 'bad',
  cancelled: 'bad',
};

export function Badge({ value, tone }: { value: string; tone?: string }) {
  return <span class={`badge ${tone ?? tones[value] ?? ''}`}>{value.replaceAll('_', ' ')}</span>;
}

/** What is there while the first answer is on its way. */
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

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** What went wrong, and a way to try again; where the service said when, not before. */
export function Problem({ failure, onRetry }: { failure: Failure; onRetry?: () => void }) {
  const [seconds, setSeconds] = useState(failure.retryAfter ?? 0);
  useEffect(() => {
    setSeconds(failure.retryAfter ?? 0);
    if (!failure.retryAfter) return;
    const timer = setInterval(() => setSeconds((left) => Math.max(0, left - 1)), 1000);
    return () => clearInterval(timer);
  }, [failure]);
  return (
    <div class="problem" role="alert">
      <Icon name="warning" />
      <div>
        <p>{failure.message}</p>
        {failure.requestId && failure.status >= 500 && <p class="small">Request {failure.requestId}</p>}
      </div>
      {onRetry && (
        <button type="button" class="button small-button" disabled={seconds > 0} onClick={onRetry}>
          {seconds > 0 ? `Try again in ${seconds} s` : 'Try again'}
        </button>
      )}
    </div>
  );
}

/** What was read, or that it is on its way, or why it is not there. */
export function Show<T>({
  what,
  children,
  lines = 4,
}: {
  what: Loaded<T>;
  children: (data: T) => ComponentChildren;
  lines?: number;
}) {
  return (
    <>
      {what.failure && <Problem failure={what.failure} onRetry={() => void what.reload()} />}
      {what.data !== undefined ? children(what.data) : !what.failure && <Skeleton lines={lines} />}
    </>
  );
}

interface PagerProps {
  pagination: { page: number; pageSize: number; totalItems: number; totalPages: number };
  onPage: (page: number) => void;
  /** What is counted: one and several of them. */
  names: [string, string];
}

/** Which part of a list this is, and the way to the next. */
export function Pager({ pagination: { page, pageSize, totalItems, totalPages }, onPage, names }: PagerProps) {
  const first = (page - 1) * pageSize + 1;
  const text =
    totalItems === 0
      ? `No ${names[1]}`
      : totalPages <= 1 || first > totalItems
        ? `${number(totalItems)} ${names[totalItems === 1 ? 0 : 1]}`
        : `${number(first)} to ${number(Math.min(totalItems, first + pageSize - 1))} of ${number(totalItems)} ${names[1]}`;
  return (
    <nav class="pager" aria-label="Pages">
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

/** A page that an old address names, of a list that has become shorter. */
export const PastEnd = ({ onFirst }: { onFirst: () => void }) => (
  <Empty title="The list is shorter by now.">
    <button type="button" class="button" onClick={onFirst}>
      To its first page
    </button>
  </Empty>
);

interface SortProps {
  name: string;
  sort: string;
  order: string;
  onSort: (name: string, order: 'asc' | 'desc') => void;
  children: ComponentChildren;
  class?: string;
  /** How it is sorted first. */
  first?: 'asc' | 'desc';
}

/** The head of a column that the list can be sorted by. */
export function SortHead({ name, sort, order, onSort, children, class: more = '', first = 'asc' }: SortProps) {
  const isSorted = sort === name;
  const next = isSorted ? (order === 'asc' ? 'desc' : 'asc') : first;
  return (
    <th scope="col" class={more} aria-sort={isSorted ? (order === 'asc' ? 'ascending' : 'descending') : undefined}>
      <button type="button" class="sort" onClick={() => onSort(name, next)}>
        {children}
        <span class={isSorted ? 'sort-mark' : 'sort-mark off'}>
          <Icon name={isSorted && order === 'asc' ? 'up' : 'down'} />
        </span>
      </button>
    </th>
  );
}

/** Copies a text, and says so on its button. */
export function Copy({ text, children }: { text: string; children: ComponentChildren }) {
  const [isDone, setDone] = useState(false);
  const [isByHand, setByHand] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Browsers allow it over https only, and when the reader has not forbidden it.
      setByHand(true);
      return;
    }
    setDone(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setDone(false), 2000);
  };
  if (isByHand)
    return (
      <input readOnly class="by-hand" aria-label="To copy by hand" value={text} ref={(input) => input?.select()} />
    );
  return (
    <button type="button" class="button" onClick={() => void copy()}>
      <Icon name={isDone ? 'check' : 'copy'} /> <span aria-live="polite">{isDone ? 'Copied' : children}</span>
    </button>
  );
}
