import type { Config } from '../process/config.ts';
import { withOwner } from '../database/pool.ts';
import { withDatabase } from '../process/own-database.ts';

/** `school tenant list`: one line per school: number, subdomain, state, since when it is deleted. */
export async function tenantList(config: Config): Promise<void> {
  const { rows } = await withDatabase(config, (ownerUrl) =>
    withOwner(ownerUrl, (client) =>
      client.query<{ line: string }>(
        `select concat_ws(e'\\t', id, subdomain, case when status = 'deleted' and schema_version = 0 then 'purged' else status end, to_char(deleted_at, 'YYYY-MM-DD')) as line
         from platform.tenant order by id`,
      ),
    ),
  );
  process.stdout.write(rows.map(({ line }) => `${line}\n`).join(''));
}
