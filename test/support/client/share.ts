/**
 * FULL=1 runs the long form of the suite, before a release: every value against every endpoint, and 20 random requests to
 * each. The short form sends each value to a share of the endpoints, so that every endpoint still meets some of the
 * values.
 */
export const isFull = process.env['FULL'] === '1';

/**
 * The endpoints that test number `part` of a table attacks: every `parts`-th, or all of them in the long form. The
 * tests with the numbers 0 to `parts - 1` together attack all.
 */
export function share<T>(all: readonly T[], part: number, parts: number): T[] {
  const taken = all.filter((_, index) => index % parts === part % parts);
  return isFull || taken.length === 0 ? [...all] : taken;
}

/** The rows of a table of tests, each with its number. */
export const numbered = <T>(values: readonly T[]): [T, number][] => values.map((value, index) => [value, index]);
