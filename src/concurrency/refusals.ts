/** Why a queue refuses a task: its limit is reached, the task would wait too long, or it has waited too long. */
export type RefusalReason = 'limit' | 'estimate' | 'timeout';

const counts = new Map<string, { queue: string; reason: RefusalReason; count: number }>();

/** Counts a task that a queue of this process has refused. */
export function countRefusal(queue: string, reason: RefusalReason): void {
  const key = `${queue} ${reason}`;
  const entry = counts.get(key) ?? { queue, reason, count: 0 };
  entry.count++;
  counts.set(key, entry);
}

/** The refused tasks of this process since its start, for the metrics. */
export const refusalCounts = (): readonly { queue: string; reason: RefusalReason; count: number }[] => [
  ...counts.values(),
];
