import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { asFailure, type Failure, isGivenUp } from './http.ts';

/** What was read before, to be shown at once when the reader comes back; it is read again all the same. */
const cache = new Map<string, unknown>();

/** Nothing of one operator is for the next. */
export const forget = (): void => cache.clear();

export interface Loaded<T> {
  data: T | undefined;
  failure: Failure | undefined;
  /** Whether a newer answer is on its way. */
  isLoading: boolean;
  reload: () => Promise<void>;
  /** Takes what a change answered. */
  set: (data: T) => void;
}

/**
 * Reads what `key` names, again when it changes; an answer that nobody waits for any more is given up.
 * @param options.isFresh  for what is edited: never from memory
 * @param options.keep     shows what was there while the next is read, as lists do
 */
export function useLoad<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  { isFresh = false, keep = false } = {},
): Loaded<T> {
  const remembered = (): T | undefined => (isFresh ? undefined : (cache.get(key) as T | undefined));
  const [state, setState] = useState<{ key: string; data: T | undefined; failure?: Failure; isLoading: boolean }>(
    () => ({
      key,
      data: remembered(),
      isLoading: true,
    }),
  );
  const run = useRef<AbortController>(undefined);
  const loader = useRef(load);
  loader.current = load;

  const reload = useCallback(async () => {
    run.current?.abort();
    const controller = new AbortController();
    run.current = controller;
    setState((now) => ({ key, data: now.key === key || keep ? now.data : remembered(), isLoading: true }));
    try {
      const data = await loader.current(controller.signal);
      if (controller.signal.aborted) return;
      if (!isFresh) cache.set(key, data);
      setState({ key, data, isLoading: false });
    } catch (thrown) {
      if (controller.signal.aborted || isGivenUp(thrown)) return;
      setState((now) => ({ key, data: now.data, failure: asFailure(thrown), isLoading: false }));
    }
  }, [key]);

  useEffect(() => {
    void reload();
    return () => run.current?.abort();
  }, [reload]);

  const set = (data: T) => {
    if (!isFresh) cache.set(key, data);
    setState({ key, data, isLoading: false });
  };
  // The render between a new key and its effect must not show what belongs to the old one.
  const isOld = state.key !== key && !keep;
  return {
    data: isOld ? remembered() : state.data,
    failure: isOld ? undefined : state.failure,
    isLoading: isOld || state.isLoading,
    reload,
    set,
  };
}

/** A value that has stood still for a while. */
export function useSettled<T>(value: T, milliseconds: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}
