import type { Config } from '../process/config.ts';
import { findTenant, type NamedTenant } from '../database/find-tenant.ts';
import { withOwner } from '../database/pool/pool.ts';
import { withMigratedDatabase } from '../process/database-access.ts';
import { exitCodes } from './exit-codes.ts';
import { type Format, print } from './output.ts';
import { type Progress, progress } from './progress.ts';
import { reasonOf } from '../domain/reason.ts';
import { onEachServer, serversOfCommand, serverOfSchool } from '../servers/servers.ts';

/** Recomputes the facts of the schools of a server. @returns how many schools failed */
async function refreshServer(
  url: string,
  tenantId: string | undefined,
  { bar, json }: { bar: Progress; json: boolean | undefined },
): Promise<number> {
  const { rows } = await withOwner(url, (client) =>
    client.query<NamedTenant>(
      `select id, subdomain from platform.tenant
       where status <> 'deleted' and node_id is null and ($1::bigint is null or id = $1)
       order by id`,
      [tenantId ?? null],
    ),
  );
  if (tenantId !== undefined && rows.length === 0) throw new Error(`The school ${tenantId} is deleted.`);
  let failed = 0;
  for (const [index, { id, subdomain }] of rows.entries()) {
    bar.update(Math.floor((100 * index) / rows.length), `school ${id} (${subdomain})`);
    const start = performance.now();
    // One connection per school: a backend keeps the catalog of every schema it has touched in memory.
    const outcome = await withOwner(url, async (client) => {
      const answer = await client.query<{ parts: Record<string, number> | null }>(
        'select core.analytics_refresh($1, true) as parts',
        [id],
      );
      const parts = answer.rows[0]?.parts;
      if (!parts) throw new Error('the school is not migrated yet, or a worker is refreshing it');
      return {
        changed_rows: Object.values(parts).reduce((sum, count) => sum + count, 0),
        milliseconds: Math.round(performance.now() - start),
      };
    }).catch((error: unknown) => {
      failed++;
      return { error: reasonOf(error) };
    });
    const text =
      'error' in outcome
        ? `FAILED: ${outcome.error}`
        : `${String(outcome.changed_rows)} rows changed in ${String(outcome.milliseconds)} ms`;
    bar.print(
      json
        ? JSON.stringify({ tenant_id: Number(id), subdomain, ...outcome })
        : `[${String(index + 1)}/${String(rows.length)}] school ${id} (${subdomain}): ${text}`,
    );
  }
  return failed;
}

/**
 * `school analytics refresh`: recomputes the facts of every school on all servers, or of one, and prints one line per
 * school.
 * @returns the exit code: 1 when a school or a server failed
 */
export async function analyticsRefresh(
  config: Config,
  { tenant, json }: Format & { tenant?: string },
): Promise<number> {
  return withMigratedDatabase(config, async (ownerUrl) => {
    const id =
      tenant === undefined ? undefined : await withOwner(ownerUrl, async (c) => (await findTenant(c, tenant)).id);
    const servers = id === undefined ? await serversOfCommand(ownerUrl) : [await serverOfSchool(ownerUrl, id)];
    const bar = progress(100);
    const results = await onEachServer(servers, ({ url }) => refreshServer(url, id, { bar, json })).finally(bar.stop);
    for (const { server, error } of results)
      if (error !== undefined && servers.length === 1) throw new Error(error);
      else if (error !== undefined)
        print(json ? JSON.stringify({ server: server.name, error }) : `${server.name}: FAILED: ${error}`);
    return results.some((each) => each.error !== undefined || each.result > 0) ? exitCodes.failed : exitCodes.done;
  });
}
