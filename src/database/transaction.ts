import type pg from 'pg';

/** Runs `work` in a transaction. @returns its result, after the commit */
export async function inTransaction<T>(client: pg.ClientBase, work: () => Promise<T>): Promise<T> {
  await client.query('begin');
  try {
    const result = await work();
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  }
}

/** Runs `work` in a transaction without triggers and checks of foreign keys, as replication does. */
export const asReplica = <T>(client: pg.ClientBase, work: () => Promise<T>): Promise<T> =>
  inTransaction(client, async () => {
    await client.query('set local session_replication_role = replica');
    return work();
  });
