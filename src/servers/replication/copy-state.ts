import type pg from 'pg';
import { ownSubscription } from './subscriptions.ts';

/** What a subscription does: only `copying` is good. */
export type CopyState =
  | 'copying'
  | 'no subscription'
  | 'disabled'
  /** The publisher was restored, or has dropped it because it took too much WAL. */
  | 'no slot'
  /** Another database has the connection of this subscription: a copy of the subscriber. */
  | 'taken by another database'
  | 'stopped';

/**
 * What a subscriber knows: whether its process has received something. That it runs is not enough, because it is started
 * again and again while another database uses its slot.
 */
export async function subscriptionState(
  subscriber: pg.ClientBase,
  name: string,
): Promise<'copying' | 'no subscription' | 'disabled' | 'stopped'> {
  const { rows } = await subscriber.query<{ is_enabled: boolean; is_connected: boolean }>(
    `select s.subenabled as is_enabled,
       coalesce(bool_or(a.pid is not null and a.received_lsn is not null), false) as is_connected
     from (select oid, subenabled ${ownSubscription}) s
     left join pg_stat_subscription a on a.subid = s.oid and a.relid is null
     group by s.subenabled`,
    [name],
  );
  const [subscription] = rows;
  if (!subscription) return 'no subscription';
  if (!subscription.is_enabled) return 'disabled';
  return subscription.is_connected ? 'copying' : 'stopped';
}

/** What a publisher knows. */
export async function slotState(publisher: pg.ClientBase, name: string): Promise<'active' | 'inactive' | 'no slot'> {
  const { rows } = await publisher.query<{ is_active: boolean }>(
    "select active as is_active from pg_replication_slots where slot_name = $1 and wal_status is distinct from 'lost'",
    [name],
  );
  return rows[0] ? (rows[0].is_active ? 'active' : 'inactive') : 'no slot';
}

/** What a subscription does, from what both sides know. */
export function copyState(
  subscription: Awaited<ReturnType<typeof subscriptionState>>,
  slot: Awaited<ReturnType<typeof slotState>>,
): CopyState {
  if (subscription === 'no subscription') return subscription;
  if (slot === 'no slot') return slot;
  return subscription !== 'copying' && slot === 'active' ? 'taken by another database' : subscription;
}
