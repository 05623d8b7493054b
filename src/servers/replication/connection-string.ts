import pg from 'pg';

/** The key-value form of a database URL, as PL/Proxy and subscriptions take it. */
export function connectionOptions(url: string): Record<string, string> {
  const { host, port, database, user, password } = new pg.Client({ connectionString: url });
  const { searchParams } = new URL(url);
  return {
    host: searchParams.get('host') ?? host,
    port: String(port),
    dbname: database ?? '',
    user: user ?? '',
    ...(password ? { password } : {}),
    ...Object.fromEntries(
      ['sslmode', 'sslrootcert', 'sslcert', 'sslkey'].flatMap((name) => {
        const value = searchParams.get(name);
        return value === null ? [] : [[name, value]];
      }),
    ),
    connect_timeout: '3',
  };
}

/** The options without a login. A certificate is that of the owner. */
export const withoutLogin = (options: Record<string, string>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(options).filter(([name]) => !['user', 'password', 'sslcert', 'sslkey'].includes(name)),
  );

/** The options of a text that `connectionString` has made. */
export const parseConnectionString = (text: string): Record<string, string> =>
  Object.fromEntries(
    Array.from(text.matchAll(/(\w+)='((?:[^'\\]|\\.)*)'/g), ([, name = '', value = '']) => [
      name,
      value.replaceAll(/\\(.)/g, '$1'),
    ]),
  );

/** `host=… port=…` */
export const connectionString = (options: Record<string, string>): string =>
  Object.entries(options)
    .map(([name, value]) => `${name}='${value.replaceAll(/['\\]/g, '\\$&')}'`)
    .join(' ');
