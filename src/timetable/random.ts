/** The next state of xorshift32 (Marsaglia 2003). Never 0, and the same on every machine. */
export function xorshift(state: number): number {
  let next = state;
  next ^= next << 13;
  next ^= next >>> 17;
  next ^= next << 5;
  return next;
}

/** Random numbers from 0 to 2³² - 1. */
export function randomFrom(seed: number): () => number {
  let state = (Math.imul(seed, 0x9e3779b1) ^ 0x2545f491) | 0 || 1;
  return () => (state = xorshift(state)) >>> 0;
}
