import { addAbortListener } from 'node:events';
import type { ApiError } from '../domain/errors.ts';
import { countRefusal } from './refusals.ts';
import { compareShares, inProgress, newestOfBusiest, newShare, type Share, type Shares, shares } from './shares.ts';

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

interface SchoolShare extends Share {
  users: Shares<RequestOwner['userId'], Share>;
}

interface Task {
  school: SchoolShare;
  user: Share;
  start: () => void;
  refuse: (error: ApiError) => void;
}

/** Opens a queue of this process. */
export function fairQueue({ name, maxRunning = {}, maxInProgress, refusal }: FairQueueOptions): FairQueue {
  const schools = shares<RequestOwner['tenantId'], SchoolShare>((startTag) => ({
    ...newShare(startTag),
    users: shares(newShare),
  }));
  const total = newShare(0);
  /** In the order of arrival. */
  const waiting = new Set<Task>();

  const scopes = ({ school, user }: Task): [LimitScope, Share][] => [
    ['user', user],
    ['school', school],
    ['total', total],
  ];

  function count(task: Task, counter: 'running' | 'waiting', change: 1 | -1): void {
    for (const [, share] of scopes(task)) share[counter] += change;
  }

  function leave(task: Task): void {
    waiting.delete(task);
    count(task, 'waiting', -1);
  }

  function forgetIdle({ school }: Task): void {
    school.users.forgetIdle();
    schools.forgetIdle();
  }

  const mayRun = (task: Task) =>
    scopes(task).every(([scope, { running }]) => running < (maxRunning[scope] ?? Infinity));

  /** Whether a task runs before another one that has waited longer. */
  const isBefore = (task: Task, other: Task) =>
    (compareShares(task.school, other.school) || compareShares(task.user, other.user)) < 0;

  function startNext(): void {
    for (;;) {
      let next: Task | undefined;
      for (const task of waiting) if (mayRun(task) && (!next || isBefore(task, next))) next = task;
      if (!next) return;
      leave(next);
      count(next, 'running', 1);
      schools.start(next.school);
      next.school.users.start(next.user);
      next.start();
    }
  }

  /** Refuses a waiting task of the scope in which `task` is over a limit, if it is. */
  function refuseOneOver(task: Task): void {
    const [scope, over] =
      scopes(task).find(([each, share]) => inProgress(share) > (maxInProgress[each] ?? Infinity)) ?? [];
    if (!scope) return;
    const others = [...waiting].filter((other) => scopes(other).some(([, share]) => share === over));
    const refused = newestOfBusiest(others, ({ school, user }) => [school, user]) ?? task;
    leave(refused);
    countRefusal(name, 'limit');
    refused.refuse(refusal(scope));
  }

  async function enter({ tenantId, userId }: RequestOwner, waitSignal?: AbortSignal): Promise<Release> {
    const school = schools.of(tenantId);
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    const task: Task = { school, user: school.users.of(userId), start: () => resolve(undefined), refuse: reject };
    waiting.add(task);
    count(task, 'waiting', 1);
    refuseOneOver(task);
    startNext();
    const stopWaiting = () => {
      if (!waiting.has(task)) return;
      leave(task);
      reject(waitSignal?.reason as Error);
    };
    if (waitSignal?.aborted) stopWaiting();
    const listener = waitSignal && waiting.has(task) ? addAbortListener(waitSignal, stopWaiting) : undefined;
    try {
      await promise;
    } catch (error) {
      forgetIdle(task);
      throw error;
    } finally {
      listener?.[Symbol.dispose]();
    }
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      count(task, 'running', -1);
      startNext();
      forgetIdle(task);
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
