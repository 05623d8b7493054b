/** A random number generator with a seed: each call returns a number from 0 to below 1. */
export type Random = () => number;

/** @see https://github.com/bryc/code/blob/master/jshash/PRNGs.md (mulberry32) */
export function random(seed: number): Random {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export const pick = <T>(from: readonly T[], n: Random): T | undefined => from[Math.floor(n() * from.length)];

/** A whole number from 1 to `max`. */
export const upTo = (max: number, n: Random): number => 1 + Math.floor(n() * max);

export const day = (date: Date): string => date.toISOString().slice(0, 10);

/** The date this many days from today. */
export const inDays = (days: number): string => day(new Date(Date.now() + days * 86_400_000));
