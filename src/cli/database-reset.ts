import type { Config } from '../process/config.ts';
import { claim, findCluster, removeCluster } from '../database/embedded.ts';
import { minute } from '../process/own-database.ts';
import { ask, isInteractive } from './prompt.ts';

/** `school database reset`: removes the embedded database, once somebody has confirmed it. @throws when it is not ours, or in use */
export async function databaseReset(config: Config, options: { yes?: boolean }): Promise<void> {
  if (config.DATABASE_URL)
    throw new Error(
      'DATABASE_URL is set, and only the embedded database is removed here. Drop and create that one with the tools of its server.',
    );
  const release = await claim(config.DATA_DIR);
  try {
    const found = await findCluster(config.DATA_DIR);
    if (!found) {
      process.stdout.write(`There is no database in ${config.DATA_DIR}; the next start makes one.\n`);
      return;
    }
    const what = `all schools in ${found.cluster}, begun on ${minute(found.from)}`;
    if (!options.yes) {
      if (!isInteractive()) throw new Error(`This removes ${what}. There is no terminal to confirm it in: add --yes.`);
      if ((await ask(`This removes ${what}. Type yes to go on: `)) !== 'yes') throw new Error('Nothing was changed.');
    }
    await removeCluster(config.DATA_DIR);
    process.stdout.write(`Removed ${what}. The next start makes a new database.\n`);
  } finally {
    await release();
  }
}
