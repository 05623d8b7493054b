/** The tasks of a school or of a user. */
export interface Share {
  running: number;
  waiting: number;
  /** Of shares that run equally many tasks, the lowest comes first. Each started task adds one. */
  startTag: number;
}

const newShare = (startTag: number): Share => ({ running: 0, waiting: 0, startTag });

export const inProgress = ({ running, waiting }: Share): number => running + waiting;

interface Shares<Key, S extends Share> {
  /** The share of a key. A new one is kept only while it has tasks, so use it at once. */
  of: (key: Key) => S;
  /** Counts a task that gets a slot. */
  start: (share: S) => void;
}

/** Fewer shares are not worth a search for idle ones. */
const minForgotten = 32;

/**
 * Counts started tasks as in start-time fair queueing. A key that returns continues with its tag if others have not
 * caught up, and with the current one otherwise. So it neither saves up slots while it is away, nor gains one by going
 * away.
 */
function shares<Key, S extends Share>(create: (startTag: number) => S): Shares<Key, S> {
  const byKey = new Map<Key, S>();
  /** The highest tag with which a task has started: no tag is higher by more than one. */
  let clock = 0;
  let forgetAt = minForgotten;
  /** Forgets shares that a new one would equal, so that idle schools take no memory. */
  function forgetIdle(): void {
    if (byKey.size < forgetAt) return;
    for (const [key, share] of byKey) if (inProgress(share) === 0 && share.startTag <= clock) byKey.delete(key);
    forgetAt = Math.max(minForgotten, 2 * byKey.size);
  }
  return {
    of(key) {
      const known = byKey.get(key);
      if (known) {
        if (inProgress(known) === 0) known.startTag = Math.max(known.startTag, clock);
        return known;
      }
      forgetIdle();
      const share = create(clock);
      byKey.set(key, share);
      return share;
    },
    start(share) {
      clock = Math.max(clock, share.startTag);
      share.startTag++;
    },
  };
}

/** Compares two shares: negative if the first one gets the next slot. */
const compareShares = (a: Share, b: Share): number => a.running - b.running || a.startTag - b.startTag;

/** The tasks of a user. */
export interface UserShare<Task> extends Share {
  /** The waiting tasks, in the order of arrival. */
  queue: Set<Task>;
}

/** The tasks of a school. */
export interface SchoolShare<Task> extends Share {
  users: Shares<number | string | undefined, UserShare<Task>>;
  waitingUsers: Set<UserShare<Task>>;
}

/** The school and the user that a task is counted for. */
export interface Owned<Task, School extends SchoolShare<Task> = SchoolShare<Task>> {
  school: School;
  user: UserShare<Task>;
}

/** Waiting and running tasks, in which the schools take turns, and in a school its users. */
export interface FairLine<Task, School extends SchoolShare<Task>> {
  schools: Shares<number | string | undefined, School>;
  /** In the order of arrival. */
  waiting: ReadonlySet<Task>;
  waitingSchools: ReadonlySet<School>;
  add: (task: Task) => void;
  remove: (task: Task) => void;
  /** Counts a task that runs, and one that has ended. */
  start: (owner: Owned<Task, School>) => void;
  end: (owner: Owned<Task, School>) => void;
  /**
   * The waiting task that gets the next slot: of the school that runs the fewest, then of the one with the lowest tag;
   * in the school, of a user in the same way. Only the task that has waited the longest of each user can be next.
   */
  next: (mayStart: (task: Task) => boolean) => Task | undefined;
}

/** @param create  completes a new share of a school */
export function fairLine<Task extends Owned<Task, School>, School extends SchoolShare<Task>>(
  create: (share: SchoolShare<Task>) => School,
): FairLine<Task, School> {
  const schools = shares<number | string | undefined, School>((startTag) =>
    create({
      ...newShare(startTag),
      users: shares((tag) => ({ ...newShare(tag), queue: new Set() })),
      waitingUsers: new Set(),
    }),
  );
  const waiting = new Set<Task>();
  const waitingSchools = new Set<School>();
  return {
    schools,
    waiting,
    waitingSchools,
    add(task) {
      const { school, user } = task;
      waiting.add(task);
      user.queue.add(task);
      school.waiting++;
      user.waiting++;
      waitingSchools.add(school);
      school.waitingUsers.add(user);
    },
    remove(task) {
      const { school, user } = task;
      waiting.delete(task);
      user.queue.delete(task);
      school.waiting--;
      user.waiting--;
      if (user.waiting === 0) school.waitingUsers.delete(user);
      if (school.waiting === 0) waitingSchools.delete(school);
    },
    start({ school, user }) {
      school.running++;
      user.running++;
      schools.start(school);
      school.users.start(user);
    },
    end({ school, user }) {
      school.running--;
      user.running--;
    },
    next(mayStart) {
      let next: Task | undefined;
      for (const { waitingUsers } of waitingSchools)
        for (const { queue } of waitingUsers) {
          const [task] = queue;
          if (!task || !mayStart(task)) continue;
          if (!next || (compareShares(task.school, next.school) || compareShares(task.user, next.user)) < 0)
            next = task;
        }
      return next;
    },
  };
}

/**
 * The waiting task that a full queue refuses: the newest one of the school, and of its users the one, with the most
 * tasks in progress.
 * @param waiting  in the order of arrival
 */
export function newestOfBusiest<Task extends { school: Share; user: Share }>(
  waiting: Iterable<Task>,
): Task | undefined {
  let found: Task | undefined;
  for (const task of waiting)
    if (
      !found ||
      (inProgress(task.school) - inProgress(found.school) || inProgress(task.user) - inProgress(found.user)) >= 0
    )
      found = task;
  return found;
}
