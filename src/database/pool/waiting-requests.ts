import { addAbortListener } from 'node:events';
import { countRefusal, type RefusalReason } from '../../concurrency/refusals.ts';
import { fairLine, inProgress, newestOfBusiest, type Owned, type SchoolShare } from '../../concurrency/shares.ts';
import { ApiError } from '../../domain/errors.ts';
import { type Connections, isFree, type PooledConnection } from './connections.ts';
import type { RequestSource, ServerOf } from './request-source.ts';
import { serverShares } from './server-shares.ts';

/** The school and the user that a request is counted as, and the connections in the order of preference. */
export interface Requester extends Owned<Waiter, SchoolLoad> {
  order: readonly PooledConnection[];
  source: RequestSource;
}

/** The requests of a school, or of everybody without a session. */
interface SchoolLoad extends SchoolShare<Waiter> {
  /** How long a request uses a connection: a moving average. */
  serviceMs: number;
}

interface Waiter extends Requester {
  /** When it began to wait, by the clock of the process. */
  since: number;
  /** How long it waits for a preferred connection. */
  preferredWaitMs: number;
  take: (connection: PooledConnection) => void;
  refuse: (error: Error) => void;
}

export interface WaitOptions {
  size: number;
  connectionTimeoutMs: number;
  /** How long a request waits at least for a preferred connection of its school while others are free. */
  preferredWaitMs: number;
  /** Finds the server of a request if schools are on several servers. Those of one server leave the others a part. */
  serverOf?: ServerOf | undefined;
}

/** What requests got since the pool was opened. */
export interface WaitCounts {
  /** Checkouts of the first two connections of a school (the first if many schools are active), and of any other one. */
  preferred: number;
  fallback: number;
  /** Requests whose client was gone while they waited. */
  cancelledWaiting: number;
}

/**
 * A request waits as long for a preferred connection as so many requests of its school take, up to a limit. Requests that
 * take long usually lack plans. If they went on to other connections after a short wait, they would lack plans there too,
 * and no connection would ever have those that its schools need.
 */
const preferredWait = { requests: 4, maxMs: 300 };
/** At most this many requests wait for each connection. Each takes some kilobytes, and 64 kB with a large body. */
const maxWaitingPerConnection = 100;
/** The part of them that wait for the same server, if there are several. */
const maxWaitingOfServer = 0.8;
/** An unauthenticated client may invent longer names of schools. */
const maxNameLength = 100;

/** Operators and the service itself, who may use the reserved connection. Operators also log in. */
const mayUseReserved = ({ school }: RequestSource) => school === 'platform' || school === 'service';

/**
 * Follows faster requests more quickly than slower ones, so that a few slow requests, such as those that waited for a
 * lock, do not make it refuse the next ones.
 */
const movingAverage = (average: number, value: number): number =>
  average === 0 ? value : average + (value - average) * (value > average ? 0.1 : 0.3);

/** The requests that wait for a connection. */
export interface WaitingRequests {
  readonly count: number;
  /** Its share is kept only while it has requests, so use it at once. */
  requesterOf: (source: RequestSource) => Requester;
  /** Waits for a connection. @throws ApiError if there are too many requests; an error if none becomes free in time */
  acquire: (requester: Requester, signal: AbortSignal | undefined) => Promise<PooledConnection>;
  /** @param usedMs  how long the request has used it, unless that says nothing about the next one */
  release: (connection: PooledConnection, requester: Requester, usedMs: number | undefined) => void;
  /** @throws ApiError if `acquire` would refuse a request now */
  refuseOverload: (requester: Requester) => void;
}

