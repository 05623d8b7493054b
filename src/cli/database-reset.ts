import type { Config } from '../process/config.ts';
import { lockDataDir, findCluster, removeCluster } from '../database/embedded.ts';
import { formatMinute } from '../process/database-access.ts';
import { ask, isInteractive } from './prompt.ts';

/**
 * `school database reset`: deletes the embedded database after a confirmation.
 * @throws when DATABASE_URL is set, or a service uses the database
 */
export async function databaseReset(config: Config, options: { yes?: boolean }): Promise<void> {
  if (config.DATABASE_URL)
    throw new Error(
      'DATABASE_URL is set. This command deletes only the embedded database. Use the tools of your server instead.',
    );
  const release = await lockDataDir(config.DATA_DIR);
  try {
    const found = await findCluster(config.DATA_DIR);
    if (!found) {
      process.stdout.write(`There is no database in ${config.DATA_DIR}. The next start creates one.\n`);
      return;
    }
    const target = `all schools in ${found.cluster}, created on ${formatMinute(found.from)}`;
    if (!options.yes) {
      if (!isInteractive()) throw new Error(`This deletes ${target}. Without a terminal, confirm with --yes.`);
      if ((await ask(`This deletes ${target}. Type yes to continue: `)) !== 'yes')
        throw new Error('Nothing was changed.');
    }
    await removeCluster(config.DATA_DIR);
    process.stdout.write(`Deleted ${target}. The next start creates a new database.\n`);
  } finally {
    await release();
  }
}
