import type { Logger } from 'pino';

/** What a school has asked of the database in a time. */
export interface Load {
  calls: number;
  /** With the wait for a connection and retries. */
  ms: number;
  failures: number;
}

/** The calls of the database by school: for the metrics those of the last minute, for the log those of busy schools. */
export interface SchoolLoad {
  add(school: number, ms: number, hasFailed: boolean): void;
  /** The busiest schools of the last whole minute, by their time in the database, the busiest first. */
  busiest(): [school: number, load: Load][];
  close(): void;
}

/** Each school is a series of the metrics, and a line of the log. */
const maxSchools = 20;

/**
 * @param intervalMs  a minute; tests shorten it
 * @param logFrom  a school with as many calls in the interval gets a line in the log; 0: none
 */
export function schoolLoad({
  intervalMs,
  logFrom,
  logger,
}: {
  intervalMs: number;
  logFrom: number;
  logger: Pick<Logger, 'info'>;
}): SchoolLoad {
  let current = new Map<number, Load>();
  let last: [number, Load][] = [];
  const timer = setInterval(() => {
    last = [...current].sort(([, a], [, b]) => b.ms - a.ms).slice(0, maxSchools);
    current = new Map();
    for (const [tenant, { calls, ms, failures }] of last)
      if (logFrom > 0 && calls >= logFrom)
        logger.info({ busy: 'school', tenant, calls, database_ms: Math.round(ms), failures });
  }, intervalMs);
  timer.unref();
  return {
    add(school, ms, hasFailed) {
      const load = current.get(school) ?? { calls: 0, ms: 0, failures: 0 };
      load.calls++;
      load.ms += ms;
      if (hasFailed) load.failures++;
      current.set(school, load);
    },
    busiest: () => last,
    close: () => clearInterval(timer),
  };
}
