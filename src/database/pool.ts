import pg from 'pg';

/** The login role that a pool uses, see docs/security.md. */
export type DatabaseRole = 'school_api' | 'school_worker';

/**
 * A pool whose connections use one of the service's restricted roles.
 * @param roleUrl  a URL that logs in as that role; without it, the user of `ownerUrl` switches to the role
 */
export function rolePool(role: DatabaseRole, ownerUrl: string, roleUrl: string | undefined, size: number): pg.Pool {
  const pool = new pg.Pool({
    connectionString: roleUrl ?? ownerUrl,
    max: size,
    connectionTimeoutMillis: 3_000,
    // A backend keeps the catalog of every schema it has touched in memory, so replace connections after 15 minutes.
    maxLifetimeSeconds: 900,
    application_name: role,
    ...(roleUrl
      ? {}
      : {
          options: `-c role=${role} ${role === 'school_api' ? '-c statement_timeout=15000 -c lock_timeout=5000' : ''}`,
        }),
  });
  // The pool replaces broken idle connections. Without a listener the error event would end the process.
  pool.on('error', () => undefined);
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

/** Runs `work` with a new connection as the owner, and closes it. */
export async function withOwner<T>(ownerUrl: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: ownerUrl, application_name: 'school_owner' });
  client.on('error', () => undefined);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end().catch(() => undefined);
  }
}
