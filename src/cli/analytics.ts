import type { Config } from '../process/config.ts';
import { findTenant, type NamedTenant } from '../database/find-tenant.ts';
import { withOwner } from '../database/pool.ts';
import { withDatabase } from '../process/database-access.ts';

/**
 * `school analytics refresh`: recomputes the facts of every school, or of one, and prints one line per school.
 * @returns the exit code: 1 when a school failed
 */
export async function analyticsRefresh(config: Config, { tenant }: { tenant?: string }): Promise<number> {
  return withDatabase(config, async (ownerUrl) => {
    const { rows } = await withOwner(ownerUrl, async (client) =>
      client.query<NamedTenant>(
        `select id, subdomain from platform.tenant
         where status <> 'deleted' and ($1::bigint is null or id = $1)
         order by id`,
        [tenant === undefined ? null : (await findTenant(client, tenant)).id],
      ),
    );
    if (tenant && rows.length === 0) throw new Error(`The school ${tenant} is deleted.`);
    let failed = 0;
    for (const [index, { id, subdomain }] of rows.entries()) {
      const start = performance.now();
      // One connection per school: a backend keeps the catalog of every schema it has touched in memory.
      const outcome = await withOwner(ownerUrl, async (client) => {
        const answer = await client.query<{ parts: Record<string, number> | null }>(
          'select core.analytics_refresh($1, true) as parts',
          [id],
        );
        const parts = answer.rows[0]?.parts;
        if (!parts) throw new Error('the school is not migrated yet, or a worker is refreshing it');
        const changed = Object.values(parts).reduce((sum, count) => sum + count, 0);
        return `${String(changed)} rows changed in ${String(Math.round(performance.now() - start))} ms`;
      }).catch((error: unknown) => {
        failed++;
        return `FAILED: ${error instanceof Error ? error.message : String(error)}`;
      });
      process.stdout.write(`[${String(index + 1)}/${String(rows.length)}] school ${id} (${subdomain}): ${outcome}\n`);
    }
    return failed > 0 ? 1 : 0;
  });
}
