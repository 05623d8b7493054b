/** The port in the name of the pooler's socket. */
export const poolerPort = 6432;

/** The logins of the service that go through the pooler. */
export const poolerRoles = ['school_api', 'school_worker', 'school_graphql'] as const;

/** The settings with which a service uses the pooler of the run wherever it can; none without a pooler. */
export function poolerSettings(databaseUrl: string | undefined): Record<string, string> {
  const folder = process.env['TEST_POOLER_SOCKET'];
  const [serverStart, serverEnd] = (process.env['TEST_SERVER_URL'] ?? '').split('DATABASE');
  // Other servers have no pooler.
  if (!folder || !databaseUrl || !serverStart || !serverEnd || !databaseUrl.endsWith(serverEnd)) return {};
  const database = databaseUrl.slice(serverStart.length, -serverEnd.length);
  const [api, worker, analytics] = poolerRoles.map(
    (role) => `postgres://${role}@/${database}?host=${encodeURIComponent(folder)}&port=${String(poolerPort)}`,
  );
  return {
    API_DATABASE_URL: api ?? '',
    WORKER_DATABASE_URL: worker ?? '',
    ANALYTICS_DATABASE_URL: analytics ?? '',
    SESSION_DATABASE_URL: databaseUrl.replace('//postgres@', '//school_worker@'),
    PREPARED_STATEMENTS: 'false',
  };
}