export function waitingRequests(connections: Connections, options: WaitOptions, counts: WaitCounts): WaitingRequests {
  const { size, connectionTimeoutMs, preferredWaitMs, serverOf } = options;
  const maxWaiting = size * maxWaitingPerConnection;
  /** The average of all schools is the first estimate for a school. */
  let serviceMs = 0;
  const line = fairLine<Waiter, SchoolLoad>((share) => ({ ...share, serviceMs }));
  const servers = serverShares(connections.maxPerSchool, serverOf);
  let retryTimer: NodeJS.Timeout | undefined;

  function take(connection: PooledConnection, requester: Requester): void {
    connection.isBusy = true;
    line.start(requester);
    servers.start(connection, requester.source);
    counts[connections.isFirstChoice(connection, requester.order) ? 'preferred' : 'fallback']++;
  }

  const mayTake = (
    { order, school, since, preferredWaitMs: waitMs, source }: Waiter,
    connection: PooledConnection,
  ): boolean =>
    connections.mayTake(connection, order, school.running, performance.now() - since, waitMs) &&
    servers.mayTake(connection, source);

  /** Gives a free connection to the next waiting request that may use it. */
  function assign(connection: PooledConnection): void {
    connection.isBusy = false;
    if (line.waiting.size > 0) line.next((waiter) => mayTake(waiter, connection))?.take(connection);
  }

  function startWaiting(waiter: Waiter): void {
    line.add(waiter);
    // A connection can be free although none is released: those that were refused to a school over its share.
    retryTimer ??= setInterval(() => connections.all.filter(isFree).forEach(assign), preferredWaitMs);
  }

  function stopWaiting(waiter: Waiter): void {
    line.remove(waiter);
    if (line.waiting.size > 0) return;
    clearInterval(retryTimer);
    retryTimer = undefined;
  }

  /**
   * How long the next request of a user waits: for those before it, at the pace of the connections of the school. The
   * users that wait take turns, and so do the schools. A school also gets what is free now.
   */
  function estimatedWaitMs({ school, user, source }: Requester): number {
    const waitingSchools = line.waitingSchools.size + (school.waiting === 0 ? 1 : 0);
    const waitingUsers = school.waitingUsers.size + (user.waiting === 0 ? 1 : 0);
    const free = connections.all.filter(
      (connection) => isFree(connection) && !connection.isReserved && servers.mayTake(connection, source),
    ).length;
    const usable = Math.min(connections.maxPerSchool, Math.max(school.running + free, size / waitingSchools));
    // Others of the school may have fewer requests than this user.
    const before = Math.min(school.waiting, user.waiting * waitingUsers + waitingUsers - 1);
    return ((before + 1) * school.serviceMs) / usable;
  }

  function overloadError(reason: RefusalReason, requester: Requester): ApiError {
    countRefusal('database', reason);
    const seconds = Math.ceil(estimatedWaitMs(requester) / 1000);
    return new ApiError('unavailable', 'Too many requests are waiting for the database. Try again in a moment.', {
      retryAfter: Math.min(30, Math.max(1, seconds)),
    });
  }

  /** Refuses a request that would wait too long. A queue as short as the pool is never refused. */
  function refuseEstimate(requester: Requester): void {
    if (requester.school.waiting >= size && estimatedWaitMs(requester) > connectionTimeoutMs)
      throw overloadError('estimate', requester);
  }

  /** The waiting requests of which there is one too many: those for the server of this one, or all. */
  function tooMany({ source }: Waiter): Iterable<Waiter> | undefined {
    if (serverOf && line.waiting.size > maxWaitingOfServer * maxWaiting) {
      const server = serverOf(source);
      const ofServer = [...line.waiting].filter((waiter) => serverOf(waiter.source) === server);
      if (ofServer.length > maxWaitingOfServer * maxWaiting) return ofServer;
    }
    return line.waiting.size > maxWaiting ? line.waiting : undefined;
  }

  function wait(requester: Requester, signal: AbortSignal | undefined): Promise<PooledConnection> {
    const { school, order } = requester;
    return new Promise((done, fail) => {
      const leave = () => {
        clearTimeout(preferredTimer);
        clearTimeout(timer);
        listener?.[Symbol.dispose]();
        stopWaiting(waiter);
      };
      const waiter: Waiter = {
        ...requester,
        since: performance.now(),
        preferredWaitMs: Math.max(
          preferredWaitMs,
          Math.min(preferredWait.maxMs, preferredWait.requests * school.serviceMs),
        ),
        take(connection) {
          leave();
          take(connection, requester);
          done(connection);
        },
        refuse(error) {
          leave();
          fail(error);
        },
      };
      const preferredTimer = setTimeout(() => {
        const connection = order.find((each) => isFree(each) && mayTake(waiter, each));
        if (connection) waiter.take(connection);
      }, waiter.preferredWaitMs + 1);
      const timer = setTimeout(() => {
        countRefusal('database', 'timeout');
        // The message of pg-pool, which `classify` knows.
        waiter.refuse(new Error('timeout exceeded when trying to connect'));
      }, connectionTimeoutMs);
      const listener =
        signal &&
        addAbortListener(signal, () => {
          counts.cancelledWaiting++;
          waiter.refuse(signal.reason as Error);
        });
      startWaiting(waiter);
      const waiters = tooMany(waiter);
      if (!waiters) return;
      const refused = newestOfBusiest(waiters) ?? waiter;
      refused.refuse(overloadError('limit', refused));
    });
  }

  return {
    get count() {
      return line.waiting.size;
    },
    /**
     * All requests without a session are counted as one school, however many schools they name; the logins of operators
     * as another one, because these may use the reserved connection.
     */
    requesterOf(source) {
      const name = String(source.school ?? '').slice(0, maxNameLength);
      const isReservable = mayUseReserved(source);
      const unverified = isReservable ? 'logins of operators' : 'unauthenticated';
      const school = line.schools.of(source.isVerified ? name : unverified);
      // A request that waits for a silent server keeps the later ones of its user waiting.
      const server = source.isVerified ? undefined : serverOf?.(source);
      return {
        school,
        user: school.users.of(server === undefined ? (source.caller ?? '') : `${source.caller ?? ''} ${server}`),
        order: connections.orderOf(name, isReservable),
        source,
      };
    },
    acquire(requester, signal) {
      const preferred = connections.findPreferred(requester.order, requester.school.running);
      if (preferred && servers.mayTake(preferred, requester.source)) {
        take(preferred, requester);
        return Promise.resolve(preferred);
      }
      refuseEstimate(requester);
      return wait(requester, signal);
    },
    release(connection, requester, usedMs) {
      const { school } = requester;
      line.end(requester);
      servers.end(connection);
      if (usedMs !== undefined) {
        school.serviceMs = movingAverage(school.serviceMs, usedMs);
        serviceMs = movingAverage(serviceMs, usedMs);
      }
      assign(connection);
    },
    refuseOverload(requester) {
      refuseEstimate(requester);
      if (line.waiting.size < maxWaiting) return;
      // A school with fewer requests than another one gets into a full queue, and so does a user of the busiest school.
      const { school, user } = requester;
      for (const other of line.waitingSchools) if (inProgress(other) > inProgress(school)) return;
      for (const other of school.waitingUsers) if (inProgress(other) > inProgress(user)) return;
      throw overloadError('limit', requester);
    },
  };
}
