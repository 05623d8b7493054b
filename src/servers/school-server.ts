import type pg from 'pg';
import { type Imported, importTenant, readArchiveHeader } from '../database/archive.ts';
import { findTenant, type NamedTenant } from '../database/find-tenant.ts';
import { requireAnswer, withOwner } from '../database/pool/pool.ts';
import { reasonOf } from '../domain/reason.ts';
import { waitForSubscribers } from './replication/wait.ts';
import { requireAgreementOn } from './claims.ts';
import { nodeOfSchool, requireServer } from './servers.ts';
import { requireCurrent } from './tokens.ts';

/** How long a command waits until the home has what a node has changed. */
const homeTimeoutMs = 2_000;

/** A node that the home cannot use now, with the reason. */
export class NodeError extends Error {}

/** Runs `work` on a node. @throws NodeError if it does not answer */
async function onNode<T>(name: string, url: string, work: (node: pg.Client) => Promise<T>): Promise<T> {
  const state = { isConnected: false };
  try {
    await requireAnswer(url);
    return await withOwner(url, (node) => {
      state.isConnected = true;
      return work(node);
    });
  } catch (error) {
    if (state.isConnected) throw error;
    throw new NodeError(`The node ${name} does not answer: ${reasonOf(error)}`, { cause: error });
  }
}

/**
 * Finds a school in the directory, and runs `work` on its server: the home, or its node. Returns when the home has the
 * changes.
 * @param home  a database; if it is a node or a single server, `work` runs on it
 * @throws if there is no such school; NodeError if its node does not answer
 */
export async function onServerOfSchool<T>(
  home: pg.Client,
  idOrSubdomain: string,
  work: (server: pg.Client, tenant: NamedTenant) => Promise<T>,
): Promise<T> {
  const tenant = await findTenant(home, idOrSubdomain);
  const node = await nodeOfSchool(home, tenant.id);
  if (!node) return work(home, tenant);
  return onNode(node.name, node.url, async (client) => {
    const result = await work(client, tenant);
    await waitForSubscribers(client, homeTimeoutMs);
    return result;
  });
}

/** The result of an import, and its server. */
export interface ImportedSchool extends Imported {
  status: string;
  server: string;
}

async function statusOf(client: pg.ClientBase, id: number): Promise<string | undefined> {
  const { rows } = await client.query<{ status: string }>(
    'select status from platform.tenant where id = $1 and schema_version > 0',
    [id],
  );
  return rows[0]?.status;
}

/** Whether a node has the school, once no earlier connection works on it any more. */
const hasImported = (name: string, url: string, id: number) =>
  onNode(name, url, async (node) => {
    await node.query('select pg_advisory_lock(core.tenant_lock_key($1))', [id]);
    return (await statusOf(node, id)) !== undefined;
  });

/**
 * Imports a school where it belongs: on the node of this name, on the active node with the fewest schools, or at home.
 * Until the node has all of it, the directory has a reservation, and nobody can log in. The same call continues an
 * import that stopped.
 * @throws if the file or the place is refused; then nothing has changed. NodeError if that is not certain
 */
export async function importSchool(
  home: pg.Client,
  file: string,
  {
    subdomain,
    node: nodeName,
    onProgress,
  }: {
    subdomain?: string | undefined;
    node?: string | undefined;
    onProgress?: (bytes: number) => void;
  },
): Promise<ImportedSchool> {
  const { rows: here } = await home.query<{ name: string | null }>('select (core.this_node()).name');
  if (here[0]?.name != null)
    throw new Error(
      `This database is the node ${here[0].name}. Run the command with the DATABASE_URL of the home, and --node.`,
    );
  await requireCurrent(home, []);
  const header = await readArchiveHeader(home, file, subdomain);
  // After a restore, the directory may lack a school that a node has.
  await requireAgreementOn(home, [], header.id);
  const { rows } = await home.query<{ id: number; name: string; url: string; reserved_at: string | null }>(
    `select n.id::integer as id, n.name, n.url, r.reserved_at::text as reserved_at
     from core.archive_reserve($1, $2) r
     join platform.node n on n.id = r.node_id`,
    [header.text, nodeName ?? null],
  );
  const [node] = rows;
  const options = { header: header.text, onProgress };
  if (!node) {
    const imported = await importTenant(home, file, options);
    return { ...imported, status: (await statusOf(home, imported.id)) ?? '', server: 'home' };
  }
  try {
    return await onNode(node.name, node.url, async (client) => {
      await requireServer(client, node);
      const imported = await importTenant(client, file, options);
      await waitForSubscribers(client, homeTimeoutMs);
      return { ...imported, status: (await statusOf(client, imported.id)) ?? '', server: node.name };
    });
  } catch (error) {
    // A reservation of an earlier command may be that of a school that the node has just got.
    if (node.reserved_at === null) throw error;
    const isThere = await hasImported(node.name, node.url, header.id).catch(() => undefined);
    if (isThere === false) {
      await home.query('select core.school_release($1, $2)', [header.id, node.reserved_at]);
      throw error;
    }
    throw new NodeError(
      isThere
        ? `The node ${node.name} has imported school ${String(header.id)}, but the connection ended: ${reasonOf(error)}`
        : `The node ${node.name} no longer answers, so it is not certain whether school ${String(header.id)} was ` +
            `imported: ${reasonOf(error)}. Its subdomain is reserved. Repeat the command when the node answers.`,
      { cause: error },
    );
  }
}
