import pg from 'pg';
import { type Backend, newBackend } from './backend-memory.ts';
import { preferenceOrder, recentlyUsed } from './preferred-connections.ts';

/** The smallest share of a school. The second connection serves while the first is busy. */
const minShare = 2;
/**
 * With more active schools than this for each connection, a school prefers one connection: to wait for it takes less
 * than what the second one would load and plan, and each backend keeps half as many schools.
 */
const manySchoolsPerConnection = 4;
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
export const measureEveryMs = 60_000;

export interface ConnectionOptions {
  /** The maximum number of connections, without the one that is reserved for operators and the service itself. */
  size: number;
  /** How long a request waits for a connection before it fails, and how long it waits for Postgres to accept one. */
  connectionTimeoutMs: number;
  /** Options of pg for each connection. */
  client: pg.ClientConfig;
  /** The time in ms, and a random number from 0 to 1, by which connections get old. By default those of JavaScript. */
  now?: () => number;
  random?: () => number;
}

export interface PooledConnection {
  number: number;
  /** Only for operators and the service itself, so that they get a connection while schools use all others. */
  isReserved: boolean;
  /** A pool of one connection: it opens, watches and closes it. */
  pool: pg.Pool;
  isBusy: boolean;
  backend: Backend;
  /** When it is old enough to be replaced. */
  replaceAt: number;
  /** When its backend is asked for its memory. */
  measureAt: number;
}

export const isFree = ({ isBusy }: PooledConnection): boolean => !isBusy;

/** A connection that opens when it is used. */
function openConnection(number: number, options: ConnectionOptions): PooledConnection {
  const { size, connectionTimeoutMs, client: config, now = Date.now, random = Math.random } = options;
  const pool = new pg.Pool({
    ...config,
    max: 1,
    connectionTimeoutMillis: connectionTimeoutMs,
    idleTimeoutMillis: idleTimeoutMs,
  });
  const connection: PooledConnection = {
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
    connection.backend = newBackend();
    connection.replaceAt = now() + maxAgeMs * (0.8 + 0.4 * random());
    connection.measureAt = now() + measureEveryMs;
  });
  return connection;
}

/** The connections, and which of them a school uses. */
export interface Connections {
  all: readonly PooledConnection[];
  /** The most connections that one school uses. The rest are kept for other schools, even if it only waits for locks. */
  maxPerSchool: number;
  /** All that a request may use: the reserved one, then those that its school prefers, then the others. */
  orderOf: (school: string, mayUseReserved: boolean) => readonly PooledConnection[];
  /** Counts a request of a school, which has its share from now on. */
  noteActive: (school: string) => void;
  /** A preferred connection that a request may use now. */
  findPreferred: (order: readonly PooledConnection[], running: number) => PooledConnection | undefined;
  /** Whether it is one of the first two of its school (the first if many schools are active), or the reserved one. */
  isFirstChoice: (connection: PooledConnection, order: readonly PooledConnection[]) => boolean;
  /**
   * Whether a request may use a free connection now.
   * @param running  the running requests of its school
   * @param preferredWaitMs  how long it waits for a preferred connection
   */
  mayTake: (
    connection: PooledConnection,
    order: readonly PooledConnection[],
    running: number,
    waitedMs: number,
    preferredWaitMs: number,
  ) => boolean;
}

/** Opens the connections of a pool, and the reserved one. */
export function openConnections(options: ConnectionOptions): Connections {
  const { size } = options;
  const all = Array.from({ length: size + 1 }, (_, number) => openConnection(number, options));
  const preferenceOf = preferenceOrder(all.filter(({ isReserved }) => !isReserved));
  const reserved = all.filter(({ isReserved }) => isReserved);
  const activeSchools = recentlyUsed(activityMs);
  const maxPerSchool = size <= 2 ? size : size - Math.max(1, Math.floor(size / 5));

  /**
   * The share of a school in the connections, at least two; `maxPerSchool` for a school alone. More it gets only after a
   * wait.
   */
  const maxShare = () => Math.min(maxPerSchool, Math.max(minShare, Math.ceil(size / activeSchools.count())));

  /** How many connections a school prefers. It waits for one of them, but not long. */
  const preferredCount = () => (activeSchools.count() > manySchoolsPerConnection * size ? 1 : maxShare());

  /** Whether it is the reserved one, which would be the first of the order, or one of the next `count`. */
  const isAmong = (connection: PooledConnection, order: readonly PooledConnection[], count: number) =>
    connection.isReserved || order.indexOf(connection) - (order[0]?.isReserved ? 1 : 0) < count;

  return {
    all,
    maxPerSchool,
    orderOf(school, mayUseReserved) {
      const order = preferenceOf(school);
      // The reserved one first: its backend keeps no plans of schools.
      return mayUseReserved ? [...reserved, ...order] : order;
    },
    noteActive: (school) => void activeSchools.add(school),
    findPreferred(order, running) {
      const found = order.find((connection) => isFree(connection) && isAmong(connection, order, preferredCount()));
      return found && (found.isReserved || running < maxShare()) ? found : undefined;
    },
    isFirstChoice: (connection, order) => isAmong(connection, order, Math.min(minShare, preferredCount())),
    mayTake(connection, order, running, waitedMs, preferredWaitMs) {
      if (connection.isReserved) return order.includes(connection);
      if (waitedMs < preferredWaitMs && !isAmong(connection, order, preferredCount())) return false;
      return running < (waitedMs < overShareWaitMs ? maxShare() : maxPerSchool);
    },
  };
}
