import { createHash } from 'node:crypto';
import pg from 'pg';

/** What a connection is needed for. */
export interface Purpose {
  /** The school, as far as it is known before the database verifies it. It only decides which connection is used. */
  school: number | string | undefined;
  operation: string;
}

export interface SchoolPoolOptions {
  /** The maximum number of connections. */
  size: number;
  /** A connection is replaced when its backend has probably reached this size. */
  maxConnectionMb: number;
  /** How long a request waits for a connection before it fails. */
  connectionTimeoutMs: number;
  /** How long a request waits for a connection of its school while others are free. */
  homeWaitMs: number;
  /** Options of pg for each connection. */
  client: pg.ClientConfig;
}

/** What a pool has done since it was opened. */
export interface SchoolPoolCounts {
  /** Checkouts of a connection of the school, and of any other one. */
  home: number;
  other: number;
  /** Connections replaced because of their estimated memory, and because of their age. */
  renewedForMemory: number;
  renewedForAge: number;
}

/**
 * The connections of the API process. A school gets the same connections as long as they are free, so that each backend
 * knows a few schools well: its plans and its copy of the catalog fit most of its requests.
 */
export interface SchoolPool {
  /** @throws an error that means 503 if no connection is free or can be opened in time */
  connectFor(purpose: Purpose): Promise<pg.PoolClient>;
  /** Runs a statement that belongs to no request. After an error its connection is closed. */
  query<R extends pg.QueryResultRow>(statement: string | pg.QueryConfig, purpose?: Purpose): Promise<pg.QueryResult<R>>;
  /** Closes all connections; those in use when they are released. */
  end(): Promise<void>;
  readonly options: { max: number };
  readonly totalCount: number;
  readonly idleCount: number;
  readonly waitingCount: number;
  readonly counts: Readonly<SchoolPoolCounts>;
}

/** The number of connections that a school has when it needs no more. The second serves while the first is busy. */
const homeSize = 2;
/** A backend keeps what it has learned for this long without a request. */
const idleTimeoutMs = 5 * 60_000;
/** Connections are replaced at this age, so that memory which the estimate does not know is freed too. */
const maxAgeMs = 15 * 60_000;
/** Measured with 3 to 50 operations of 250 schools; see docs/decisions/0027-connections-per-school.md. */
const mbPerSchool = 0.85;
const mbPerOperation = 0.03;
const mbPerPlan = 0.33;
/** A connection keeps this many prepared statements: app.max_prepared_statements in core.run_prepared. */
const maxPlans = 250;

/** What the backend of a connection has cached. */
interface Backend {
  openedAt: number;
  schools: Set<string>;
  /** Pairs of a school and an operation. */
  operations: Set<string>;
  /** Requests whose school is not known: each counts as a school of its own. */
  unknown: number;
}

interface Slot {
  number: number;
  /** A pool of one connection: it opens, watches and closes it. */
  pool: pg.Pool;
  isBusy: boolean;
  backend: Backend;
}

interface Waiter {
  school: string;
  /** Takes only a connection of its school. */
  isPatient: boolean;
  take: (slot: Slot) => void;
}

const newBackend = (): Backend => ({
  openedAt: Date.now(),
  schools: new Set(),
  operations: new Set(),
  unknown: 0,
});

/** The estimated memory of a backend, in megabytes. */
export const estimatedMb = ({ schools, operations, unknown }: Omit<Backend, 'openedAt'>): number =>
  (schools.size + unknown) * mbPerSchool +
  (operations.size + unknown) * mbPerOperation +
  Math.min(operations.size + unknown, maxPlans) * mbPerPlan;

/** The weight of a connection for a school. Sorting by it is rendezvous hashing: each school has an order of its own. */
const weight = (school: string, slot: number) =>
  createHash('md5')
    .update(`${school} ${String(slot)}`)
    .digest()
    .readUInt32LE();

/** Counts by key. Keys with 0 take no memory. */
function counter() {
  const numbers = new Map<string, number>();
  return {
    get: (key: string) => numbers.get(key) ?? 0,
    add(key: string, change: 1 | -1) {
      const number = (numbers.get(key) ?? 0) + change;
      if (number > 0) numbers.set(key, number);
      else numbers.delete(key);
    },
  };
}

/** The orders of this many schools are kept. */
const maxOrders = 5_000;

