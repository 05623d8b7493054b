import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';
import { switchToRole } from '../domain/role-settings.ts';
import { sqlFile } from '../database/migrate/install.ts';
import { isLockConflict } from '../database/lock-conflicts.ts';
import { answerTimeoutMs, requireAnswer, withOwner, withOwnerInTime } from '../database/pool/pool.ts';
import { inTransaction } from '../database/transaction.ts';
import { type Node, readNodes } from './nodes/nodes.ts';
import { connectionOptions, connectionString, withoutLogin } from './replication/connection-string.ts';
import { forwarderSubscription } from './replication/names.ts';
import { dropLogin, forwarderLogin, forwarderRole, type Login, newPassword } from './replication/roles.ts';
import { dropSlot, hasSlot, hasSubscription, subscribeAndCopy, unsubscribe } from './replication/subscriptions.ts';
import { waitForSubscribers } from './replication/wait.ts';
import { homeName } from './servers.ts';
import { requireCurrent } from './tokens.ts';

/** A server to which a forwarder forwards requests, with the role that logs in there. */
interface ForwardedServer {
  url: string;
  login: Login;
}

/** Creates the foreign server of a node, or of the home. Its password is in the user mapping, which only owners see. */
async function defineServer(client: pg.Client, name: string, { url, login }: ForwardedServer): Promise<void> {
  const address = connectionString({
    ...withoutLogin(connectionOptions(url)),
    application_name: 'school_forwarder',
    options: switchToRole('school_api'),
  });
  await client.query(
    `create server ${name} foreign data wrapper plproxy options (p0 ${client.escapeLiteral(address)})`,
  );
  await client.query(
    `create user mapping for public server ${name}
     options (user ${client.escapeLiteral(login.user)}, password ${client.escapeLiteral(login.password)})`,
  );
  await client.query(`grant usage on foreign server ${name} to school_api`);
}

/** Copies core.operation, which belongs to the code. */
async function copyOperations(home: pg.Client, client: pg.Client): Promise<void> {
  const { rows: columns } = await home.query<{ definition: string }>(
    `select format('%I %s', attname, format_type(atttypid, atttypmod)) as definition
     from pg_attribute
     where attrelid = 'core.operation'::regclass and attnum > 0 and not attisdropped
     order by attnum`,
  );
  await client.query(`create table core.operation (${columns.map(({ definition }) => definition).join(', ')})`);
  await client.query('alter table core.operation add primary key (name)');
  const { rows } = await home.query<{ operations: unknown }>('select json_agg(o) as operations from core.operation o');
  await client.query('insert into core.operation select * from json_populate_recordset(null::core.operation, $1)', [
    JSON.stringify(rows[0]?.operations),
  ]);
}

/** The logins that a forwarder has, by server. */
async function readLogins(client: pg.Client): Promise<Map<string, Login>> {
  const { rows } = await client.query<Login & { server: string }>(
    `select srvname as server,
       (select option_value from pg_options_to_table(umoptions) where option_name = 'user') as user,
       (select option_value from pg_options_to_table(umoptions) where option_name = 'password') as password
     from pg_user_mappings where usename = 'public'`,
  );
  return new Map(rows.map(({ server, user, password }) => [server, { user, password }]));
}

/**
 * Creates the role of a forwarder on each server, or gives it a new password. A server that does not answer keeps its
 * own. @throws if the forwarder has none for it
 */
async function forwardedServers(
  client: pg.Client,
  homeUrl: string,
  nodes: readonly Node[],
  name: string,
): Promise<Map<string, ForwardedServer>> {
  const known = await readLogins(client);
  // Two nodes may be databases of one server, where the role is the same.
  const password = newPassword();
  const loginAt = async (server: string, url: string): Promise<Login> => {
    try {
      await requireAnswer(url);
      return await withOwner(url, (owner) => forwarderLogin(owner, name, password));
    } catch (error) {
      const login = known.get(server);
      if (!login) throw error;
      return login;
    }
  };
  const addresses = [[homeName, homeUrl] as const, ...nodes.map(({ id, url }) => [`node_${String(id)}`, url] as const)];
  const servers = new Map<string, ForwardedServer>();
  for (const [server, url] of addresses) servers.set(server, { url, login: await loginAt(server, url) });
  return servers;
}

/** How long requests that run since before the last installation may keep a new version of a forwarder waiting. */
const lockTimeoutSeconds = 3;

/** The schema of the functions that the last installation replaced. */
const earlierSchema = 'core_before';

/** Installs a forwarder in one transaction. @throws if old requests lock the tables of `earlierSchema` for too long */
const install = (home: pg.Client, client: pg.Client, servers: ReadonlyMap<string, ForwardedServer>): Promise<void> =>
  inTransaction(client, async () => {
    await client.query("select set_config('school.role_settings', '{}', true)");
    await client.query((await sqlFile('db/roles.sql')).text);
    await client.query('create extension if not exists plproxy; create schema if not exists platform');
    await client.query(
      'create table if not exists platform.tenant (id bigint primary key, subdomain text not null unique, node_id bigint)',
    );
    // The requests that are running, or wait for this transaction, go on in the functions of `core`. If these were gone,
    // a request would fail after the server of its school has committed, and be repeated. So they stay until the next
    // installation, in `core_before`, and the wait is for requests that are older than the last one.
    await client.query(`set local lock_timeout = '${String(lockTimeoutSeconds)}s'`);
    await client.query(`drop schema if exists ${earlierSchema} cascade; create schema if not exists core`);
    await client.query(`alter schema core rename to ${earlierSchema}; create schema core`);
    const { rows: known } = await client.query<{ srvname: string }>('select srvname from pg_foreign_server');
    for (const { srvname } of known) await client.query(`drop server ${client.escapeIdentifier(srvname)} cascade`);
    for (const [server, forwarded] of servers) await defineServer(client, server, forwarded);
    await copyOperations(home, client);
    await client.query((await sqlFile('db/forwarder/forwarder.sql')).text);
  });

