import type pg from 'pg';
import { tableExists } from '../database/migrate/versions.ts';
import { requireAnswer, withOwner } from '../database/pool/pool.ts';
import { reasonOf } from '../domain/reason.ts';

/** The name of the home among the servers. */
export const homeName = 'home';

/** A server of the platform, as the home knows it. */
export interface Server {
  /** Null for the home, and for a single server. */
  id: number | null;
  /** The name of a node, or `home`. */
  name: string;
  url: string;
}

/** What a command found on one server; `error` if the server could not be asked. */
export type OfServer<T> =
  { server: Server; result: T; error?: never } | { server: Server; result?: never; error: string };

/** The home, then the nodes that have joined. On a node and on a single server, only the database itself. */
export async function readServers(home: pg.Client, homeUrl: string): Promise<[Server, ...Server[]]> {
  const itself = { id: null, name: homeName, url: homeUrl };
  if (!(await tableExists(home, 'platform.node'))) return [itself];
  // Only these columns: the database may be waiting for the migration that adds others.
  const { rows } = await home.query<Server>(
    "select id::integer, name, url from platform.node where not is_this and status <> 'joining' order by id",
  );
  return [itself, ...rows];
}

/**
 * The servers on which a command works: the database of the command, then its nodes, or only the one of this name.
 * @throws for an unknown name
 */
export async function serversOfCommand(ownerUrl: string, name?: string): Promise<[Server, ...Server[]]> {
  const servers = await withOwner(ownerUrl, (home) => readServers(home, ownerUrl));
  if (name === undefined) return servers;
  const server = servers.find((each) => each.name === name);
  if (!server) throw new Error(`There is no node ${name}. Servers: ${servers.map((each) => each.name).join(', ')}.`);
  return [server];
}

/** The node of a school in the directory; undefined if it is on this database. */
export async function nodeOfSchool(home: pg.Client, schoolId: string): Promise<Server | undefined> {
  if (!(await tableExists(home, 'platform.node'))) return undefined;
  const { rows } = await home.query<Server>(
    `select n.id::integer, n.name, n.url from platform.tenant t join platform.node n on n.id = t.node_id
     where t.id = $1 and not n.is_this`,
    [schoolId],
  );
  return rows[0];
}

/** The server of a school. The home if the directory names no other. */
export const serverOfSchool = async (ownerUrl: string, schoolId: string): Promise<Server> =>
  (await withOwner(ownerUrl, (home) => nodeOfSchool(home, schoolId))) ?? { id: null, name: homeName, url: ownerUrl };

/** `work` on a server. @throws at once if a node is silent, for which `work` could wait forever */
export async function onServer<T>(server: Server, work: (server: Server) => Promise<T>): Promise<T> {
  if (server.id !== null) await requireAnswer(server.url);
  return work(server);
}

/** Runs `work` on all servers at the same time. A server that fails has an error and does not stop the others. */
export const onEachServer = <T>(
  servers: readonly Server[],
  work: (server: Server) => Promise<T>,
): Promise<OfServer<T>[]> =>
  Promise.all(
    servers.map((server) =>
      onServer(server, work).then(
        (result): OfServer<T> => ({ server, result }),
        (error: unknown): OfServer<T> => ({ server, error: reasonOf(error) }),
      ),
    ),
  );

/**
 * @throws if a database is not this server: the address of a node leads to a copy of another one, for example because
 *   the same backup was restored on both
 */
export async function requireServer(client: pg.ClientBase, { id }: Pick<Server, 'id'>): Promise<void> {
  const { rows } = await client.query<{ server: string }>('select core.server_id() as server');
  if (id !== null && rows[0]?.server !== `node_${String(id)}`)
    throw new Error('The database at its address is not this node.');
}
