import { type Signal, signal } from '@preact/signals';
import { operator } from './session.ts';

/** One signal per key, so that all components that use a setting see its change. */
const settings = new Map<string, Signal<unknown>>();

/**
 * A setting of the operator, kept in the browser (decision 0047). The key has the id of the operator, because several
 * may use one browser.
 */
export function useStored<T>(name: string, initial: T): [T, (value: T) => void] {
  const key = `console.${operator.value?.id ?? 0}.${name}`;
  const setting = (settings.get(key) ?? signal(read(key) ?? initial)) as Signal<T>;
  settings.set(key, setting);
  const store = (value: T) => {
    setting.value = value;
    try {
      localStorage.setItem(key, JSON.stringify(value));
    } catch {
      // The browser may forbid storage. The setting then lasts until the page is left.
    }
  };
  return [setting.value, store];
}

function read(key: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(key) ?? 'null');
  } catch {
    return null;
  }
}
