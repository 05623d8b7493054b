import { join, resolve } from 'node:path';
import type { Config } from '../process/config.ts';
import { archiveName, exportsFolder, exportTenant } from '../database/archive.ts';
import { findTenant } from '../database/find-tenant.ts';
import { withOwner } from '../database/pool.ts';
import { withDatabase } from '../process/database-access.ts';

/** `school tenant export`. @throws when the school does not exist or was purged */
export async function tenantExport(config: Config, school: string, options: { file?: string }): Promise<void> {
  await withDatabase(config, (ownerUrl) =>
    withOwner(ownerUrl, async (client) => {
      const tenant = await findTenant(client, school);
      // Held until the connection closes, to keep out migrations and purges.
      await client.query('select pg_advisory_lock_shared(core.tenant_lock_key($1))', [tenant.id]);
      const file = options.file ? resolve(options.file) : join(exportsFolder(config), archiveName(tenant));
      const count = await exportTenant(
        client,
        { text: 'select name, at_a_time from core.archive_open($1)', values: [tenant.id] },
        file,
      );
      process.stdout.write(`School ${tenant.id} (${tenant.subdomain}): ${String(count)} lines in ${file}\n`);
    }),
  );
}
