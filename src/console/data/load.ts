import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { request } from './api.ts';
import { type Failure, isAbort, type Query, toFailure } from './http.ts';

/** Earlier responses, shown at once when the operator returns to a screen, while they are loaded again. */
const cache = new Map<string, unknown>();

/** Called at logout: the next operator must not see the previous one's data. */
export const clearCache = (): void => cache.clear();

export interface Loaded<T> {
  data: T | undefined;
  failure: Failure | undefined;
  /** Whether a newer response is being loaded. */
  isLoading: boolean;
  reload: () => Promise<void>;
  /** Replaces the data, for example with the response to a change. */
  set: (data: T) => void;
}

/**
 * Loads data, and loads it again when `key` changes. A request that is no longer needed is aborted.
 * @param options.isUncached   never shows cached data: for forms
 * @param options.keepPrevious shows the data of the previous key until the next arrives: for lists
 */
export function useLoad<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  { isUncached = false, keepPrevious = false } = {},
): Loaded<T> {
  const cached = (): T | undefined => (isUncached ? undefined : (cache.get(key) as T | undefined));
  const [state, setState] = useState<{ key: string; data: T | undefined; failure?: Failure; isLoading: boolean }>(
    () => ({
      key,
      data: cached(),
      isLoading: true,
    }),
  );
  const current = useRef<AbortController>(undefined);
  const loader = useRef(load);
  loader.current = load;

  const reload = useCallback(async () => {
    current.current?.abort();
    const controller = new AbortController();
    current.current = controller;
    setState((now) => ({ key, data: now.key === key || keepPrevious ? now.data : cached(), isLoading: true }));
    try {
      const data = await loader.current(controller.signal);
      if (controller.signal.aborted) return;
      if (!isUncached) cache.set(key, data);
      setState({ key, data, isLoading: false });
    } catch (thrown) {
      if (controller.signal.aborted || isAbort(thrown)) return;
      setState((now) => ({ key, data: now.data, failure: toFailure(thrown), isLoading: false }));
    }
  }, [key]);

  useEffect(() => {
    void reload();
    return () => current.current?.abort();
  }, [reload]);

  const set = (data: T) => {
    if (!isUncached) cache.set(key, data);
    setState({ key, data, isLoading: false });
  };
  // The first render after the key changed runs before the effect: it must not show the data of the old key.
  const isStale = state.key !== key && !keepPrevious;
  return {
    data: isStale ? cached() : state.data,
    failure: isStale ? undefined : state.failure,
    isLoading: isStale || state.isLoading,
    reload,
    set,
  };
}

/** Loads the data of a path of the API. The path and the query are the key. */
export const useData = <T>(path: string, query: Query = {}, options = {}): Loaded<T> =>
  useLoad(
    `${path} ${JSON.stringify(query)}`,
    async (signal) => (await request<T>('GET', path, { query, signal })).data,
    options,
  );

/** Reads all pages of a list. */
export async function loadAll<T>(path: string, signal: AbortSignal): Promise<T[]> {
  const items: T[] = [];
  for (let page = 1; ; page++) {
    const { data, pagination } = await request<T[]>('GET', path, { query: { page, pageSize: 100 }, signal });
    items.push(...data);
    if (page >= pagination.totalPages) return items;
  }
}

/** Returns `value` once it has not changed for `delayMs`. */
export function useDebounced<T>(value: T, delayMs: number): T {
  const [debounced, setDebounced] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDebounced(value), delayMs);
    return () => clearTimeout(timer);
  }, [value, delayMs]);
  return debounced;
}
