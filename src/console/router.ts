import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { confirm, dismissConfirmations } from './parts/dialogs.tsx';

const base = '/console';

/** The current address, relative to /console. */
export const route = signal(readLocation());

function readLocation(): { path: string; search: URLSearchParams } {
  return {
    path: location.pathname.slice(base.length).replace(/\/+$/, '') || '/',
    search: new URLSearchParams(location.search),
  };
}

/** The full path for a path relative to /console. */
export const href = (path: string): string => base + (path === '/' ? '/' : path);

// Unsaved changes

const dirtyForms = new Set<object>();
/** Held, in shared mode, by every tab with unsaved changes. */
const unsavedLock = 'console.unsaved';

const warnBeforeUnload = (event: BeforeUnloadEvent): void => event.preventDefault();

/** While `isDirty`, asks before the changes are lost: on navigation, on unload, and at logout in another tab. */
export function useUnsavedChangesGuard(isDirty: boolean): void {
  useEffect(() => {
    if (!isDirty) return;
    const form = {};
    const release = new AbortController();
    dirtyForms.add(form);
    addEventListener('beforeunload', warnBeforeUnload);
    if ('locks' in navigator) {
      const hold = () => new Promise<void>((resolve) => release.signal.addEventListener('abort', () => resolve()));
      // Rejects if it is aborted before the lock is granted.
      navigator.locks.request(unsavedLock, { mode: 'shared', signal: release.signal }, hold).catch(() => undefined);
    }
    return () => {
      dirtyForms.delete(form);
      release.abort();
      if (dirtyForms.size === 0) removeEventListener('beforeunload', warnBeforeUnload);
    };
  }, [isDirty]);
}

/** Whether any tab has unsaved changes. */
export async function hasUnsavedChanges(): Promise<boolean> {
  if (dirtyForms.size > 0) return true;
  return 'locks' in navigator && ((await navigator.locks.query()).held ?? []).some(({ name }) => name === unsavedLock);
}

let pendingConfirmation: Promise<boolean> | undefined;

/** Asks before unsaved changes are lost. Repeated attempts to leave share one dialog. */
export const confirmLeave = async (): Promise<boolean> =>
  dirtyForms.size === 0 ||
  (pendingConfirmation ??= confirm({
    title: 'Leave without saving?',
    text: 'You have unsaved changes on this page. They will be lost if you leave.',
    confirmLabel: 'Leave',
    isDangerous: true,
    cancelLabel: 'Stay',
  }).finally(() => {
    pendingConfirmation = undefined;
  }));

/** Makes a function that closes a form, but asks before it loses unsaved changes. */
export const closeUnlessDirty = (close: () => void) => () => {
  void confirmLeave().then((isLeaving) => {
    if (isLeaving) close();
  });
};

// Navigation

/**
 * The position of the current history entry, kept in `history.state`. It determines how far to go back when the operator
 * stays on a page with unsaved changes after the browser has already changed the entry.
 */
let index = (history.state as { index?: number } | null)?.index ?? 0;
history.replaceState({ index }, '');

/** Goes to another address, unless there are unsaved changes and the operator stays. */
export async function navigate(to: string, { replace = false, force = false } = {}): Promise<void> {
  if (!force && !replace && !(await confirmLeave())) return;
  if (replace) history.replaceState({ index }, '', href(to));
  else history.pushState({ index: ++index }, '', href(to));
  const isOtherPath = readLocation().path !== route.value.path;
  route.value = readLocation();
  if (isOtherPath) scrollTo(0, 0);
}

/** Replaces the query parameters of the address, without a new history entry. */
export function setSearch(search: Record<string, string | undefined>): void {
  const params = new URLSearchParams(Object.entries(search).filter((entry): entry is [string, string] => !!entry[1]));
  const text = params.toString();
  void navigate(route.value.path + (text ? `?${text}` : ''), { replace: true });
}

/** Whether the next popstate event is our own return to the guarded page. */
let isReturning = false;

addEventListener('popstate', ({ state }: PopStateEvent) => {
  const to = (state as { index?: number } | null)?.index ?? 0;
  if (isReturning) {
    isReturning = false;
    return;
  }
  if (dirtyForms.size === 0) {
    index = to;
    dismissConfirmations();
    route.value = readLocation();
    return;
  }
  const steps = to - index;
  if (steps === 0) return;
  isReturning = true;
  history.go(-steps);
  void confirmLeave().then((isLeaving) => {
    if (!isLeaving) return;
    dirtyForms.clear();
    history.go(steps);
  });
});

// Clicks on links within the console navigate without loading the page again.
document.addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
    return;
  const link = event.target instanceof Element ? event.target.closest('a') : null;
  if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin || link.hash) return;
  if (link.pathname !== base && !link.pathname.startsWith(`${base}/`)) return;
  event.preventDefault();
  void navigate(link.pathname.slice(base.length) + link.search || '/');
});

/** Matches a path against a pattern like `/schools/:id`. @returns the parameters, or undefined if it does not match */
export function match(pattern: string, path: string): Record<string, string> | undefined {
  const [patternParts, pathParts] = [pattern.split('/'), path.split('/')];
  if (patternParts.length !== pathParts.length) return undefined;
  const params: Record<string, string> = {};
  for (const [n, part] of patternParts.entries()) {
    const value = pathParts[n] ?? '';
    if (part.startsWith(':')) {
      try {
        params[part.slice(1)] = decodeURIComponent(value);
      } catch {
        // A malformed escape such as %E0%A4%A.
        return undefined;
      }
    } else if (part !== value) return undefined;
  }
  return params;
}
