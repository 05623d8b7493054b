import { addAbortListener } from 'node:events';
import pg from 'pg';
import { countRefusal, type RefusalReason } from '../../concurrency/refusals.ts';
import {
  compareShares,
  inProgress,
  newestOfBusiest,
  newShare,
  type Share,
  type Shares,
  shares,
} from '../../concurrency/shares.ts';
import { ApiError } from '../../domain/errors.ts';
import { type Backend, correctEstimate, estimatedMb, newBackend, remember } from './backend-memory.ts';
import { cancelOnAbort } from './cancel.ts';
import { destroySocket } from './client-socket.ts';
import { classify } from '../errors.ts';
import { preferenceOrder, recentlyUsed } from './preferred-connections.ts';

/** The default of DATABASE_CONNECTION_MB. docs/operations/running.md has the measurements. */
export const defaultConnectionMb = 250;

/** The request for which a connection is needed. It only decides which connection is used, when, and how long. */
export interface ConnectionRequest {
  /**
   * The school, `platform` for operators, `service` for the service itself, `rate limits` for its rate limits; undefined
   * if the request names none.
   */
  school: number | string | undefined;
  /** A session names the school. Otherwise the client may have invented it, or wants to be counted as it. */
  isVerified: boolean;
  /** The user, API key or address that sends the request. They share the connections of their school. */
  caller?: string | undefined;
  /** What the memory estimate counts as one plan: the operation, and for lists what their statement depends on. */
  planKey: string;
  /** Ends the wait, with its reason. A running statement is cancelled only if it `isRead`. */
  signal?: AbortSignal | undefined;
  /** The statement changes nothing. */
  isRead?: boolean;
}

export interface SchoolPoolOptions {
  /** The maximum number of connections, without the one that is reserved for operators and the service itself. */
  size: number;
  /** A connection is replaced when its backend has probably reached this size. */
  maxConnectionMb: number;
  /** How long a request waits for a connection before it fails, and how long it waits for Postgres to accept one. */
  connectionTimeoutMs: number;
  /** How long a request waits at least for a preferred connection of its school while others are free. */
  preferredWaitMs: number;
  /** Whether statements may have a name, by which their backend keeps them; true by default. Some poolers allow none. */
  canPrepare?: boolean;
  /** Options of pg for each connection. */
  client: pg.ClientConfig;
  /** The time in ms, and a random number from 0 to 1, by which connections get old. By default those of JavaScript. */
  now?: () => number;
  random?: () => number;
}

/** The actions of a pool since it was opened. */
export interface SchoolPoolCounts {
  /** Checkouts of the first two connections of a school (the first if many schools are active), and of any other one. */
  preferred: number;
  fallback: number;
  /** Connections replaced because of the memory of their backend, and because of their age. */
  replacedForMemory: number;
  replacedForAge: number;
  /** Requests whose client was gone: while they waited, and while their statement ran. */
  cancelledWaiting: number;
  cancelledRunning: number;
}

/**
 * The connections of the API process. A school gets the same connections as long as they are free, so that each backend
 * knows a few schools well: its plans and its copy of the catalog fit most of its requests.
 */
export interface SchoolPool {
  /**
   * Runs a statement. Unlike pg.Pool, it keeps the connection when only the statement failed: after each 404 a request
   * had to wait for a new connection without cached plans, which is ten times the work for the database.
   * @throws pg.DatabaseError; ApiError `unavailable` if the queue is too long, and an error that means 503 if no
   *   connection is free or can be opened in time; the reason of the signal
   */
  query<R extends pg.QueryResultRow>(
    statement: string | pg.QueryConfig,
    request?: ConnectionRequest,
  ): Promise<pg.QueryResult<R>>;
  /** Refuses a request that `query` would refuse now. @throws ApiError `unavailable` */
  refuseOverload(request: Counted): void;
  /**
   * Gives up the connections that have been used by requests of these schools for longer than `ms`: the server of the
   * schools does not answer, and the database cannot cancel them. The requests fail as if the connection had ended.
   */
  abandon(schools: ReadonlySet<string>, ms: number): void;
  /** Closes all connections; those in use when they are released. */
  end(): Promise<void>;
  readonly options: { max: number };
  readonly totalCount: number;
  readonly idleCount: number;
  readonly waitingCount: number;
  readonly counts: Readonly<SchoolPoolCounts>;
}

