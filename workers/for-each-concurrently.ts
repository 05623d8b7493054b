/** Runs `work` on all items, at most `concurrency` at a time. */
export async function forEachConcurrently<T>(
  items: T[],
  concurrency: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const queue = items[Symbol.iterator]();
  const results = await Promise.allSettled(
    Array.from({ length: Math.min(concurrency, items.length) }, async () => {
      for (const item of queue) await work(item);
    }),
  );
  // The job fails only after all work in progress has ended.
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}
