import { inspect } from 'node:util';
import { observed as ofProgram } from './observed.ts';

const timeoutMs = 50_000;
const maxLength = 2000;

/**
 * Calls `look` every 20 ms until it returns something other than undefined, and returns that. The type excludes
 * `false`, which would end the wait.
 * @throws after 50 s, before the test itself times out, so that a failing test leaves nothing running: with what it
 *   waited for, and with the result of the last query or request
 */
export async function until<T extends object | string | number | true | null>(
  look: () => Promise<T | undefined> | T | undefined,
): Promise<T> {
  // The programs of `test` have no `shared`.
  const observed = 'shared' in globalThis ? shared.observed : ofProgram;
  observed.last = undefined;
  for (const end = performance.now() + timeoutMs; performance.now() < end;) {
    const found = await look();
    if (found !== undefined) return found;
    await new Promise((done) => setTimeout(done, 20));
  }
  const last = inspect(observed.last, { depth: 5, breakLength: 120 }).slice(0, maxLength);
  throw new Error(
    `Gave up after ${String(timeoutMs / 1000)} s. Waited for:\n${String(look)}\nThe last query or request returned: ${last}`,
  );
}
