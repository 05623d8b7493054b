import type pg from 'pg';
import { classify } from '../../database/errors.ts';
import { answerTimeoutMs, requireAnswer, withOwnerInTime } from '../../database/pool/pool.ts';
import { reasonOf } from '../../domain/reason.ts';
import { waitForSubscribers } from '../replication/wait.ts';
import type { Server } from '../servers.ts';

/** A move of a school, with connections to both servers as the owner. */
export interface Move {
  school: number;
  subdomain: string;
  from: Server;
  to: Server;
  source: pg.Client;
  target: pg.Client;
  /** The subscription of the target, its slot, and the publication of the source. */
  name: string;
}

/** How long the forwarders may take to learn the new server. */
const directoryTimeoutMs = 2_000;

export const schemaOf = (school: number) => `tenant_${String(school)}`;
/** The tables at the earlier server, until the move is confirmed. */
export const retainedSchemaOf = (school: number) => `moved_tenant_${String(school)}`;

/** The command that moves a school, without the server. */
export const commandOf = (subdomain: string) => `school tenant move ${subdomain}`;

/** Whether a server could not be reached. */
const isUnreachable = (error: unknown) => classify(error).apiError?.error === 'unavailable';

export const answers = (server: Pick<Server, 'url'>): Promise<boolean> =>
  requireAnswer(server.url).then(
    () => true,
    (error: unknown) => {
      if (isUnreachable(error)) return false;
      throw error;
    },
  );

export const hasSchema = async (client: pg.ClientBase, name: string) =>
  (await client.query<{ exists: boolean }>('select to_regnamespace($1) is not null as exists', [name])).rows[0]
    ?.exists === true;

/** Whether a server has the school open, instead of a copy of its row. */
export const isOpenOn = async (client: pg.ClientBase, school: number) =>
  (await client.query('select from platform.tenant where id = $1 and node_id is null and schema_version > 0', [school]))
    .rowCount === 1;

/** The locks of a connection whose machine has lost power would last for two hours. */
export async function enableKeepalive(client: pg.ClientBase): Promise<void> {
  await client.query('set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3');
}

/** Runs `work` unless another command works on the moves of the school. */
export async function withMoveLock<T>(home: pg.ClientBase, school: number, work: () => Promise<T>): Promise<T> {
  await enableKeepalive(home);
  const { rows } = await home.query<{ is_locked: boolean }>(
    "select pg_try_advisory_lock(core.lock_key('move', $1)) as is_locked",
    [school],
  );
  if (!rows[0]?.is_locked) throw new Error('Another command is moving this school. Wait until it has ended.');
  try {
    return await work();
  } finally {
    await home.query("select pg_advisory_unlock(core.lock_key('move', $1))", [school]).catch(() => undefined);
  }
}

/** The subdomain and the server of a school in the directory. @throws if there is no such school */
export async function findSchool(
  home: pg.ClientBase,
  servers: Server[],
  school: number,
): Promise<{ subdomain: string; current: Server }> {
  const { rows } = await home.query<{ subdomain: string; node_id: number | null }>(
    'select subdomain, node_id::integer as node_id from platform.tenant where id = $1',
    [school],
  );
  const current = rows[0] && servers.find(({ id }) => id === rows[0]?.node_id);
  if (!current) throw new Error(`There is no school ${String(school)}, or its node has not joined.`);
  return { subdomain: rows[0]?.subdomain ?? '', current };
}

/** @throws if there is no server of this name */
export function findTarget(servers: Server[], name: string): Server {
  const target = servers.find((server) => server.name === name);
  if (!target) throw new Error(`There is no node ${name}, or it is still joining.`);
  return target;
}

const hasRetained = (server: Server, school: number) =>
  withOwnerInTime(server.url, answerTimeoutMs, (client) => hasSchema(client, retainedSchemaOf(school)));

interface Search {
  /** The server of the school in the directory. */
  current: Server;
  /** The servers that must answer. */
  required: Server[];
  subdomain: string;
  /** The server to which the school moves. */
  target?: Server | undefined;
}

/**
 * The server that still has the tables of a school that was moved away from it; `current` if that is one. A server that
 * does not answer does not keep the schools of the others from moving: its tables are found when it is back.
 * @throws if a server of `required` does not answer, or if several have kept the tables and `current` has not
 */
export async function findRetained(
  servers: Server[],
  school: number,
  { current, required, subdomain, target }: Search,
): Promise<{ retained: Server | undefined; unreachable: Server[] }> {
  const unreachable: Server[] = [];
  const found = await Promise.all(
    servers.map((server) =>
      hasRetained(server, school).catch((error: unknown) => {
        if (!isUnreachable(error)) throw error;
        unreachable.push(server);
        if (!required.includes(server)) return false;
        const advice =
          server === target && server.id !== null
            ? ` Repeat the command when it is back. If it is lost, give up the move: ${commandOf(subdomain)} ` +
              `${server.name} --cancel --lost`
            : '';
        throw new Error(`The server ${server.name} does not answer: ${reasonOf(error)}.${advice}`, { cause: error });
      }),
    ),
  );
  const retaining = servers.filter((_, n) => found[n]);
  if (retaining.length > 1 && !retaining.includes(current))
    throw new Error(
      `Several servers have kept tables of this school: ${retaining.map(({ name }) => name).join(', ')}. Find out which ` +
        'are older, and delete them there: ' +
        retaining.map(({ name }) => `${commandOf(subdomain)} ${name} --confirm`).join(' or '),
    );
  return { retained: retaining.includes(current) ? current : retaining[0], unreachable };
}

/** Changes the server of a school in the directory, and waits until the forwarders know it. */
export async function changeDirectory(home: pg.ClientBase, school: number, { id }: Server): Promise<void> {
  await home.query('update platform.tenant set node_id = $2 where id = $1 and node_id is distinct from $2', [
    school,
    id,
  ]);
  await waitForDirectory(home);
}

/** Waits until the forwarders know the new server, but not longer than one that is not connected may take. */
export const waitForDirectory = (home: pg.ClientBase) => waitForSubscribers(home, directoryTimeoutMs);
