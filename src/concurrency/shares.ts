/** The tasks of a school or of a user. */
export interface Share {
  running: number;
  waiting: number;
  /** Of shares that run equally many tasks, the lowest comes first. Each started task adds one. */
  startTag: number;
}

export const newShare = (startTag: number): Share => ({ running: 0, waiting: 0, startTag });

export const inProgress = ({ running, waiting }: Share): number => running + waiting;

export interface Shares<Key, S extends Share> {
  of: (key: Key) => S;
  /** Counts a task that gets a slot. */
  start: (share: S) => void;
  /** Forgets shares that a new one would equal, so that idle schools take no memory. */
  forgetIdle: () => void;
}

/** Fewer shares are not worth a search for idle ones. */
const minForgotten = 32;

/**
 * Counts started tasks as in start-time fair queueing. A key that returns continues with its tag if others have not
 * caught up, and with the current one otherwise. So it neither saves up slots while it is away, nor gains one by going
 * away.
 */
export function shares<Key, S extends Share>(create: (startTag: number) => S): Shares<Key, S> {
  const byKey = new Map<Key, S>();
  /** The highest tag with which a task has started: no tag is higher by more than one. */
  let clock = 0;
  let forgetAt = minForgotten;
  return {
    of(key) {
      const known = byKey.get(key);
      if (known) {
        if (inProgress(known) === 0) known.startTag = Math.max(known.startTag, clock);
        return known;
      }
      const share = create(clock);
      byKey.set(key, share);
      return share;
    },
    start(share) {
      clock = Math.max(clock, share.startTag);
      share.startTag++;
    },
    forgetIdle() {
      if (byKey.size < forgetAt) return;
      for (const [key, share] of byKey) if (inProgress(share) === 0 && share.startTag <= clock) byKey.delete(key);
      forgetAt = Math.max(minForgotten, 2 * byKey.size);
    },
  };
}

/** Compares two shares: negative if the first one gets the next slot. */
export const compareShares = (a: Share, b: Share): number => a.running - b.running || a.startTag - b.startTag;

/**
 * The waiting task that a full queue refuses: the newest one of the school, and of its users the one, with the most
 * tasks in progress.
 * @param waiting  in the order of arrival
 * @param sharesOf  the shares of a task, that of the school first
 */
export function newestOfBusiest<Task>(
  waiting: Iterable<Task>,
  sharesOf: (task: Task) => readonly Share[],
): Task | undefined {
  let found: Task | undefined;
  // From the newest to the oldest, so that of equals the newest is found.
  for (const task of [...waiting].reverse()) {
    if (found === undefined) {
      found = task;
      continue;
    }
    const current = sharesOf(found);
    const difference = sharesOf(task)
      .map((share, index) => inProgress(share) - (current[index] ? inProgress(current[index]) : 0))
      .find((each) => each !== 0);
    if (difference !== undefined && difference > 0) found = task;
  }
  return found;
}
