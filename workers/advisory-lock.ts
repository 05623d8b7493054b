import type pg from 'pg';

/**
 * Runs `work` on a connection that holds an advisory lock. Does nothing while another connection holds it.
 * @param key  the key in SQL, with parameters for `values`; db/core/tenant.sql lists all keys
 */
export async function withAdvisoryLock(
  pool: pg.Pool,
  key: string,
  values: unknown[],
  work: (client: pg.PoolClient) => Promise<void>,
): Promise<void> {
  const client = await pool.connect();
  let isReusable = false;
  try {
    const { rows } = await client.query<{ acquired: boolean }>(
      `select pg_try_advisory_lock(${key}) as acquired`,
      values,
    );
    if (rows[0]?.acquired) {
      await work(client);
      await client.query(`select pg_advisory_unlock(${key})`, values);
    }
    isReusable = true;
  } finally {
    // After an error the connection is closed, which releases the lock.
    client.release(!isReusable);
  }
}