/** The smallest share of a school. The second connection serves while the first is busy. */
const minShare = 2;
/**
 * With more active schools than this for each connection, a school prefers one connection: to wait for it takes less
 * than what the second one would load and plan, and each backend keeps half as many schools.
 */
const manySchoolsPerConnection = 4;
/**
 * A request waits as long for a preferred connection as so many requests of its school take, up to a limit. Requests that
 * take long usually lack plans. If they went on to other connections after a short wait, they would lack plans there too,
 * and no connection would ever have those that its schools need.
 */
const preferredWait = { requests: 4, maxMs: 300 };
/** Schools with a request in this time share the connections. */
const activityMs = 1000;
/** How long a school that uses its share waits for another connection, though it is free. */
const overShareWaitMs = 500;
/** A backend keeps what it has learned for this long without a request. */
const idleTimeoutMs = 5 * 60_000;
/**
 * Connections are replaced at this age, so that memory which the estimate does not know is freed too. Each has an age of its
 * own, up to a fifth lower or higher: those of a process open at the same time, and if they were replaced at the same time,
 * no connection would have the plans of any school.
 */
const maxAgeMs = 15 * 60_000;
/**
 * A connection in use is asked for the memory of its backend this often, even if the estimate is low: requests can have more
 * and larger plans than the estimate counts.
 */
const measureEveryMs = 60_000;
/** A backend is kept if it is smaller than this part of the limit, so that it is not measured at each request. */
const keepBelowRatio = 0.95;
/** At most this many requests wait for each connection. Each takes some kilobytes, and 64 kB with a large body. */
const maxWaitingPerConnection = 100;
type ReplacementReason = 'replacedForMemory' | 'replacedForAge';
/** A statement that runs. */
interface Run {
  school: string;
  client: pg.PoolClient;
  since: number;
  isAbandoned: boolean;
}

interface Slot {
  number: number;
  /** Only for operators and the service itself, so that they get a connection while schools use all others. */
  isReserved: boolean;
  /** A pool of one connection: it opens, watches and closes it. */
  pool: pg.Pool;
  isBusy: boolean;
  backend: Backend;
  /** When its connection is old enough to be replaced. */
  replaceAt: number;
  /** When its backend is asked for its memory. */
  measureAt: number;
}

/** The requests of a caller. */
interface CallerShare extends Share {
  /** The waiting requests, in the order of arrival. */
  queue: Set<Waiter>;
}

/** The requests of a school, or of everybody without a session. */
interface SchoolShare extends Share {
  /** How long a request uses a connection: a moving average. */
  serviceMs: number;
  callers: Shares<string, CallerShare>;
  waitingCallers: Set<CallerShare>;
}

/** The school and the caller that a request is counted as, and the connections in the order of preference. */
interface Claim {
  school: SchoolShare;
  caller: CallerShare;
  order: readonly Slot[];
}

/** The part of a request that decides what it is counted as. */
type Counted = Pick<ConnectionRequest, 'school' | 'isVerified' | 'caller'>;

interface Waiter extends Claim {
  /** When it began to wait, by the clock of the process. */
  since: number;
  /** How long it waits for a preferred connection. */
  preferredWaitMs: number;
  take: (slot: Slot) => void;
  refuse: (error: Error) => void;
}

/**
 * Whether the backend has probably loaded nothing for a failed request. An unauthenticated client can invent numbers of
 * schools, and each would count as a school in the estimate: a few hundred would replace the connection.
 */
const isUnknownSchool = ({ isVerified }: ConnectionRequest, error: string | undefined) =>
  error === 'tenant_not_found' || (!isVerified && error === 'invalid_token');

/**
 * Follows faster requests more quickly than slower ones, so that a few slow requests, such as those that waited for a
 * lock, do not make it refuse the next ones.
 */
