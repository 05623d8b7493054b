import type pg from 'pg';
import { withOwner } from '../../database/pool/pool.ts';
import { asReplica } from '../../database/transaction.ts';
import { readServers, type Server } from '../servers.ts';
import { endReplication, subscriptionTo } from './replication.ts';
import { commandOf, findRetained, findSchool, hasSchema, retainedSchemaOf, schemaOf, withMoveLock } from './school.ts';
import { deleteSharedRows, dropSchema } from './tables.ts';

interface ConfirmOptions {
  /** The home, as the nodes reach it. */
  homeUrl: string;
  school: number;
  /** The name of the earlier server; needed if several have kept tables. */
  from?: string;
}

/** The server of a moved school, and the earlier one, which has kept its tables. @throws if there is no such server */
async function findServers(home: pg.Client, { homeUrl, school, from: sourceName }: ConfirmOptions) {
  const servers = await readServers(home, homeUrl);
  const { current, subdomain } = await findSchool(home, servers, school);
  const named = servers.filter(({ name }) => name === sourceName);
  const { retained, unreachable } = await findRetained(sourceName === undefined ? servers : named, school, {
    current,
    required: [current, ...named],
    subdomain,
  });
  if (retained) return { current, retained, subdomain };
  if (sourceName !== undefined) throw new Error(`${sourceName} has kept no tables of this school.`);
  if (unreachable.length > 0)
    throw new Error(
      `No server that answers has kept tables of this school. These do not answer: ` +
        `${unreachable.map(({ name }) => name).join(', ')}. Repeat the command when they are back.`,
    );
  throw new Error('No move of this school has to be confirmed.');
}

/** The claim of a school that a server has open; undefined if it has not. */
const readClaim = async (client: pg.ClientBase, school: number): Promise<number | undefined> =>
  (
    await client.query<{ claim: number }>(
      'select claim from platform.tenant where id = $1 and node_id is null and schema_version > 0',
      [school],
    )
  ).rows[0]?.claim;

/** @throws unless the tables that a server has kept are older than the school on its server */
async function requireOlder(
  source: pg.Client,
  { school, retained, current, claim }: { school: number; retained: Server; current: Server; claim: number },
): Promise<void> {
  const { rows } = await source.query<{ claim: number | null }>('select core.move_claim($1) as claim', [
    retainedSchemaOf(school),
  ]);
  const kept = rows[0]?.claim ?? 0;
  if (kept >= claim)
    throw new Error(
      `The tables on ${retained.name} have the claim ${String(kept)}, and the school on ${current.name} has ` +
        `${String(claim)}: it was restored to an earlier moment. Nothing was deleted. Look at: school node verify`,
    );
}

/**
 * Deletes what the earlier server of a moved school has kept.
 * @throws if it has nothing, or the move is not finished
 */
export async function confirmMove(home: pg.Client, options: ConfirmOptions): Promise<void> {
  const { school } = options;
  return withMoveLock(home, school, async () => {
    const { current, retained, subdomain } = await findServers(home, options);
    if (retained === current)
      throw new Error(
        `The move is not finished. Repeat it, with the server to which the school moves: ${commandOf(subdomain)}`,
      );
    const claim = await withOwner(current.url, async (client) =>
      (await hasSchema(client, schemaOf(school))) ? readClaim(client, school) : undefined,
    );
    if (claim === undefined)
      throw new Error(`The move is not finished. Repeat it: ${commandOf(subdomain)} ${current.name}`);
    await withOwner(retained.url, async (source) => {
      await requireOlder(source, { school, retained, current, claim });
      await withOwner(current.url, (target) =>
        endReplication({ source, target, name: subscriptionTo(school, current) }),
      );
      await asReplica(source, async () => {
        await source.query('select core.move_jobs_delete($1)', [school]);
        await deleteSharedRows(source, retained, school);
      });
      await dropSchema(source, retainedSchemaOf(school));
    });
  });
}
