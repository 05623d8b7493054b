import type { Config } from '../process/config.ts';
import { migrate } from '../database/migrate.ts';
import { withOwner } from '../database/pool.ts';
import { withDatabase } from '../process/database-access.ts';

/** `school migrate`: prints one line per school. @returns the exit code: 1 when a school failed */
export async function migrateCommand(
  config: Config,
  options: { tenant?: string; dryRun?: boolean; parallel: string },
): Promise<number> {
  const parallel = Number(options.parallel);
  if (!Number.isInteger(parallel) || parallel < 1 || parallel > 64)
    throw new Error('--parallel must be a whole number from 1 to 64');
  const print = (line: string) => process.stdout.write(`${line}\n`);
  const start = performance.now();
  return withDatabase(config, async (ownerUrl) => {
    const { tenants, failed } = await migrate({
      ownerUrl,
      dataDir: config.DATABASE_URL ? undefined : config.DATA_DIR,
      parallel,
      ...(options.tenant ? { tenant: options.tenant } : {}),
      dryRun: options.dryRun ?? false,
      onStep: print,
      onTenant: ({ tenant, subdomain, applied, milliseconds, error }, done, total) => {
        const outcome = error
          ? `FAILED: ${error}`
          : options.dryRun
            ? `would apply ${String(applied)}`
            : `${String(applied)} applied in ${String(milliseconds)} ms`;
        print(`[${String(done)}/${String(total)}] school ${tenant} (${subdomain}): ${outcome}`);
      },
    });
    const outcome = `${String(tenants.length - failed.length)} schools ${options.dryRun ? 'to migrate' : 'migrated'}`;
    const seconds = ((performance.now() - start) / 1000).toFixed(1);
    print(`${outcome}, ${String(failed.length)} failed, ${seconds} s`);
    // Refresh the analytics facts now instead of at the next scheduled run.
    if (tenants.length > failed.length && !options.dryRun) {
      await withOwner(ownerUrl, (client) =>
        client.query("select graphile_worker.add_job('analytics', job_key => 'analytics')"),
      );
    }
    return failed.length > 0 ? 1 : 0;
  });
}
