import type pg from 'pg';
import { withOwner } from '../../database/pool/pool.ts';
import { asReplica } from '../../database/transaction.ts';
import { unsubscribe } from '../replication/subscriptions.ts';
import { readServers, type Server } from '../servers.ts';
import { endPublication, requireOnlyMove, subscriptionTo } from './replication.ts';
import {
  answers,
  changeDirectory,
  enableKeepalive,
  findRetained,
  findSchool,
  findTarget,
  isOpenOn,
  type Move,
  schemaOf,
  waitForDirectory,
  withMoveLock,
} from './school.ts';
import { deleteSharedRows, dropSchema } from './tables.ts';

interface CancelOptions {
  /** The home, as the nodes reach it. */
  homeUrl: string;
  school: number;
  /** The server to which the school was moving: the name of a node, or `home`. */
  to: string;
  /** Whether this server no longer exists. */
  isLost?: boolean;
}

interface Plan extends Pick<Move, 'school' | 'subdomain' | 'from' | 'to' | 'name'> {
  servers: Server[];
  /** The server of the school in the directory. */
  current: Server;
  /** Whether the move has paused the school on the source. */
  isPaused: boolean;
}

/** @throws if it is too late to give up the move, or the target is lost but answers */
async function planCancel(
  home: pg.Client,
  { homeUrl, school, to: targetName, isLost = false }: CancelOptions,
): Promise<Plan> {
  const servers = await readServers(home, homeUrl);
  const { current, subdomain } = await findSchool(home, servers, school);
  const to = findTarget(servers, targetName);
  if (isLost && (to.id === null || (await answers(to))))
    throw new Error(`The server ${targetName} answers. Leave out --lost.`);
  const { retained } = await findRetained(servers, school, {
    current,
    required: isLost ? [current].filter((server) => server !== to) : [current, to],
    subdomain,
    target: to,
  });
  if (retained === to || (!retained && current === to))
    throw new Error(
      isLost
        ? 'No other server has kept the tables of this school. Restore the node from a backup.'
        : `The school is open on ${current.name}. Confirm the move, then move it back.`,
    );
  const from = retained ?? current;
  if (current !== to && current !== from)
    throw new Error(`The school is open on ${current.name}, which is not ${to.name}.`);
  const name = subscriptionTo(school, to);
  return { servers, current, school, subdomain, from, to, name, isPaused: retained !== undefined };
}

/** Opens a school again on the server that has paused it. */
async function reopen(home: pg.Client, source: pg.Client, { from, school }: Plan): Promise<void> {
  if (from.id !== null) await changeDirectory(home, school, from);
  await source.query('select core.move_reopen($1)', [school]);
  if (from.id === null) await waitForDirectory(home);
}

/** @throws if the school is open on the target. It cannot be opened there any more while the connection lasts */
async function keepClosed(target: pg.Client, { school, current, to }: Plan): Promise<void> {
  // A command that is lost may still be at work in the server.
  await target.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school]);
  if (await isOpenOn(target, school))
    throw new Error(
      current === to
        ? `The school is open on ${to.name}. Confirm the move, then move it back.`
        : `The school is open on ${to.name} too, but the directory names ${current.name}. Remove the node ${to.name}.`,
    );
}

/** Deletes the copies of a school on the server that it does not move to. */
async function deleteCopies(target: pg.Client, { to, school }: Plan): Promise<void> {
  await asReplica(target, () => deleteSharedRows(target, to, school));
  await dropSchema(target, schemaOf(school));
}

/**
 * Gives up a move, and deletes the copies: before the school is opened on the target. If the target is lost, with
 * `isLost`, also later: then the school has what it had when it was paused.
 * @throws if it is too late, or the target is lost but answers
 */
export async function cancelMove(home: pg.Client, options: CancelOptions): Promise<void> {
  return withMoveLock(home, options.school, async () => {
    const plan = await planCancel(home, options);
    const { servers, from, to, name, isPaused } = plan;
    await withOwner(from.url, async (source) => {
      await requireOnlyMove(source, servers, plan);
      if (options.isLost) {
        if (isPaused) await reopen(home, source, plan);
        await endPublication(source, name, { isTargetLost: true });
        return;
      }
      await withOwner(to.url, async (target) => {
        await enableKeepalive(target);
        await keepClosed(target, plan);
        await unsubscribe(target, name);
        if (isPaused) await reopen(home, source, plan);
        await deleteCopies(target, plan);
        // Last, because until then it keeps other moves of the school from beginning.
        await endPublication(source, name);
      });
    });
  });
}
