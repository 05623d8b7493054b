import type pg from 'pg';
import { sqlFile } from './install.ts';

/** A right that the role of a connection lacks. */
interface MissingRight {
  /** Grants it; null if no statement does. */
  statement: string | null;
  reason: string;
}

/**
 * Names all rights that a migration needs and its role lacks, before anything is changed.
 * @throws with the statements that grant them
 */
export async function requireRights(client: pg.Client): Promise<void> {
  const { rows } = await client.query<MissingRight>((await sqlFile('db/missing-rights.sql')).text);
  if (rows.length === 0) return;
  const lines = rows.map(({ statement, reason }) =>
    statement === null ? `-- ${reason}` : `${statement}; -- ${reason}`,
  );
  throw new Error(
    'The role in DATABASE_URL lacks rights for the migration, and nothing was changed. As a superuser, run in this ' +
      'database:\n' +
      lines.map((line) => `  ${line}`).join('\n'),
  );
}
