import { afterAll } from '@jest/globals';
import { cancelMove } from '../../src/servers/moves/cancel.ts';
import { confirmMove } from '../../src/servers/moves/confirm.ts';
import { moveSchool, type MoveStep } from '../../src/servers/moves/move.ts';
import { ids, walk } from '../support/client/pages.ts';
import { until } from '../support/client/until.ts';
import { type School, serviceOfFile } from '../support/server/service.ts';
import { servers, signalServer, startServer, stopServer } from './servers.ts';
import { schoolOn as schoolOnServer, type ServerName } from './schools.ts';

/* What the tests of moves share. Jest loads it for each file, so each has a service of its own. */

const { home, nodes, forwarder } = servers();
const { withOwner, pg } = shared;
export const service = await serviceOfFile({ CLOSED_SCHOOL_WAIT_MS: '2500' });

export const urls: Record<ServerName, string> = { home, 'node-1': nodes[0]?.url ?? '', 'node-2': nodes[1]?.url ?? '' };
const poolOf = (connectionString: string) => new pg.Pool({ connectionString, max: 2 }).on('error', () => undefined);
export const pools = Object.fromEntries(
  Object.entries(urls).map(([name, connectionString]) => [name, poolOf(connectionString)]),
) as Record<ServerName, InstanceType<typeof pg.Pool>>;
afterAll(() => Promise.all(Object.values(pools).map((pool) => pool.end())));

/** Adds a school on this server. */
export const schoolOn = (name: ServerName) => schoolOnServer(service, name);

export const move = (
  school: School,
  to: ServerName,
  onStep?: (step: MoveStep) => void | Promise<void>,
  options: Pick<Parameters<typeof moveSchool>[1], 'stallTimeoutMs' | 'onProgress'> = {},
) =>
  withOwner(home, (client) =>
    moveSchool(client, { homeUrl: home, school: school.id, to, ...(onStep ? { onStep } : {}), ...options }),
  );
export const confirm = (school: School, from?: ServerName) =>
  withOwner(home, (client) =>
    confirmMove(client, { homeUrl: home, school: school.id, ...(from === undefined ? {} : { from }) }),
  );

export const cancel = (school: School, to: ServerName, isLost = false) =>
  withOwner(home, (client) => cancelMove(client, { homeUrl: home, school: school.id, to, isLost }));

/** Runs `work` while a node is down. The forwarder is on the server of node-1. */
export async function whileDown(name: 'node-2', work: () => Promise<void>): Promise<void> {
  const server = nodes.find((node) => node.name === name)?.server;
  if (!server) throw new Error(`There is no ${name}.`);
  await stopServer(server);
  try {
    await work();
  } finally {
    await startServer(server);
    await until(async () => (await pools[name].query('select').catch(() => undefined))?.rowCount);
  }
}

/** Runs `work` while node-2 accepts connections, but answers nothing. */
export async function whileHung(work: () => Promise<void>): Promise<void> {
  const server = nodes[1]?.server;
  if (!server) throw new Error('There is no node-2.');
  signalServer(server, 'SIGSTOP');
  try {
    await work();
  } finally {
    signalServer(server, 'SIGCONT');
    // The API has told the forwarder that it hangs, which refuses requests to it for a while.
    await until(async () => ((await refusedServers()) === 0 ? true : undefined));
  }
}

const refusedServers = () =>
  withOwner(
    forwarder,
    async (client) => (await client.query('select from core.refused_server where until > clock_timestamp()')).rowCount,
  );

export const rows = async (name: ServerName, text: string) =>
  (await pools[name].query<Record<string, unknown>>(text)).rows;
export const schemasOn = async (name: ServerName, { id }: School) =>
  (await rows(name, `select nspname from pg_namespace where nspname ~ '^(moved_)?tenant_${id}$'`)).map(
    ({ nspname }) => nspname,
  );

/** The names of what moves of a school use for its replication. */
export const publicationsOn = async (name: ServerName, { id }: School) =>
  (await rows(name, `select pubname from pg_publication where pubname ~ '^school_move_${id}_'`)).map(
    ({ pubname }) => pubname,
  );
export const slotsOn = async (name: ServerName, { id }: School) =>
  (await rows(name, `select slot_name from pg_replication_slots where slot_name ~ '^school_move_${id}_'`)).map(
    ({ slot_name }) => slot_name,
  );
export const subscriptionsOn = async (name: ServerName, { id }: School) =>
  (await rows(name, `select subname from pg_subscription where subname ~ '^school_move_${id}_'`)).map(
    ({ subname }) => subname,
  );
/** The slots with which subscribers copy tables. */
export const tableSlotsOn = (name: ServerName) =>
  rows(name, "select slot_name from pg_replication_slots where slot_name ~ '^pg_[0-9]+_sync_'");

/** Whether a statement like this waits for a lock. */
export const isWaiting = async (name: ServerName, text: string) =>
  (
    await rows(
      name,
      `select from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock' and query like '%${text}%'`,
    )
  ).length || undefined;

/** Inserts a row, as replication does, in a transaction that ends when `release` or `commit` is called. */
export async function holdRow(
  name: ServerName,
  text: string,
): Promise<{ release: () => Promise<void>; commit: () => Promise<void> }> {
  const client = await pools[name].connect();
  // A test may stop the server.
  client.on('error', () => undefined);
  await client.query(`begin; set local session_replication_role = replica; ${text}`);
  return {
    async release() {
      await client.query('rollback').catch(() => undefined);
      client.release(true);
    },
    async commit() {
      await client.query('commit');
      client.release(true);
    },
  };
}

export const audited = async ({ id }: School) =>
  ids(await walk(service.operator, `/api/platform/audit-logs?tenant_id=${id}`, 100));