/** Ends the requests that have kept `install` waiting for all of its time: those that wait for a silent server. */
const endLongRequests = (client: pg.Client) =>
  client.query(
    `select pg_terminate_backend(a.pid, 5000)
     from pg_stat_activity a
     where a.pid <> pg_backend_pid() and a.xact_start < clock_timestamp() - make_interval(secs => $1)
       and exists (
         select from pg_locks l
         join pg_class c on c.oid = l.relation and c.relnamespace = to_regnamespace('${earlierSchema}')
         where l.pid = a.pid and l.granted
           and l.database = (select oid from pg_database where datname = current_database()))`,
    [lockTimeoutSeconds],
  );

/** Lets the copy of the directory begin again: with an empty table, and without a slot that took too much WAL. */
async function forgetCopy(home: pg.Client, client: pg.Client, subscription: string): Promise<void> {
  await unsubscribe(client, subscription);
  await dropSlot(home, subscription);
  await client.query('delete from platform.tenant');
}

/** A hash of the directory. */
const hashDirectory = async (client: pg.Client) =>
  (
    await client.query<{ hash: string }>(
      `select md5(string_agg(concat_ws(' ', id, subdomain, coalesce(node_id::text, 'home')), ',' order by id)) as hash
       from platform.tenant`,
    )
  ).rows[0]?.hash;

/** How long a forwarder may take to copy what the home has just changed. */
const copyTimeoutMs = 5_000;

/**
 * Whether a forwarder has the directory of the home. One that was restored to an earlier moment has not: its slot at home
 * sends only what came later.
 */
async function hasCopied(home: pg.Client, client: pg.Client, subscription: string): Promise<boolean> {
  // Schools may be created meanwhile.
  for (const end = Date.now() + copyTimeoutMs; Date.now() < end;) {
    const expected = await hashDirectory(home);
    await waitForSubscribers(home, copyTimeoutMs, [subscription]);
    if ((await hashDirectory(client)) === expected) return true;
    await pause(100);
  }
  return false;
}

/**
 * Creates a forwarder in an empty database, or brings an existing one up to date with the nodes and the version of the
 * home. Requests go on meanwhile. Those that have run since before the last installation are ended.
 * @param name  unique among the forwarders of this home
 * @param homeUrl  the home, as the forwarder reaches it
 */
export async function createForwarder(
  home: pg.Client,
  { name, url, homeUrl }: { name: string; url: string; homeUrl: string },
): Promise<void> {
  const nodes = await readNodes(home);
  if (nodes.length === 0) throw new Error('There are no nodes. A single server needs no forwarder.');
  // It would get a directory that leads requests to the wrong servers.
  await requireCurrent(home, []);
  await withOwner(url, async (client) => {
    // What follows replaces the schema core and all foreign servers.
    const { rows } = await client.query<{ is_used: boolean; is_available: boolean }>(
      `select to_regprocedure('core.server_of(bigint)') is null and (
           exists (select from pg_namespace where nspname in ('core', 'platform'))
           or exists (select from pg_foreign_server)) as is_used,
         exists (select from pg_available_extensions where name = 'plproxy') as is_available`,
    );
    if (rows[0]?.is_used) throw new Error('This database is in use. A forwarder needs an empty one.');
    if (!rows[0]?.is_available)
      throw new Error('PL/Proxy is not installed on the server of the forwarder (postgresql-15-plproxy in Debian).');
    const servers = await forwardedServers(client, homeUrl, nodes, name);
    try {
      await install(home, client, servers);
    } catch (error) {
      if (!isLockConflict(error)) throw error;
      await endLongRequests(client);
      await install(home, client, servers);
    }
    const subscription = forwarderSubscription(name);
    const copy = async () => {
      if (!(await hasSubscription(client, subscription)) || !(await hasSlot(home, subscription)))
        await forgetCopy(home, client, subscription);
      await subscribeAndCopy(client, subscription, homeUrl, 'school_directory');
    };
    await copy();
    if (await hasCopied(home, client, subscription)) return;
    await forgetCopy(home, client, subscription);
    await copy();
  });
}

/**
 * Removes a forwarder from its home. Its database stays.
 * @param url  the forwarder; undefined if it is lost
 * @throws if there is none with this name
 */
export async function removeForwarder(home: pg.Client, name: string, url: string | undefined): Promise<void> {
  const { rowCount } = await home.query('select from pg_replication_slots where slot_name = $1', [
    forwarderSubscription(name),
  ]);
  if (rowCount === 0) throw new Error(`There is no forwarder ${name}.`);
  if (url !== undefined) await withOwner(url, (client) => unsubscribe(client, forwarderSubscription(name)));
  await dropSlot(home, forwarderSubscription(name));
  await dropLogin(home, forwarderRole(name));
  for (const node of await readNodes(home))
    await withOwnerInTime(node.url, answerTimeoutMs, (client) => dropLogin(client, forwarderRole(name))).catch(
      () => undefined,
    );
}
