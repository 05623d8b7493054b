import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { switchToRole } from '../../domain/role-settings.ts';
import { destroySocket } from './client-socket.ts';
import type { ServerOf } from './request-source.ts';
import { defaultConnectionMb, type SchoolPool, schoolPool } from './school-pool.ts';

/** The login role that a pool uses, see docs/security.md. */
export type DatabaseRole = 'school_api' | 'school_worker';

const connectionTimeoutMs = 3_000;

/**
 * A URL with these startup options besides its own. As `options` of pg, those of the URL would replace them, and the
 * API would run as the owner.
 */
export function withOptions(url: string, options: string): string {
  const added = encodeURIComponent(options);
  const own = /[?&]options=[^&]*/.exec(url)?.[0];
  if (own !== undefined) return url.replace(own, () => `${own}%20${added}`);
  return `${url}${url.includes('?') ? '&' : '?'}options=${added}`;
}

/** How a connection gets one of the restricted roles: it logs in as the role, or the owner switches to it. */
const roleConnection = (role: DatabaseRole, ownerUrl: string, roleUrl: string | undefined): pg.ClientConfig => ({
  connectionString: roleUrl ?? withOptions(ownerUrl, switchToRole(role)),
  application_name: role,
});

/**
 * A pool whose connections use one of the service's restricted roles.
 * @param roleUrl  a URL that logs in as that role; without it, the user of `ownerUrl` switches to the role
 */
export function rolePool(role: DatabaseRole, ownerUrl: string, roleUrl: string | undefined, size: number): pg.Pool {
  const pool = new pg.Pool({
    ...roleConnection(role, ownerUrl, roleUrl),
    max: size,
    connectionTimeoutMillis: connectionTimeoutMs,
    // A backend keeps the catalog of every school it has touched in memory, so connections are replaced after 15
    // minutes, or after 250 jobs: jobs go from school to school.
    maxLifetimeSeconds: 900,
    maxUses: 250,
  });
  // The pool replaces broken idle connections. Without a listener the error event would end the process.
  pool.on('error', () => undefined);
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

/**
 * The pool of the API process, with the role school_api.
 * @param roleUrl  as in `rolePool`
 * @param maxConnectionMb  a connection is replaced when its backend has probably reached this size
 * @param canPrepare  see SchoolPoolOptions
 * @param serverOf  see WaitOptions
 */
export const apiPool = (
  ownerUrl: string,
  roleUrl: string | undefined,
  size: number,
  maxConnectionMb = defaultConnectionMb,
  canPrepare = true,
  serverOf?: ServerOf,
): SchoolPool =>
  schoolPool({
    size,
    maxConnectionMb,
    canPrepare,
    connectionTimeoutMs,
    preferredWaitMs: 60,
    serverOf,
    client: roleConnection('school_api', ownerUrl, roleUrl),
  });

/** Runs `work` with a new connection as the owner, and closes it. */
export async function withOwner<T>(ownerUrl: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: ownerUrl, application_name: 'school_owner' });
  client.on('error', () => undefined);
  await client.connect();
  try {
    // Compiling costs more than it saves in statements as short as those of the service; the demo took minutes. A
    // statement and not a startup option, which poolers refuse.
    await client.query('set jit = off');
    return await work(client);
  } finally {
    await client.end().catch(() => undefined);
  }
}

/**
 * Like `withOwner`, for a server that may be silent: one that accepts connections and answers nothing, which would keep
 * `withOwner` waiting forever.
 * @param timeoutMs  for the connection, and for each statement
 * @throws when the server does not answer in time
 */
export async function withOwnerInTime<T>(
  ownerUrl: string,
  timeoutMs: number,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new pg.Client({
    connectionString: ownerUrl,
    application_name: 'school_owner',
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    const result = await work(client);
    await Promise.race([client.end(), pause(timeoutMs, undefined, { ref: false })]);
    return result;
  } finally {
    // A silent server would not answer the end of the connection.
    destroySocket(client);
  }
}

/** How long a server that may be down has for its answer. */
export const answerTimeoutMs = 3_000;

/** @throws if a server does not answer in time */
export async function requireAnswer(ownerUrl: string): Promise<void> {
  await withOwnerInTime(ownerUrl, answerTimeoutMs, (client) => client.query('select'));
}
