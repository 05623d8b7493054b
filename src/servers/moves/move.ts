import type pg from 'pg';
import { withOwner } from '../../database/pool/pool.ts';
import { inTransaction } from '../../database/transaction.ts';
import { hasSubscription } from '../replication/subscriptions.ts';
import { requireAgreementOn } from '../claims.ts';
import { readServers, type Server } from '../servers.ts';
import { renewTokens, requireCurrent } from '../tokens.ts';
import { pauseSchool } from './pause.ts';
import { type CopyProgress, copySchool } from './copy.ts';
import { endReplication, hasPublication, requireOnlyMove, subscriptionTo } from './replication.ts';
import {
  changeDirectory,
  commandOf,
  enableKeepalive,
  findRetained,
  findSchool,
  findTarget,
  hasSchema,
  isOpenOn,
  type Move,
  retainedSchemaOf,
  schemaOf,
  waitForDirectory,
  withMoveLock,
} from './school.ts';

/**
 * What `moveSchool` has just finished. After each step a stopped move can be continued. From `closed` to `opened`, the
 * requests of the school wait.
 */
export type MoveStep = 'prepared' | 'copied' | 'closed' | 'switched' | 'opened' | 'cleaned';

interface MoveOptions {
  /** The home, as the nodes reach it. */
  homeUrl: string;
  school: number;
  /** The name of a node, or `home`. */
  to: string;
  onStep?: (step: MoveStep) => void | Promise<void>;
  /** Called while rows are copied. */
  onProgress?: (tables: CopyProgress) => void;
  /** How long a move may wait without a table that was copied, or is being copied. */
  stallTimeoutMs?: number;
}

/** How long the target may take until it begins to copy the next table. */
const defaultStallTimeoutMs = 60_000;

interface Plan extends Pick<Move, 'school' | 'subdomain' | 'from' | 'to' | 'name'> {
  servers: Server[];
  /** Whether an earlier run has paused the school on the source. */
  isPaused: boolean;
}

/** @throws if the school cannot move to this server now */
async function planMove(home: pg.Client, { homeUrl, school, to: targetName }: MoveOptions): Promise<Plan> {
  const servers = await readServers(home, homeUrl);
  const to = findTarget(servers, targetName);
  const { current, subdomain } = await findSchool(home, servers, school);
  const { retained } = await findRetained(servers, school, { current, required: [current, to], subdomain, target: to });
  const from = current === to ? retained : current;
  if (!from) throw new Error(`The school is on ${targetName} already.`);
  if (retained && retained !== from)
    throw new Error(`An earlier move of the school is not confirmed. Run: ${commandOf(subdomain)} --confirm`);
  return { servers, school, subdomain, from, to, name: subscriptionTo(school, to), isPaused: retained === from };
}

/** @throws unless a move that has paused the school has copied it to this server, and was not partly undone */
async function requireCopy({ source, target, to, school, subdomain, name }: Move): Promise<void> {
  const isCopied =
    (await isOpenOn(target, school)) || ((await hasPublication(source, name)) && (await hasSubscription(target, name)));
  if (!isCopied || !(await hasSchema(target, schemaOf(school))))
    throw new Error(
      `The school is closed, and ${to.name} has no copy of it. Open it where it was: ${commandOf(subdomain)} ` +
        `${to.name} --cancel`,
    );
}

/** Opens a school on the target, with the jobs that wait on the source. At home this also changes the directory. */
async function openSchool({ source, target, school }: Move): Promise<void> {
  const { rows } = await source.query<{ jobs: string; version: number }>(
    'select core.move_jobs_read($1)::text as jobs, core.move_version($2) as version',
    [school, retainedSchemaOf(school)],
  );
  await inTransaction(target, async () => {
    const { rowCount } = await target.query(
      `update platform.tenant
       set schema_version = $2, node_id = null, claim = claim + 1, claim_id = gen_random_uuid()
       where id = $1 and node_id is not null`,
      [school, rows[0]?.version],
    );
    if (rowCount === 1) {
      await target.query('select core.move_note_remove($1)', [schemaOf(school)]);
      await target.query('select core.move_jobs_add($1)', [rows[0]?.jobs]);
    } else if (!(await isOpenOn(target, school))) throw new Error('The row of the school is missing on the target.');
  });
}

/** Sends the waiting requests of a school to the target, and opens it there. */
async function switchServer(home: pg.Client, move: Move, onSwitched: () => void | Promise<void>): Promise<void> {
  const { source, target, to, school } = move;
  // Until it is open there, its requests wait on the target as they do on the source.
  await target.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school]);
  if (to.id === null) {
    await openSchool(move);
    await waitForDirectory(home);
    await onSwitched();
  } else {
    await changeDirectory(home, school, to);
    await onSwitched();
    await openSchool(move);
  }
  for (const client of [source, target]) await client.query('select pg_advisory_unlock_all()');
}

/**
 * Moves a school to another server, or continues a move that stopped. The school is in service while its rows are
 * copied, and its requests wait for a moment at the end. The earlier server keeps its tables until `confirmMove`.
 * @returns how long the school was paused, in milliseconds; undefined if an earlier run had paused it
 * @throws if there is no such school or server, an earlier move is not confirmed, or the servers differ
 */
export async function moveSchool(home: pg.Client, options: MoveOptions): Promise<number | undefined> {
  const {
    school,
    onStep = () => undefined,
    onProgress = () => undefined,
    stallTimeoutMs = defaultStallTimeoutMs,
  } = options;
  return withMoveLock(home, school, async () => {
    const { servers, isPaused, ...plan } = await planMove(home, options);
    const nodes = [plan.from, plan.to].filter(({ id }) => id !== null);
    await requireCurrent(home, nodes);
    if (!isPaused) await requireAgreementOn(home, nodes, school);
    return withOwner(plan.from.url, (source) =>
      withOwner(plan.to.url, async (target) => {
        const move = { ...plan, source, target };
        await Promise.all([source, target].map(enableKeepalive));
        await requireOnlyMove(source, servers, move);
        let pausedAt: number | undefined;
        if (isPaused) await requireCopy(move);
        else {
          await copySchool(home, move, { onStep, onProgress, stallTimeoutMs });
          pausedAt = await pauseSchool(home, move, () => onStep('closed'));
        }
        await switchServer(home, move, () => onStep('switched'));
        const pausedMs = pausedAt === undefined ? undefined : performance.now() - pausedAt;
        await renewTokens(home, [move.from, move.to]);
        await onStep('opened');
        await endReplication(move);
        await onStep('cleaned');
        return pausedMs;
      }),
    );
  });
}
