import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { confirm, dismiss } from './dialogs.tsx';

const base = '/console';

/** Where the reader is, below /console. */
export const place = signal(here());

function here(): { path: string; search: URLSearchParams } {
  return {
    path: location.pathname.slice(base.length).replace(/\/+$/, '') || '/',
    search: new URLSearchParams(location.search),
  };
}

/** The address of a place. */
export const href = (path: string): string => base + (path === '/' ? '/' : path);

/** Forms with edits that are not saved. */
const unsaved = new Set<object>();

const closing = (event: BeforeUnloadEvent): void => event.preventDefault();

/** Guards edits while `isDirty`: leaving asks first, in the page, in the browser, and at a log-out in another tab. */
export function useUnsaved(isDirty: boolean): void {
  useEffect(() => {
    if (!isDirty) return;
    const form = {};
    const saved = new AbortController();
    unsaved.add(form);
    addEventListener('beforeunload', closing);
    if ('locks' in navigator) {
      const held = () => new Promise<void>((done) => saved.signal.addEventListener('abort', () => done()));
      // Given up before it was had.
      navigator.locks.request('console.unsaved', { mode: 'shared', signal: saved.signal }, held).catch(() => undefined);
    }
    return () => {
      unsaved.delete(form);
      saved.abort();
      if (unsaved.size === 0) removeEventListener('beforeunload', closing);
    };
  }, [isDirty]);
}

/** Whether edits in any tab are not saved. */
export async function isSomethingUnsaved(): Promise<boolean> {
  if (unsaved.size > 0) return true;
  return (
    'locks' in navigator && ((await navigator.locks.query()).held ?? []).some(({ name }) => name === 'console.unsaved')
  );
}

let asked: Promise<boolean> | undefined;

/** Asks where edits would be lost; once, however often the reader tries to leave meanwhile. */
export const mayLeave = async (): Promise<boolean> =>
  unsaved.size === 0 ||
  (asked ??= confirm({
    title: 'Leave without saving?',
    text: 'Your changes on this page are not saved yet. They are lost when you leave.',
    action: 'Leave',
    isDangerous: true,
    cancel: 'Stay',
  }).finally(() => {
    asked = undefined;
  }));

let index = (history.state as { index?: number } | null)?.index ?? 0;
history.replaceState({ index }, '');

/** Goes to another place, unless edits would be lost and the reader stays. */
export async function go(to: string, { replace = false, force = false } = {}): Promise<void> {
  if (!force && !replace && !(await mayLeave())) return;
  if (replace) history.replaceState({ index }, '', href(to));
  else history.pushState({ index: ++index }, '', href(to));
  const isOther = here().path !== place.value.path;
  place.value = here();
  if (isOther) scrollTo(0, 0);
}

/** Changes the search of this place in the address, without an entry in the history. */
export function setSearch(search: Record<string, string | undefined>): void {
  const params = new URLSearchParams(Object.entries(search).filter((entry): entry is [string, string] => !!entry[1]));
  const text = params.toString();
  void go(place.value.path + (text ? `?${text}` : ''), { replace: true });
}

/** A step back that we take back ourselves is none. */
let isReturning = false;

addEventListener('popstate', ({ state }: PopStateEvent) => {
  const to = (state as { index?: number } | null)?.index ?? 0;
  if (isReturning) {
    isReturning = false;
    return;
  }
  if (unsaved.size === 0) {
    index = to;
    dismiss();
    place.value = here();
    return;
  }
  const steps = to - index;
  if (steps === 0) return;
  isReturning = true;
  history.go(-steps);
  void mayLeave().then((may) => {
    if (!may) return;
    unsaved.clear();
    history.go(steps);
  });
});

// Links are plain ones; those that stay within the console need no new page.
document.addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
    return;
  const link = event.target instanceof Element ? event.target.closest('a') : null;
  if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin || link.hash) return;
  if (link.pathname !== base && !link.pathname.startsWith(`${base}/`)) return;
  event.preventDefault();
  void go(link.pathname.slice(base.length) + link.search || '/');
});

/** What a path has where the pattern has `:name`; undefined where it does not fit. */
export function match(pattern: string, path: string): Record<string, string> | undefined {
  const [wanted, given] = [pattern.split('/'), path.split('/')];
  if (wanted.length !== given.length) return undefined;
  const found: Record<string, string> = {};
  for (const [n, part] of wanted.entries()) {
    const value = given[n] ?? '';
    if (part.startsWith(':')) {
      try {
        found[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return undefined;
      }
    } else if (part !== value) return undefined;
  }
  return found;
}
