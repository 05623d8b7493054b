import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';
import { withOwner } from '../../database/pool/pool.ts';
import { connectionOptions, connectionString, parseConnectionString, withoutLogin } from './connection-string.ts';
import { dropLogin, refuseLogin, subscriberLogin } from './roles.ts';

/** How long the first copies of new tables may take. They have few rows. */
export const copyTimeoutMs = 60_000;

/** Selects the subscription with the name $1 in the current database. The catalog has those of all databases. */
export const ownSubscription =
  'from pg_subscription where subname = $1 and subdbid = (select oid from pg_database where datname = current_database())';

export const hasSubscription = async (client: pg.ClientBase, name: string) =>
  (await client.query(`select ${ownSubscription}`, [name])).rowCount === 1;

/** The address under which a server has subscribed; undefined if it has not. */
export const subscribedAddress = async (client: pg.ClientBase, name: string): Promise<string | undefined> =>
  (await client.query<{ address: string }>(`select subconninfo as address ${ownSubscription}`, [name])).rows[0]
    ?.address;

/** Whether a server keeps its changes for the subscription of another. A slot that took too much WAL is lost. */
export const hasSlot = async (client: pg.ClientBase, name: string) =>
  (
    await client.query("select from pg_replication_slots where slot_name = $1 and wal_status is distinct from 'lost'", [
      name,
    ])
  ).rowCount === 1;

/** Whether a server has a subscription to `publisher` without its slot, as after the publisher was restored. */
export const hasLostSlot = async (client: pg.ClientBase, name: string, publisher: pg.ClientBase): Promise<boolean> =>
  (await hasSubscription(client, name)) && !(await hasSlot(publisher, name));

/**
 * Subscribes, or gives a subscription the current address. The slot on the other server has the same name, and so has the
 * role that logs in there.
 * @param options  of `create subscription`
 * @param address  that of an earlier subscription; by default that of `toUrl`
 */
export async function subscribe(
  client: pg.Client,
  name: string,
  toUrl: string,
  publications: string,
  options: string,
  address?: string,
): Promise<void> {
  const login = await withOwner(toUrl, (publisher) => subscriberLogin(publisher, name));
  const server = address === undefined ? connectionOptions(toUrl) : parseConnectionString(address);
  const connection = client.escapeLiteral(connectionString({ ...withoutLogin(server), ...login }));
  if (await hasSubscription(client, name)) {
    // The address or the password may be new.
    await client.query(`alter subscription ${name} connection ${connection}`);
    return;
  }
  // Created by itself, because the subscription would wait forever for the slot of a database of its own server.
  await withOwner(toUrl, (publisher) =>
    publisher.query(
      `select pg_create_logical_replication_slot($1, 'pgoutput')
       where not exists (select from pg_replication_slots where slot_name = $1)`,
      [name],
    ),
  );
  await client.query(
    `create subscription ${name} connection ${connection} publication ${publications}
     with (create_slot = false, ${options})`,
  );
}

interface CopiedTables {
  copied: number;
  total: number;
}

interface WaitForTablesOptions {
  timeoutMs?: number;
  onProgress?: (tables: CopiedTables) => void;
}

/** Waits until all tables of a subscription are copied. @throws if that takes longer than `timeoutMs` */
export async function waitForTables(
  client: pg.Client,
  name: string,
  { timeoutMs = copyTimeoutMs, onProgress = () => undefined }: WaitForTablesOptions = {},
): Promise<void> {
  const end = Date.now() + timeoutMs;
  for (;;) {
    const { rows } = await client.query<{ missing: string | null } & CopiedTables>(
      `select string_agg(r.srrelid::regclass::text, ', ') filter (where r.srsubstate <> 'r') as missing,
         count(*) filter (where r.srsubstate = 'r')::integer as copied, count(*)::integer as total
       from pg_subscription_rel r
       join pg_subscription s on s.oid = r.srsubid
       where s.subname = $1`,
      [name],
    );
    const [{ missing, copied, total } = { missing: null, copied: 0, total: 0 }] = rows;
    onProgress({ copied, total });
    if (missing === null) return;
    if (Date.now() > end)
      throw new Error(`These tables were not copied in time: ${missing}. See the log of the server.`);
    await pause(50);
  }
}

/** Subscribes, with a copy of the rows that exist. @throws if the copies take too long */
export async function subscribeAndCopy(
  client: pg.Client,
  name: string,
  toUrl: string,
  publications: string,
  address?: string,
): Promise<void> {
  await subscribe(client, name, toUrl, publications, 'copy_data = true', address);
  await waitForTables(client, name);
}

/**
 * Drops a subscription, but not its slot: the other server no longer exists, or `dropSlot` follows, which also succeeds
 * if a stopped command has left only one of both.
 */
export async function unsubscribe(client: pg.Client, name: string): Promise<void> {
  if (!(await hasSubscription(client, name))) return;
  await client.query(`alter subscription ${name} disable`);
  await client.query(`alter subscription ${name} set (slot_name = none)`);
  await client.query(`drop subscription ${name}`);
}

/** How long a subscriber may keep a slot from being dropped, by connecting again and again. */
const dropSlotTimeoutMs = 5_000;

/**
 * Drops a replication slot, if it exists, and the role of the subscriber. Ends the connection of the subscriber that uses
 * it.
 */
export async function dropSlot(client: pg.ClientBase, name: string): Promise<void> {
  const end = Date.now() + dropSlotTimeoutMs;
  const isOfServer = name.startsWith('school_');
  // Otherwise a subscriber that is alive, such as that of a node that is removed as lost, connects again in between.
  if (isOfServer) await refuseLogin(client, name);
  for (;;) {
    await client.query('select pg_terminate_backend(active_pid, 5000) from pg_replication_slots where slot_name = $1', [
      name,
    ]);
    try {
      await client.query('select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1', [
        name,
      ]);
      if (isOfServer) await dropLogin(client, name);
      return;
    } catch (error) {
      // object_in_use: the subscriber has connected again.
      if (!(Error.isError(error) && 'code' in error && error.code === '55006') || Date.now() > end) throw error;
      await pause(100);
    }
  }
}
