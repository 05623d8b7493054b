import type pg from 'pg';
import { classify } from '../src/database/errors.ts';

/** cannot_connect_now: graphile-worker waits three seconds before it repeats the statement. */
const repeatableCode = '57P03';

/** serialization_failure and deadlock_detected: graphile-worker repeats the statement itself, and sooner. */
const alreadyRepeatable = /^(40001|40P01)$/;

/** Gives the error of a lost connection or a missing server a code after which graphile-worker repeats the statement. */
export function asRepeatable(thrown: unknown): Error {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown));
  if (classify(error).apiError?.error !== 'unavailable') return error;
  return 'code' in error && alreadyRepeatable.test(String(error.code))
    ? error
    : Object.assign(error, { code: repeatableCode });
}

/** The object with one method replaced. Other methods run on the object itself. */
const withMethod = <T extends object>(object: T, name: keyof T, method: (...args: unknown[]) => unknown): T =>
  new Proxy(object, {
    get(target, key) {
      if (key === name) return method;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });

/**
 * The pool for the statements of graphile-worker. It does not wait for the statement that stores the result of a job,
 * and repeats it only after a few errors. Any other rejection, such as that of a lost connection, would end the process.
 * @param sessionPool  for the connection that listens
 */
export function queuePool(pool: pg.Pool, sessionPool: pg.Pool): pg.Pool {
  const connect = async () => {
    const client = await pool.connect().catch((error: unknown) => {
      throw pool.ending ? error : asRepeatable(error);
    });
    // It has many forms; only those that return a promise are waited for.
    const query = client.query.bind(client) as (...args: unknown[]) => unknown;
    return withMethod(client, 'query', (...args: unknown[]) => {
      const result = query(...args);
      if (!(result instanceof Promise)) return result;
      return result.catch((error: unknown) => {
        throw asRepeatable(error);
      });
    });
  };
  // The connection that listens for new jobs is opened with a callback. graphile-worker opens it again after errors.
  return withMethod(pool, 'connect', (callback) =>
    callback === undefined
      ? connect()
      : (sessionPool.connect.bind(sessionPool) as (listener: unknown) => unknown)(callback),
  );
}
