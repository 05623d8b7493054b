import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';

/**
 * Waits until other servers have applied all changes of this one up to now.
 * @param subscriptions  which must have them, connected or not; undefined for those that are connected
 * @returns whether they have them within `timeoutMs`
 */
export async function waitForSubscribers(
  publisher: pg.ClientBase,
  timeoutMs: number,
  subscriptions?: readonly string[],
): Promise<boolean> {
  const { rows } = await publisher.query<{ position: string }>('select core.wal_position()::text as position');
  const [text, values] = subscriptions
    ? [
        `select not exists (
           select unnest($2::text[])
           except
           select application_name from pg_stat_replication where state = 'streaming' and replay_lsn >= $1) as is_copied`,
        [subscriptions],
      ]
    : ['select core.is_copied($1)', []];
  for (const end = Date.now() + timeoutMs; ;) {
    const { rows: states } = await publisher.query<{ is_copied: boolean }>(text, [rows[0]?.position, ...values]);
    if (states[0]?.is_copied) return true;
    if (Date.now() > end) return false;
    await pause(10);
  }
}
