import type pg from 'pg';
import { findTenant } from '../database/find-tenant.ts';
import { reasonOf } from '../domain/reason.ts';
import { cancelMove } from '../servers/moves/cancel.ts';
import { confirmMove } from '../servers/moves/confirm.ts';
import { moveSchool } from '../servers/moves/move.ts';
import { planMoves } from '../servers/moves/rebalance.ts';
import type { Config } from '../process/config.ts';
import { exitCodes } from './exit-codes.ts';
import { withHome } from './node.ts';
import { confirm, counted, type Format, print, table } from './output.ts';
import { progress } from './progress.ts';

export interface MoveOptions {
  confirm?: boolean;
  cancel?: boolean;
  lost?: boolean;
  homeUrl?: string;
  yes?: boolean;
}

/** Moves a school, with a bar on a terminal. @returns how long it was closed, in milliseconds; null if an earlier run had closed it */
async function moveWithProgress(home: pg.Client, homeUrl: string, school: number, to: string): Promise<number | null> {
  const bar = progress(100);
  try {
    const closedMs = await moveSchool(home, {
      homeUrl,
      school,
      to,
      onProgress: ({ copied, total }) => bar.update((copied / Math.max(total, 1)) * 100, 'tables copied'),
    });
    return closedMs === undefined ? null : Math.round(closedMs);
  } finally {
    bar.stop();
  }
}

/** `school tenant move`. @throws if the move is refused; see `moveSchool`, `confirmMove` and `cancelMove` */
export const tenantMove = (
  config: Config,
  name: string,
  node: string | undefined,
  { json, homeUrl: ownHomeUrl, yes, ...options }: Format & MoveOptions,
): Promise<void> =>
  withHome(config, async (home, url) => {
    const homeUrl = ownHomeUrl ?? url;
    const { id, subdomain } = await findTenant(home, name);
    const school = Number(id);
    const done = (message: string, result: object) =>
      print(json ? JSON.stringify({ id: school, subdomain, ...result }) : message);
    if (options.confirm && options.cancel) throw new Error('--confirm and --cancel exclude each other.');
    if (options.lost && !options.cancel) throw new Error('--lost needs --cancel.');
    if (options.confirm) {
      await confirm(`This deletes the data of school ${id} (${subdomain}) on ${node ?? 'its earlier server'}`, yes);
      await confirmMove(home, { homeUrl, school, ...(node === undefined ? {} : { from: node }) });
      done('The data on the earlier server was deleted.', { is_confirmed: true });
      return;
    }
    if (node === undefined) throw new Error('Name the node to which the school moves, or home.');
    if (options.cancel) {
      const isLost = options.lost === true;
      if (isLost) await confirm(`School ${id} (${subdomain}) loses what was written on ${node}`, yes);
      await cancelMove(home, { homeUrl, school, to: node, isLost });
      done('The move was given up.', { is_canceled: true });
      return;
    }
    const closed_ms = await moveWithProgress(home, homeUrl, school, node);
    const closed = closed_ms === null ? '' : `; the last attempt closed it for ${String(closed_ms)} ms`;
    done(
      `School ${id} (${subdomain}) is on ${node}${closed}. Later, delete its data on the earlier server: ` +
        `school tenant move ${subdomain} --confirm`,
      { node, closed_ms },
    );
  });

/**
 * `school rebalance`: moves schools until the nodes have as many each, and those that are drained have none.
 * @returns the exit code: `failed` if a school could not be moved, or a node does not answer; also in a plan
 */
export const rebalance = (
  config: Config,
  options: Format & { homeUrl?: string; includeHome?: boolean; confirm?: boolean; dryRun?: boolean; yes?: boolean },
): Promise<number> =>
  withHome(config, async (home, url) => {
    const homeUrl = options.homeUrl ?? url;
    const { moves, counts, unreachable, stranded, blocked } = await planMoves(home, options.includeHome === true);
    const failed: { school: number; error: string }[] = [];
    if (!options.json) {
      process.stdout.write(
        table(
          ['NODE', 'SCHOOLS', 'AFTERWARDS'],
          counts.map(({ name, before, after }) => [name, before, after]),
        ),
      );
      for (const name of unreachable) print(`${name} does not answer. Its schools stay there, and it gets no others.`);
      for (const { subdomain, reason } of blocked) print(`${subdomain} cannot move: ${reason}`);
      if (stranded > 0)
        print(
          `There is no active node that answers, so drained nodes keep ${counted(stranded, 'school')}. Add a node, or ` +
            'move them home with --include-home.',
        );
      else print(moves.length === 0 ? 'Nothing has to move.' : `${counted(moves.length, 'school')} to move.`);
      if (options.dryRun) for (const { subdomain, from, to } of moves) print(`${subdomain}: ${from} → ${to}`);
    }
    if (!options.dryRun && moves.length > 0) {
      await confirm(`This moves ${counted(moves.length, 'school')}`, options.yes);
      for (const [done, { school, subdomain, from, to }] of moves.entries()) {
        const line = (result: string) => {
          if (!options.json)
            print(`[${String(done + 1)}/${String(moves.length)}] ${subdomain}: ${from} → ${to}${result}`);
        };
        try {
          const closedMs = await moveWithProgress(home, homeUrl, school, to);
          if (options.confirm) await confirmMove(home, { homeUrl, school });
          line(closedMs === null ? '' : `, closed for ${String(closedMs)} ms`);
        } catch (error) {
          const message = reasonOf(error);
          failed.push({ school, error: message });
          line(`: FAILED: ${message}`);
        }
      }
    }
    if (options.json)
      print(
        JSON.stringify({
          counts,
          unreachable,
          stranded,
          blocked,
          moves: moves.map((move) => ({ ...move, error: failed.find(({ school }) => school === move.school)?.error })),
        }),
      );
    return failed.length + unreachable.length + stranded + blocked.length > 0 ? exitCodes.failed : exitCodes.done;
  });
