import type { Config } from '../process/config.ts';
import { lockDataDir, findCluster, removeCluster } from '../database/embedded.ts';
import { formatMinute } from '../process/database-access.ts';
import { confirm, type Format, print } from './output.ts';

/**
 * `school database reset`: deletes the embedded database after a confirmation.
 * @throws when DATABASE_URL is set, or a service uses the database
 */
export async function databaseReset(config: Config, options: Format & { yes?: boolean }): Promise<void> {
  if (config.DATABASE_URL)
    throw new Error(
      'DATABASE_URL is set. This command deletes only the embedded database. Use the tools of your server instead.',
    );
  const release = await lockDataDir(config.DATA_DIR);
  try {
    const found = await findCluster(config.DATA_DIR);
    if (!found) {
      print(
        options.json
          ? JSON.stringify({ deleted: null })
          : `There is no database in ${config.DATA_DIR}. The next start creates one.`,
      );
      return;
    }
    const target = `all schools in ${found.cluster}, created on ${formatMinute(found.from)}`;
    await confirm(`This deletes ${target}`, options.yes);
    await removeCluster(config.DATA_DIR);
    print(
      options.json
        ? JSON.stringify({ deleted: found.cluster })
        : `Deleted ${target}. The next start creates a new database.`,
    );
  } finally {
    await release();
  }
}
