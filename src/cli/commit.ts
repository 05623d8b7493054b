import { chmod, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { commit } from 'graphile-migrate';
import { clearAllPools } from 'graphile-migrate/dist/pgReal.js';
import { ensureDatabase } from '../database/embedded.ts';
import { withOwner } from '../database/pool/pool.ts';
import { withScratchServer } from '../process/database-access.ts';

const defaultFolder = join(import.meta.dirname, '../../migrations');
const blankMigration =
  '-- The shared migration being written; `npm run school -- commit-migration` moves it to committed/.\n';

/** Ends the idle pools of graphile-migrate, which exits the process if a server stops while they are connected. */
async function closePools(serverUrl: string): Promise<void> {
  clearAllPools();
  await withOwner(serverUrl, async (client) => {
    for (;;) {
      const { rowCount } = await client.query(
        "select from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()",
      );
      if (!rowCount) return;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  });
}

/**
 * Makes current.sql of a folder the next committed migration, after running it on a temporary server.
 * @param migrationsFolder  an absolute path; migrations by default
 */
export async function commitMigration(message: string, migrationsFolder = defaultFolder): Promise<void> {
  const file = join(migrationsFolder, 'current.sql');
  const current = await readFile(file, 'utf8');
  if (current.replace(/^--.*$/gm, '').trim() === '') throw new Error('migrations/current.sql contains no statement.');
  await writeFile(file, current.replace(blankMigration, '').trimStart());
  await withScratchServer(async (server) => {
    await ensureDatabase(server, 'main');
    await ensureDatabase(server, 'shadow');
    try {
      await commit(
        {
          connectionString: server.url('main'),
          shadowConnectionString: server.url('shadow'),
          rootConnectionString: server.url('postgres'),
          migrationsFolder,
          blankMigrationContent: blankMigration,
        },
        message,
      );
    } finally {
      await closePools(server.url('postgres'));
    }
  });
  // graphile-migrate makes the file unreadable for other users, such as the one that runs the service.
  const committed = join(migrationsFolder, 'committed');
  const newest = (await readdir(committed)).sort().at(-1);
  if (newest) await chmod(join(committed, newest), 0o644);
}
