import pg from 'pg';

/** Which login role of the database a pool uses; see docs/security.md. */
export type DatabaseRole = 'school_api' | 'school_worker';

/**
 * A pool whose connections are one of the service's restricted roles.
 * @param ownUrl  an address whose user is that role already; without it, `ownerUrl`'s user becomes the role on every connection
 */
export function rolePool(role: DatabaseRole, ownerUrl: string, ownUrl: string | undefined, size: number): pg.Pool {
  const pool = new pg.Pool({
    connectionString: ownUrl ?? ownerUrl,
    max: size,
    connectionTimeoutMillis: 3_000,
    // Backends keep the catalogue of every school they touch: a connection lives a quarter of an hour at most.
    maxLifetimeSeconds: 900,
    application_name: role,
    ...(ownUrl
      ? {}
      : {
          options: `-c role=${role} ${role === 'school_api' ? '-c statement_timeout=15000 -c lock_timeout=5000' : ''}`,
        }),
  });
  // An idle connection that breaks is replaced at the next request; without a listener it would end the process.
  pool.on('error', () => undefined);
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

/** Runs `work` on one connection as the owner, and closes it. */
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
