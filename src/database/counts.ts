import type { Logger } from 'pino';
import type { SchoolPool } from './pool/school-pool.ts';

/** Figures that are collected in memory and stored together. */
interface Collector<Key, Value> {
  add(key: Key, value: Value): void;
  /** Stores the last figures. */
  close(): Promise<void>;
}

interface CollectorOptions<Key, Value> {
  intervalMs: number;
  logger: Pick<Logger, 'warn'>;
  /** The function that stores the figures, and its arguments. */
  statement: string;
  values: (figures: Map<Key, Value>) => unknown[];
  sum: (one: Value, other: Value) => Value;
}

/**
 * Adds figures in memory and stores them with one statement per interval. So a request costs no statement. A process
 * that is killed loses the figures of its last interval.
 */
function collector<Key, Value>(
  pool: Pick<SchoolPool, 'query'>,
  { intervalMs, logger, statement, values, sum }: CollectorOptions<Key, Value>,
): Collector<Key, Value> {
  let figures = new Map<Key, Value>();
  function add(key: Key, value: Value): void {
    const earlier = figures.get(key);
    figures.set(key, earlier === undefined ? value : sum(earlier, value));
  }

  async function store(): Promise<void> {
    if (figures.size === 0) return;
    const batch = figures;
    figures = new Map();
    try {
      await pool.query(
        { text: `select ${statement}`, values: values(batch) },
        { planKey: statement, school: 'platform', isVerified: true },
      );
    } catch (error) {
      // The next statement tries again.
      for (const [key, value] of batch) add(key, value);
      logger.warn({ message: 'Figures could not be stored.', statement, cause: String(error) });
    }
  }

  let storing = Promise.resolve();
  const timer = setInterval(() => {
    storing = storing.then(store);
  }, intervalMs);
  timer.unref();
  return {
    add,
    async close() {
      clearInterval(timer);
      await storing;
      await store();
    },
  };
}

type Options = Pick<CollectorOptions<never, never>, 'intervalMs' | 'logger'>;

/** Counts the requests of each school for its usage. */
export const schoolRequests = (pool: Pick<SchoolPool, 'query'>, options: Options): Collector<number, number> =>
  collector(pool, {
    ...options,
    statement: 'core.record_requests($1, $2)',
    values: (requests) => [[...requests.keys()], [...requests.values()]],
    sum: (one, other) => one + other,
  });

/** Calls of an operation, in milliseconds. */
interface Times {
  calls: number;
  total: number;
  max: number;
}

/** Adds the time of the calls of each operation, so that operators see the slow ones. */
export const operationTimes = (pool: Pick<SchoolPool, 'query'>, options: Options): Collector<string, Times> =>
  collector(pool, {
    ...options,
    statement: 'core.record_operation_times($1, $2, $3, $4)',
    values(times: Map<string, Times>) {
      const all = [...times.values()];
      return [
        [...times.keys()],
        all.map(({ calls }) => calls),
        all.map(({ total }) => Math.round(total)),
        all.map(({ max }) => Math.round(max)),
      ];
    },
    sum: (one, other) => ({
      calls: one.calls + other.calls,
      total: one.total + other.total,
      max: Math.max(one.max, other.max),
    }),
  });
