/** Responses per second, and quantiles of their latency in milliseconds. */
export interface Measured {
  answers: number;
  perSecond: number;
  p50: number;
  p99: number;
}

/** The value below which this part of the values lies. NaN without values. */
export function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? NaN;
}

export const median = (values: readonly number[]): number => quantile(values, 0.5);

/** Summarizes the latencies of the responses of a period. Both are in milliseconds. */
export const summarize = (latencies: readonly number[], periodMs: number): Measured => ({
  answers: latencies.length,
  perSecond: (latencies.length / periodMs) * 1000,
  p50: median(latencies),
  p99: quantile(latencies, 0.99),
});

/** Runs `work` and measures how long it takes, in milliseconds. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** Picks a random element. */
export function pick<T>(values: readonly T[]): T {
  const value = values[Math.floor(Math.random() * values.length)];
  if (value === undefined) throw new Error('There is nothing to pick from.');
  return value;
}

/** A function that picks random elements: every second time one of the first hundredth of them, at least one. */
export function skewedPick<T>(values: readonly T[]): () => T {
  const frequent = values.slice(0, Math.ceil(values.length / 100));
  return () => pick(Math.random() < 0.5 ? frequent : values);
}
