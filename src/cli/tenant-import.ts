import type { Config } from '../process/config.ts';
import { importTenant } from '../database/archive.ts';
import { withOwner } from '../database/pool.ts';
import { withDatabase } from '../process/own-database.ts';

/** `school tenant import`. @throws when the file or the database can't take it, with nothing changed */
export async function tenantImport(config: Config, file: string): Promise<void> {
  const { id, subdomain, rows } = await withDatabase(config, (ownerUrl) =>
    withOwner(ownerUrl, (client) => importTenant(client, file)),
  );
  process.stdout.write(`School ${String(id)} (${subdomain}) is in service again: ${String(rows)} rows\n`);
}
