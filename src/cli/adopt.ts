import { adoptAsCopy, adoptAsSuccessor } from '../servers/tokens.ts';
import type { Config } from '../process/config.ts';
import { withClient } from '../process/database-access.ts';
import { confirm, type Format, print } from './output.ts';

/**
 * `school database adopt`: says what a database is that was restored, copied or promoted.
 * @throws for another word than copy or successor
 */
export async function databaseAdopt(
  config: Config,
  { as, json, yes }: Format & { as: string; yes?: boolean },
): Promise<void> {
  if (as !== 'copy' && as !== 'successor') throw new Error('Give --as copy or --as successor.');
  await withClient(config, async (client, url) => {
    if (as === 'copy') {
      await confirm('This database will take no part in replication any more, and run no jobs', yes);
      await adoptAsCopy(client);
      print(
        json ? JSON.stringify({ adopted_as: as }) : 'This database is a copy. It changes nothing on other servers.',
      );
      return;
    }
    await confirm('This database will take the place of the one that other servers remember', yes);
    const told = await adoptAsSuccessor(client, url);
    print(
      json
        ? JSON.stringify({ adopted_as: as, told })
        : `This database takes the place of the earlier one. ${told.length > 0 ? `Told: ${told.join(', ')}. ` : ''}` +
            'With several servers, look at: school node verify',
    );
  });
}
