import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Failure } from '../data/http.ts';
import { Icon } from './icons.tsx';
import type { Loaded } from '../data/load.ts';
import { href } from '../router.ts';
import { Button } from './button.tsx';

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

/** A line in a list of facts (`<dl class="facts">`). */
export const Fact = ({ label, children }: { label: string; children: ComponentChildren }) => (
  <>
    <dt>{label}</dt>
    <dd>{children}</dd>
  </>
);

/** A figure in a list of figures (`<dl class="figures">`). */
export function Statistic({ label, value, to, note }: { label: string; value: string; to?: string; note?: string }) {
  return (
    <div class="figure">
      <Fact label={label}>
        {to ? <a href={href(to)}>{value}</a> : value}
        {note && <small>{note}</small>}
      </Fact>
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
        <Button
          label={seconds > 0 ? `Try again in ${seconds} s` : 'Try again'}
          isSmall
          isDisabled={seconds > 0}
          onClick={onRetry}
        />
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

interface SegmentsProps<T extends string> {
  legend: string;
  name: string;
  options: readonly (readonly [value: T, label: string])[];
  value: string;
  onChange: (value: T) => void;
}

/** A choice between a few values that are all visible. */
export const Segments = <T extends string>({ legend, name, options, value, onChange }: SegmentsProps<T>) => (
  <fieldset class="segments">
    <legend class="hidden">{legend}</legend>
    {options.map(([option, label]) => (
      <label key={option}>
        <input type="radio" name={name} checked={value === option} onChange={() => onChange(option)} />
        <span>{label}</span>
      </label>
    ))}
  </fieldset>
);

interface TabsProps {
  label: string;
  /** The path of the tabs. */
  base: string;
  tabs: readonly (readonly [path: string, label: string])[];
  current: string;
}

/** Links to the tabs of a screen. */
export const Tabs = ({ label, base, tabs, current }: TabsProps) => (
  <nav class="tabs" aria-label={label}>
    {tabs.map(([path, name]) => (
      <a key={path} href={href(path ? `${base}/${path}` : base)} aria-current={current === path ? 'page' : undefined}>
        {name}
      </a>
    ))}
  </nav>
);

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