const movingAverage = (average: number, value: number): number =>
  average === 0 ? value : average + (value - average) * (value > average ? 0.1 : 0.3);

/** Operators and the service itself, who may use the reserved connection. Operators also log in. */
const mayUseReserved = ({ school }: Pick<ConnectionRequest, 'school'>) => school === 'platform' || school === 'service';

/** An unauthenticated client may invent longer names of schools. */
const maxNameLength = 100;

/** The statement without its name. */
const unnamed = (statement: string | pg.QueryConfig): string | pg.QueryConfig =>
  typeof statement === 'string' ? statement : { ...statement, name: undefined };

/** Opens a pool. It connects when it is used. */
export function schoolPool(options: SchoolPoolOptions): SchoolPool {
  const {
    size,
    maxConnectionMb,
    connectionTimeoutMs,
    preferredWaitMs,
    canPrepare = true,
    now = Date.now,
    random = Math.random,
    client: clientConfig,
  } = options;
  const slots = Array.from({ length: size + 1 }, (_, number): Slot => {
    const pool = new pg.Pool({
      ...clientConfig,
      max: 1,
      connectionTimeoutMillis: connectionTimeoutMs,
      idleTimeoutMillis: idleTimeoutMs,
    });
    const slot: Slot = {
      number,
      isReserved: number === size,
      pool,
      isBusy: false,
      backend: newBackend(),
      replaceAt: Infinity,
      measureAt: Infinity,
    };
    // The pool replaces a broken idle connection. Without a listener the error event would end the process.
    pool.on('error', () => undefined);
    pool.on('connect', (client) => {
      client.on('error', () => undefined);
      slot.backend = newBackend();
      slot.replaceAt = now() + maxAgeMs * (0.8 + 0.4 * random());
      slot.measureAt = now() + measureEveryMs;
    });
    return slot;
  });
  /** All connections but the reserved one, those of the school first. */
  const orderOf = preferenceOrder(slots.filter(({ isReserved }) => !isReserved));
  const waiting = new Set<Waiter>();
  const waitingSchools = new Set<SchoolShare>();
  let retryTimer: NodeJS.Timeout | undefined;
  /** The average of all schools is the first estimate for a school. */
  let serviceMs = 0;
  const schools = shares<string, SchoolShare>((startTag) => ({
    ...newShare(startTag),
    serviceMs,
    callers: shares((tag) => ({ ...newShare(tag), queue: new Set() })),
    waitingCallers: new Set(),
  }));
  const activeSchools = recentlyUsed(activityMs);
  const counts: SchoolPoolCounts = {
    preferred: 0,
    fallback: 0,
    replacedForMemory: 0,
    replacedForAge: 0,
    cancelledWaiting: 0,
    cancelledRunning: 0,
  };
  /** The requests whose statement runs. */
  const running = new Set<Run>();
  let isReplacing = false;
  let isEnded = false;

  /** The most connections that one school uses. The rest are kept for other schools, even if it only waits for locks. */
  const maxPerSchool = size <= 2 ? size : size - Math.max(1, Math.floor(size / 5));

  /**
   * The share of a school in the connections, at least two; `maxPerSchool` for a school alone. More it gets only after a
   * wait.
   */
  const maxShare = () => Math.min(maxPerSchool, Math.max(minShare, Math.ceil(size / activeSchools.count())));

  /** How many connections a school prefers. It waits for one of them, but not long. */
  const preferred = () => (activeSchools.count() > manySchoolsPerConnection * size ? 1 : maxShare());

  const isFree = ({ isBusy }: Slot) => !isBusy;

  /**
   * All requests without a session are counted as one school, however many schools they name; the logins of operators
   * as another one, because these may use the reserved connection.
   */
  function claimOf(request: Counted): Claim {
    // Here, because a request that is refused is never released.
    schools.forgetIdle();
    const name = String(request.school ?? '').slice(0, maxNameLength);
    const isReservable = mayUseReserved(request);
    const order = orderOf(name);
    const school = schools.of(request.isVerified ? name : isReservable ? 'logins of operators' : 'unauthenticated');
    school.callers.forgetIdle();
    return {
      school,
      caller: school.callers.of(request.caller ?? ''),
      // The reserved one first: its backend keeps no plans of schools.
      order: isReservable ? [...slots.filter(({ isReserved }) => isReserved), ...order] : order,
    };
  }

  /** Whether a claim prefers a connection: the reserved one, which would be the first, or one of the next. */
  const isPreferred = (slot: Slot, { order }: Claim, count = preferred()) =>
    slot.isReserved || order.indexOf(slot) - (order[0]?.isReserved ? 1 : 0) < count;

  function take(slot: Slot, claim: Claim): void {
    const { school, caller } = claim;
    slot.isBusy = true;
    school.running++;
    caller.running++;
    schools.start(school);
    school.callers.start(caller);
    counts[isPreferred(slot, claim, Math.min(minShare, preferred())) ? 'preferred' : 'fallback']++;
  }

  /** Whether a waiting request may use a free connection now. */
  function mayTake(waiter: Waiter, slot: Slot): boolean {
    const { school, since, order } = waiter;
    if (slot.isReserved) return order.includes(slot);
    const waitedMs = performance.now() - since;
    if (waitedMs < waiter.preferredWaitMs && !isPreferred(slot, waiter)) return false;
    return school.running < (waitedMs < overShareWaitMs ? maxShare() : maxPerSchool);
  }

  function startWaiting(waiter: Waiter): void {
    const { school, caller } = waiter;
    waiting.add(waiter);
    caller.queue.add(waiter);
    school.waiting++;
    caller.waiting++;
    waitingSchools.add(school);
    school.waitingCallers.add(caller);
    // A connection can be free although none is released: those that were refused to a school over its share.
    retryTimer ??= setInterval(() => slots.filter(isFree).forEach(assign), preferredWaitMs);
  }

  function stopWaiting(waiter: Waiter): void {
    const { school, caller } = waiter;
    waiting.delete(waiter);
    caller.queue.delete(waiter);
    school.waiting--;
    caller.waiting--;
    if (caller.waiting === 0) school.waitingCallers.delete(caller);
    if (school.waiting === 0) waitingSchools.delete(school);
    if (waiting.size > 0) return;
    clearInterval(retryTimer);
    retryTimer = undefined;
  }

  /**
   * How long the next request of a caller waits: for those before it, at the pace of the connections of the school. The
   * callers that wait take turns, and so do the schools. A school also gets what is free now.
   */
  function estimatedWaitMs({ school, caller }: Claim): number {
    const waitingSchoolCount = waitingSchools.size + (school.waiting === 0 ? 1 : 0);
    const waitingCallerCount = school.waitingCallers.size + (caller.waiting === 0 ? 1 : 0);
    const free = slots.filter((slot) => isFree(slot) && !slot.isReserved).length;
    const connections = Math.min(maxPerSchool, Math.max(school.running + free, size / waitingSchoolCount));
    // Others of the school may have fewer requests than this caller.
    const before = Math.min(school.waiting, caller.waiting * waitingCallerCount + waitingCallerCount - 1);
    return ((before + 1) * school.serviceMs) / connections;
  }

  function overloadError(reason: RefusalReason, claim: Claim): ApiError {
    countRefusal('database', reason);
    const seconds = Math.ceil(estimatedWaitMs(claim) / 1000);
    return new ApiError('unavailable', 'Too many requests are waiting for the database. Try again in a moment.', {
      retryAfter: Math.min(30, Math.max(1, seconds)),
    });
  }

  /** Refuses a request that would wait too long. A queue as short as the pool is never refused. */
  function refuseEstimate(claim: Claim): void {
    if (claim.school.waiting >= size && estimatedWaitMs(claim) > connectionTimeoutMs)
      throw overloadError('estimate', claim);
  }

  const maxWaiting = size * maxWaitingPerConnection;

  /** Waits for a connection. @throws ApiError if there are too many requests; an error if none becomes free in time */
  function acquire(claim: Claim, signal: AbortSignal | undefined): Promise<Slot> {
    const { school, order } = claim;
    const free = order.find((slot) => isFree(slot) && isPreferred(slot, claim));
    if (free && (free.isReserved || school.running < maxShare())) {
      take(free, claim);
      return Promise.resolve(free);
    }
    refuseEstimate(claim);
    return new Promise((done, fail) => {
      const leave = () => {
        clearTimeout(preferredTimer);
        clearTimeout(timer);
        listener?.[Symbol.dispose]();
        stopWaiting(waiter);
      };
      const waiter: Waiter = {
        ...claim,
        since: performance.now(),
        preferredWaitMs: Math.max(
          preferredWaitMs,
          Math.min(preferredWait.maxMs, preferredWait.requests * school.serviceMs),
        ),
        take(slot) {
          leave();
          take(slot, claim);
          done(slot);
        },
        refuse(error) {
          leave();
          fail(error);
        },
      };
      const preferredTimer = setTimeout(() => {
        const slot = order.find((each) => isFree(each) && mayTake(waiter, each));
        if (slot) waiter.take(slot);
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
      if (waiting.size <= maxWaiting) return;
      const refused = newestOfBusiest(waiting, ({ school: ofSchool, caller }) => [ofSchool, caller]) ?? waiter;
      refused.refuse(overloadError('limit', refused));
    });
  }

  /**
   * Gives a free connection to the waiting school that uses the fewest; of those, to the one with the lowest tag. In the
   * school, to a caller in the same way.
   */
  function assign(slot: Slot): void {
    slot.isBusy = false;
    let next: Waiter | undefined;
    for (const { waitingCallers } of waitingSchools)
      for (const { queue } of waitingCallers) {
        // The one that has waited the longest may take a connection before the others of its caller.
        const [waiter] = queue;
        if (!waiter || !mayTake(waiter, slot)) continue;
        if (!next || (compareShares(waiter.school, next.school) || compareShares(waiter.caller, next.caller)) < 0)
          next = waiter;
      }
    next?.take(slot);
  }

  function releaseSlot(slot: Slot, { school, caller }: Claim, usedMs: number | undefined): void {
    school.running--;
    caller.running--;
    if (usedMs !== undefined) {
      school.serviceMs = movingAverage(school.serviceMs, usedMs);
      serviceMs = movingAverage(serviceMs, usedMs);
    }
    assign(slot);
    school.callers.forgetIdle();
    schools.forgetIdle();
  }

  /** Why a connection may have to be replaced. For its memory, `replaceIfNeeded` asks the backend first. */
  function replacementReason({ backend, replaceAt, measureAt }: Slot): ReplacementReason | undefined {
    if (isReplacing || isEnded) return undefined;
    if (estimatedMb(backend) >= maxConnectionMb) return 'replacedForMemory';
    if (now() >= replaceAt) return 'replacedForAge';
    return now() >= measureAt ? 'replacedForMemory' : undefined;
  }

  /** Whether the backend is clearly below the limit, unlike its estimate. Without an answer the estimate counts. */
  async function isBelowLimit(slot: Slot, client: pg.PoolClient): Promise<boolean> {
    const { backend } = slot;
    slot.measureAt = now() + measureEveryMs;
    // The types of pg lack query_timeout.
    const statement: pg.QueryConfig & { query_timeout: number } = {
      text: 'select core.backend_memory_mb() as mb',
      query_timeout: connectionTimeoutMs,
    };
    const reported = await client
      .query<{ mb: number | null }>(statement)
      .then(({ rows }) => rows[0]?.mb ?? null)
      .catch(() => null);
    if (reported === null) return estimatedMb(backend) < maxConnectionMb;
    correctEstimate(backend, reported);
    return estimatedMb(backend) < keepBelowRatio * maxConnectionMb;
  }

  /**
   * Closes the connection of a slot and opens the next one, unless its backend is smaller than estimated. No other one is
   * replaced meanwhile.
   */
  async function replaceIfNeeded(slot: Slot, client: pg.PoolClient, reason: ReplacementReason): Promise<void> {
    isReplacing = true;
    if (reason === 'replacedForMemory' && (await isBelowLimit(slot, client))) {
      isReplacing = false;
      client.release();
      return;
    }
    counts[reason]++;
    client.release(true);
    try {
      (await slot.pool.connect()).release();
    } catch {
      // The next request reports it, if the database is still not available.
    }
    isReplacing = false;
  }

  async function query<R extends pg.QueryResultRow>(
    statement: string | pg.QueryConfig,
    request: ConnectionRequest = { school: 'service', isVerified: true, planKey: '' },
  ): Promise<pg.QueryResult<R>> {
    if (isEnded) throw new Error('Cannot use a pool after calling end on the pool');
    const { signal, isRead } = request;
    signal?.throwIfAborted();
    const claim = claimOf(request);
    // Operators count as one school.
    const countsAsActive = request.isVerified && request.school !== 'service' && request.school !== 'rate limits';
    if (countsAsActive) activeSchools.add(String(request.school));
    const slot = await acquire(claim, signal);
    const usedSince = performance.now();
    let replacement: Promise<void> | undefined;
    let run: Run | undefined;
    try {
      const client = await slot.pool.connect();
      let broken: Error | undefined;
      let finishCancellation: (() => Promise<boolean>) | undefined;
      try {
        signal?.throwIfAborted();
        if (signal && isRead) finishCancellation = cancelOnAbort(client, signal, () => counts.cancelledRunning++);
        const started: Run = { school: String(request.school ?? ''), client, since: usedSince, isAbandoned: false };
        run = started;
        running.add(started);
        const result = await client
          .query<R>(canPrepare ? statement : unnamed(statement))
          .finally(() => running.delete(started));
        remember(slot.backend, request);
        return result;
      } catch (error) {
        if (error === signal?.reason) throw error;
        const { isConnectionUsable, apiError } = classify(error);
        if (!isConnectionUsable) broken = error instanceof Error ? error : new Error(String(error));
        else if (!isUnknownSchool(request, apiError?.error)) remember(slot.backend, request);
        if (isRead) signal?.throwIfAborted();
        throw error;
      } finally {
        if (finishCancellation && !(await finishCancellation()))
          broken ??= new Error('A cancel request may still be on its way to this connection.');
        const reason = broken ? undefined : replacementReason(slot);
        if (reason) replacement = replaceIfNeeded(slot, client, reason);
        else client.release(broken);
      }
    } finally {
      // Again, because the request may have taken long.
      if (countsAsActive) activeSchools.add(String(request.school));
      // An abandoned request says nothing about how long the next one takes.
      const usedMs = run?.isAbandoned ? undefined : performance.now() - usedSince;
      // The answer does not wait for the next connection.
      if (replacement)
        void replacement.then(() => {
          releaseSlot(slot, claim, usedMs);
        });
      else releaseSlot(slot, claim, usedMs);
    }
  }

  return {
    query,
    refuseOverload(request) {
      const claim = claimOf(request);
      refuseEstimate(claim);
      if (waiting.size < maxWaiting) return;
      // A school with fewer requests than another one gets into a full queue, and so does a caller of the busiest school.
      const { school, caller } = claim;
      for (const other of waitingSchools) if (inProgress(other) > inProgress(school)) return;
      for (const other of school.waitingCallers) if (inProgress(other) > inProgress(caller)) return;
      throw overloadError('limit', claim);
    },
    abandon(schools, ms) {
      const before = performance.now() - ms;
      for (const run of running) {
        if (run.since > before || !schools.has(run.school)) continue;
        run.isAbandoned = true;
        destroySocket(run.client);
      }
    },
    async end() {
      isEnded = true;
      await Promise.all(slots.map(({ pool }) => pool.end()));
    },
    options: { max: slots.length },
    get totalCount() {
      return slots.reduce((sum, { pool }) => sum + pool.totalCount, 0);
    },
    get idleCount() {
      return slots.reduce((sum, { pool }) => sum + pool.idleCount, 0);
    },
    get waitingCount() {
      return waiting.size;
    },
    counts,
  };
}
