import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { commit } from 'graphile-migrate';
import { clearAllPools } from 'graphile-migrate/dist/pgReal.js';
import { ensureDatabase } from '../database/embedded.ts';
import { withScratchServer } from '../process/database-access.ts';

const migrationsFolder = join(import.meta.dirname, '../../migrations');

/** Turns migrations/current.sql into the next committed migration, after testing it on a temporary server. */
export async function commitMigration(message: string): Promise<void> {
  await withScratchServer(async (server) => {
    await ensureDatabase(server, 'main');
    await ensureDatabase(server, 'shadow');
    const before = await readFile(join(migrationsFolder, 'current.sql'), 'utf8');
    if (before.trim() === '') throw new Error('migrations/current.sql is empty.');
    await commit(
      {
        connectionString: server.url('main'),
        shadowConnectionString: server.url('shadow'),
        rootConnectionString: server.url('postgres'),
        migrationsFolder,
        blankMigrationContent:
          '-- The shared migration being written; `npm run school -- commit-migration` moves it to committed/.\n',
      },
      message,
    );
    clearAllPools();
  });
}
