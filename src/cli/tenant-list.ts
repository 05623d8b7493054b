import type { Config } from '../process/config.ts';
import { withOwner } from '../database/pool.ts';
import { withDatabase } from '../process/database-access.ts';

/** `school tenant list`: prints id, subdomain, status and deletion date, tab-separated, one school per line. */
export async function tenantList(config: Config): Promise<void> {
  const { rows } = await withDatabase(config, (ownerUrl) =>
    withOwner(ownerUrl, (client) =>
      client.query<{ line: string }>(
        `select concat_ws(e'\\t',
           id,
           subdomain,
           case when status = 'deleted' and schema_version = 0 then 'purged' else status end,
           to_char(deleted_at, 'YYYY-MM-DD')) as line
         from platform.tenant
         order by id`,
      ),
    ),
  );
  process.stdout.write(rows.map(({ line }) => `${line}\n`).join(''));
}
