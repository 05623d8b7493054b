import { randomUUID } from 'node:crypto';
import pg from 'pg';

/** A named statement is unknown to the backend, or known already, because it is not the one that prepared it. */
const otherBackend = new Set(['26000', '42P05']);

/** Enough to meet another backend, also if the pooler takes them in turn. */
const rounds = 5;

/** Runs `work` with two connections. Errors of the connections are left to the pool that connects later. */
async function withTwo(url: string, work: (clients: pg.Client[]) => Promise<void>): Promise<void> {
  const clients = [0, 1].map(
    () => new pg.Client({ connectionString: url, application_name: 'school_probe', connectionTimeoutMillis: 3_000 }),
  );
  for (const client of clients) client.on('error', () => undefined);
  try {
    for (const client of clients) await client.connect();
    await work(clients);
  } catch {
    // See above.
  } finally {
    await Promise.all(clients.map((client) => client.end().catch(() => undefined)));
  }
}

/**
 * Finds a pooler in transaction mode that breaks named statements: two connections prepare a statement of the same name
 * and execute it in turn, and at least once one of them gets a backend of the other.
 * @param setting  the name of the setting that has the URL
 * @throws with the setting that mends it. Other errors are left to the pool.
 */
export async function requireNamedStatements(setting: string, url: string): Promise<void> {
  let cause: unknown;
  await withTwo(url, async (clients) => {
    const statement = { name: `school_probe_${randomUUID().slice(0, 8)}`, text: 'select 1' };
    try {
      for (let round = 0; round < rounds; round++) for (const client of clients) await client.query(statement);
    } catch (error) {
      if (otherBackend.has((error as { code?: string }).code ?? '')) cause = error;
    }
  });
  if (cause !== undefined)
    throw new Error(
      `${setting} leads through a pooler that does not pass on prepared statements, so they would fail under load. ` +
        'With PgBouncer 1.21 or later, set max_prepared_statements = 500 in its settings. With an earlier one or another ' +
        'pooler, set PREPARED_STATEMENTS=false for this service. See docs/operations/running.md, "Connections".',
      { cause },
    );
}

/**
 * Finds a pooler in transaction mode: a connection does not keep its backend, or shares it with another one.
 * @param setting  the name of the setting that has the URL
 * @throws with the setting that mends it. Other errors are left to the pool.
 */
export async function requireSessions(setting: string, url: string): Promise<void> {
  const backends = [new Set<number>(), new Set<number>()];
  await withTwo(url, async (clients) => {
    for (let round = 0; round < rounds; round++)
      for (const [index, client] of clients.entries()) {
        const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
        for (const { pid } of rows) backends[index]?.add(pid);
      }
  });
  const [one = new Set(), other = new Set()] = backends;
  if (one.size > 1 || other.size > 1 || [...one].some((pid) => other.has(pid)))
    throw new Error(
      `${setting} leads through a pooler in transaction mode. The locks of a worker belong to a session, and would stay ` +
        'in the pooler after its end. Set SESSION_DATABASE_URL to the address of Postgres itself, with the same login. ' +
        'See docs/operations/running.md, "Connections".',
    );
}
