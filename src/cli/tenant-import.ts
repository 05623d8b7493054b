import type { Config } from '../process/config.ts';
import { importTenant } from '../database/archive.ts';
import { withOwner } from '../database/pool.ts';
import { withDatabase } from '../process/database-access.ts';

/** `school tenant import`. @throws when the file is invalid or conflicts with the database; then nothing has changed */
export async function tenantImport(config: Config, file: string): Promise<void> {
  const { id, subdomain, rows } = await withDatabase(config, (ownerUrl) =>
    withOwner(ownerUrl, (client) => importTenant(client, file)),
  );
  process.stdout.write(`School ${String(id)} (${subdomain}) was imported: ${String(rows)} rows\n`);
}