/** Opens a pool. It connects when it is used. */
export function schoolPool(options: SchoolPoolOptions): SchoolPool {
  const { size, maxConnectionMb, connectionTimeoutMs, homeWaitMs, client: clientConfig } = options;
  const slots = Array.from({ length: size }, (_, number): Slot => {
    const pool = new pg.Pool({
      ...clientConfig,
      max: 1,
      connectionTimeoutMillis: connectionTimeoutMs,
      idleTimeoutMillis: idleTimeoutMs,
    });
    const slot: Slot = { number, pool, isBusy: false, backend: newBackend() };
    // The pool replaces a broken idle connection. Without a listener the error event would end the process.
    pool.on('error', () => undefined);
    pool.on('connect', (client) => {
      client.on('error', () => undefined);
      slot.backend = newBackend();
    });
    return slot;
  });
  const orders = new Map<string, Slot[]>();
  const waiting = new Set<Waiter>();
  /** The number of connections that each school uses. */
  const inUse = counter();
  /** The number of requests of each school that use a connection or wait for one. */
  const demand = counter();
  let totalDemand = 0;
  const counts: SchoolPoolCounts = { home: 0, other: 0, renewedForMemory: 0, renewedForAge: 0 };
  let isRenewing = false;
  let isEnded = false;

  /** All connections, those of the school first. */
  function orderOf(school: string): Slot[] {
    const known = orders.get(school);
    if (known) return known;
    if (orders.size >= maxOrders) orders.clear();
    const order = slots
      .map((slot) => ({ slot, weight: weight(school, slot.number) }))
      .sort((a, b) => b.weight - a.weight)
      .map(({ slot }) => slot);
    orders.set(school, order);
    return order;
  }

  /** The number of connections of a school: two, or more if its share of the requests in progress is larger. */
  const homeCount = (school: string) => Math.max(homeSize, Math.ceil((size * demand.get(school)) / totalDemand));

  const isFree = ({ isBusy }: Slot) => !isBusy;

  function take(slot: Slot, school: string): void {
    slot.isBusy = true;
    inUse.add(school, 1);
    counts[orderOf(school).indexOf(slot) < homeSize ? 'home' : 'other']++;
  }

  /** Waits for a connection. @throws if none becomes free in time */
  function acquire(school: string): Promise<Slot> {
    const free = orderOf(school)
      .slice(0, homeWaitMs > 0 ? homeCount(school) : size)
      .find(isFree);
    if (free) {
      take(free, school);
      return Promise.resolve(free);
    }
    return new Promise((done, fail) => {
      const leave = () => {
        clearTimeout(homeTimer);
        clearTimeout(timer);
        waiting.delete(waiter);
      };
      const waiter: Waiter = {
        school,
        isPatient: homeWaitMs > 0,
        take(slot) {
          leave();
          take(slot, school);
          done(slot);
        },
      };
      const takeAny = () => {
        waiter.isPatient = false;
        const slot = orderOf(school).find(isFree);
        if (slot) waiter.take(slot);
      };
      const homeTimer = setTimeout(takeAny, homeWaitMs);
      const timer = setTimeout(() => {
        leave();
        // The message of pg-pool, which `classify` knows.
        fail(new Error('timeout exceeded when trying to connect'));
      }, connectionTimeoutMs);
      waiting.add(waiter);
    });
  }

  /** Gives a free connection to the waiting school that uses the fewest; of those, to the first in line. */
  function assign(slot: Slot): void {
    slot.isBusy = false;
    let next: Waiter | undefined;
    for (const waiter of waiting) {
      if (waiter.isPatient && orderOf(waiter.school).indexOf(slot) >= homeCount(waiter.school)) continue;
      if (!next || inUse.get(waiter.school) < inUse.get(next.school)) next = waiter;
    }
    next?.take(slot);
  }

  function leaveSlot(slot: Slot, school: string): void {
    inUse.add(school, -1);
    assign(slot);
  }

  function renewalReason({ backend }: Slot): 'renewedForMemory' | 'renewedForAge' | undefined {
    if (estimatedMb(backend) >= maxConnectionMb) return 'renewedForMemory';
    return Date.now() - backend.openedAt >= maxAgeMs ? 'renewedForAge' : undefined;
  }

  /** Opens the next connection of a slot. No other one is renewed meanwhile. */
  async function reopen(slot: Slot): Promise<void> {
    try {
      (await slot.pool.connect()).release();
    } catch {
      // The next request reports it, if the database is still not available.
    }
    isRenewing = false;
  }

  async function checkOut({ school, operation }: Purpose): Promise<pg.PoolClient> {
    if (isEnded) throw new Error('Cannot use a pool after calling end on the pool');
    const key = String(school ?? '');
    demand.add(key, 1);
    totalDemand++;
    const leave = () => {
      demand.add(key, -1);
      totalDemand--;
    };
    let slot: Slot;
    let client: pg.PoolClient;
    try {
      slot = await acquire(key);
    } catch (error) {
      leave();
      throw error;
    }
    try {
      client = await slot.pool.connect();
    } catch (error) {
      leave();
      leaveSlot(slot, key);
      throw error;
    }
    const { backend } = slot;
    if (school === undefined) backend.unknown++;
    else {
      backend.schools.add(key);
      backend.operations.add(`${key} ${operation}`);
    }
    const release = client.release.bind(client);
    client.release = (broken) => {
      leave();
      const reason = broken || isRenewing || isEnded ? undefined : renewalReason(slot);
      if (!reason) {
        release(broken);
        leaveSlot(slot, key);
        return;
      }
      isRenewing = true;
      counts[reason]++;
      release(true);
      void reopen(slot).then(() => leaveSlot(slot, key));
    };
    return client;
  }

  return {
    connectFor: checkOut,
    async query<R extends pg.QueryResultRow>(
      statement: string | pg.QueryConfig,
      purpose: Purpose = { school: 'platform', operation: '' },
    ) {
      const client = await checkOut(purpose);
      let broken: Error | undefined;
      try {
        return await client.query<R>(statement);
      } catch (error) {
        broken = error instanceof Error ? error : new Error(String(error));
        throw error;
      } finally {
        client.release(broken);
      }
    },
    async end() {
      isEnded = true;
      await Promise.all(slots.map(({ pool }) => pool.end()));
    },
    options: { max: size },
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
