import type pg from 'pg';
import { tableExists } from '../database/migrate/migrate.ts';
import { requireAnswer, withOwner } from '../database/pool/pool.ts';
import type { Server } from './school-server.ts';

/** The name of the home among the servers. */
export const homeName = 'home';

/** What a command found on one server; `error` if the server could not be asked. */
export type OfServer<T> =
  { server: Server; result: T; error?: never } | { server: Server; result?: never; error: string };

export const reasonOf = (error: unknown): string =>
  error instanceof Error ? error.message || String(error) : String(error);

/** The nodes that have joined; none on a node and on a single server. */
async function nodesOf(client: pg.Client): Promise<Server[]> {
  if (!(await tableExists(client, 'platform.node'))) return [];
  // Only these columns: the database may be waiting for the migration that adds others.
  const { rows } = await client.query<Server>(
    "select name, url from platform.node where not is_this and status <> 'joining' order by id",
  );
  return rows;
}

/**
 * The servers on which a command works: the database of the command, then its nodes, or only the one of this name.
 * @throws for an unknown name
 */
export async function readServers(ownerUrl: string, name?: string): Promise<[Server, ...Server[]]> {
  const servers: [Server, ...Server[]] = [{ name: homeName, url: ownerUrl }, ...(await withOwner(ownerUrl, nodesOf))];
  if (name === undefined) return servers;
  const server = servers.find((each) => each.name === name);
  if (!server) throw new Error(`There is no node ${name}. Servers: ${servers.map((each) => each.name).join(', ')}.`);
  return [server];
}

/** The server of a school, which is named by its id. The home if the directory names no other. */
export async function serverOfSchool(ownerUrl: string, id: string): Promise<Server> {
  const name = await withOwner(ownerUrl, async (client) => {
    if (!(await tableExists(client, 'platform.node'))) return undefined;
    const { rows } = await client.query<{ name: string }>(
      `select n.name from platform.tenant t join platform.node n on n.id = t.node_id
       where t.id = $1 and not n.is_this`,
      [id],
    );
    return rows[0]?.name;
  });
  const [server] = await readServers(ownerUrl, name ?? homeName);
  return server;
}

/** `work` on a server. @throws at once if a node is silent, for which `work` could wait forever */
export async function onServer<T>(server: Server, work: (server: Server) => Promise<T>): Promise<T> {
  if (server.name !== homeName) await requireAnswer(server.url);
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
