import { addAbortListener } from 'node:events';
import type { ApiError } from '../domain/errors.ts';
import { countRefusal } from './refusals.ts';
import { fairLine, inProgress, newestOfBusiest, type Owned, type SchoolShare } from './shares.ts';

/** The user, and their school, that work is counted for. */
export interface RequestOwner {
  /** Undefined for operators; `stranger` for everybody without a login, so that nobody uses the share of a school. */
  tenantId: number | 'stranger' | undefined;
  /** The id of the user, the hash of an API key, or the address of a stranger. */
  userId: number | string | undefined;
}

/** Work of the service itself. */
export const noOwner: RequestOwner = { tenantId: undefined, userId: undefined };

/** What a number of tasks is limited for. */
export type LimitScope = 'total' | 'school' | 'user';

const scopes = ['user', 'school', 'total'] as const satisfies LimitScope[];

export interface FairQueueOptions {
  /** The name of the queue in the metrics. */
  name: string;
  /** The most tasks that run at a time. A scope without a number has no limit. */
  maxRunning?: Partial<Record<LimitScope, number>>;
  /** The most tasks that run or wait. */
  maxInProgress: Partial<Record<LimitScope, number>>;
  /** Makes the error for a task that is over a limit of `maxInProgress`. */
  refusal: (scope: LimitScope) => ApiError;
}

/** Frees the slot that was taken. */
export type Release = () => void;

/**
 * Shares a limited resource between schools, and between the users of a school. See docs/decisions/0029-fair-queues.md.
 *
 * A school that is alone may use all slots. If tasks wait, the next free slot goes to the school that runs
 * the fewest tasks; of those, to the school with the lowest start tag; in the school, to a user in the same way. If
 * there are too many tasks, the newest waiting task of the user and the school with the most tasks is refused.
 */
export interface FairQueue {
  /**
   * Takes a slot, or waits for one.
   * @param waitSignal  ends the wait, with its reason
   * @throws the refusal, also after a wait; the reason of the signal
   */
  enter(owner: RequestOwner, waitSignal?: AbortSignal): Promise<Release>;
  /** Runs work in a slot. @throws as `enter`, or the error of the work */
  run<Result>(owner: RequestOwner, work: () => Promise<Result>, waitSignal?: AbortSignal): Promise<Result>;
}

interface Task extends Owned<Task> {
  start: () => void;
  refuse: (error: ApiError) => void;
}

/** Opens a queue of this process. */
export function fairQueue({ name, maxRunning = {}, maxInProgress, refusal }: FairQueueOptions): FairQueue {
  const line = fairLine<Task, SchoolShare<Task>>((share) => share);
  let running = 0;

  const runningOf: Record<LimitScope, (task: Task) => number> = {
    user: ({ user }) => user.running,
    school: ({ school }) => school.running,
    total: () => running,
  };
  const inProgressOf: Record<LimitScope, (task: Task) => number> = {
    user: ({ user }) => inProgress(user),
    school: ({ school }) => inProgress(school),
    total: () => running + line.waiting.size,
  };

  const mayRun = (task: Task) => scopes.every((scope) => runningOf[scope](task) < (maxRunning[scope] ?? Infinity));

  function startNext(): void {
    for (let next = line.next(mayRun); next; next = line.next(mayRun)) {
      line.remove(next);
      line.start(next);
      running++;
      next.start();
    }
  }

  /** Refuses a waiting task of the scope in which `task` is over a limit, if it is. */
  function refuseOneOver(task: Task): void {
    const scope = scopes.find((each) => inProgressOf[each](task) > (maxInProgress[each] ?? Infinity));
    if (!scope) return;
    const others = [...line.waiting].filter((other) => scope === 'total' || other[scope] === task[scope]);
    const refused = newestOfBusiest(others) ?? task;
    line.remove(refused);
    countRefusal(name, 'limit');
    refused.refuse(refusal(scope));
  }

  async function enter({ tenantId, userId }: RequestOwner, waitSignal?: AbortSignal): Promise<Release> {
    const school = line.schools.of(tenantId);
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    const task: Task = { school, user: school.users.of(userId), start: () => resolve(undefined), refuse: reject };
    line.add(task);
    refuseOneOver(task);
    startNext();
    const stopWaiting = () => {
      if (!line.waiting.has(task)) return;
      line.remove(task);
      reject(waitSignal?.reason as Error);
    };
    if (waitSignal?.aborted) stopWaiting();
    const listener = waitSignal && line.waiting.has(task) ? addAbortListener(waitSignal, stopWaiting) : undefined;
    try {
      await promise;
    } finally {
      listener?.[Symbol.dispose]();
    }
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      line.end(task);
      running--;
      startNext();
    };
  }

  return {
    enter,
    async run(owner, work, waitSignal) {
      const release = await enter(owner, waitSignal);
      try {
        return await work();
      } finally {
        release();
      }
    },
  };
}
