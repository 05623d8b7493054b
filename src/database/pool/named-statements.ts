import { randomUUID } from 'node:crypto';
import pg from 'pg';

/** A named statement is unknown to the backend, or known already, because it is not the one that prepared it. */
const otherBackend = new Set(['26000', '42P05']);

const advice =
  'API_DATABASE_URL leads through a pooler that does not pass on prepared statements, so requests would fail under load. ' +
  'With PgBouncer 1.21 or later, set max_prepared_statements = 500 in its settings. With an earlier one or another ' +
  'pooler, set PREPARED_STATEMENTS=false for this service. See docs/operations/running.md, "Connections".';

/** Enough to meet another backend, also if the pooler takes them in turn. */
const rounds = 5;

/**
 * Finds a pooler in transaction mode that breaks named statements: two connections prepare a statement of the same name
 * and execute it in turn, and at least once one of them gets a backend of the other.
 * @throws with the setting that mends it. Other errors are left to the pool.
 */
export async function requireNamedStatements(url: string): Promise<void> {
  const clients = [0, 1].map(
    () => new pg.Client({ connectionString: url, application_name: 'school_api', connectionTimeoutMillis: 3_000 }),
  );
  for (const client of clients) client.on('error', () => undefined);
  const statement = { name: `school_probe_${randomUUID().slice(0, 8)}`, text: 'select 1' };
  try {
    for (const client of clients) await client.connect();
    for (let round = 0; round < rounds; round++) for (const client of clients) await client.query(statement);
  } catch (error) {
    if (otherBackend.has((error as { code?: string }).code ?? '')) throw new Error(advice, { cause: error });
  } finally {
    await Promise.all(clients.map((client) => client.end().catch(() => undefined)));
  }
}
