import type { Config } from '../process/config.ts';
import { withOwner } from '../database/pool.ts';
import { withDatabase } from '../process/own-database.ts';

/** `school analytics refresh`: reads the facts of schools anew, all of them; one line per school; answers the exit code, 1 when a school failed. */
export async function analyticsRefresh(config: Config, { tenant }: { tenant?: string }): Promise<number> {
  return withDatabase(config, async (ownerUrl) => {
    const { rows } = await withOwner(ownerUrl, (client) =>
      client.query<{ id: string; subdomain: string }>(
        "select id, subdomain from platform.tenant where status <> 'deleted' and ($1::text is null or id::text = $1 or subdomain = $1) order by id",
        [tenant ?? null],
      ),
    );
    if (tenant && rows.length === 0) throw new Error(`There is no school with the id or subdomain ${tenant}.`);
    let failed = 0;
    for (const [place, { id, subdomain }] of rows.entries()) {
      const start = performance.now();
      // A connection for each, since it remembers the catalogue of every school that it was in.
      const outcome = await withOwner(ownerUrl, async (client) => {
        const answer = await client.query<{ parts: Record<string, number> | null }>(
          'select core.analytics_refresh($1, true) as parts',
          [id],
        );
        const parts = answer.rows[0]?.parts;
        if (!parts) throw new Error('it is yet to be migrated, or a worker is at it');
        const changed = Object.values(parts).reduce((sum, count) => sum + count, 0);
        return `${String(changed)} rows changed in ${String(Math.round(performance.now() - start))} ms`;
      }).catch((error: unknown) => {
        failed++;
        return `FAILED: ${error instanceof Error ? error.message : String(error)}`;
      });
      process.stdout.write(`[${String(place + 1)}/${String(rows.length)}] school ${id} (${subdomain}): ${outcome}\n`);
    }
    return failed > 0 ? 1 : 0;
  });
}
