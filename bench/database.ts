import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { passwords } from '../src/domain/passwords.ts';
import { type EmbeddedServer, ensureDatabase } from '../src/database/embedded.ts';
import { sqlFiles } from '../src/database/migrate/install.ts';
import { migrate } from '../src/database/migrate/migrate.ts';
import { createOperator } from '../src/database/operator.ts';
import { withOwner } from '../src/database/pool/pool.ts';
import { benchPassword } from './cases.ts';

/** A school of the benchmark, with a session of its admin. */
export interface School {
  id: number;
  sessionId: number;
}

/** A migrated database with schools. */
export interface Database {
  name: string;
  url: string;
  schools: School[];
  /** A session of the platform operator. */
  operator: { userId: number; sessionId: number };
}

/** The number of invoices of the school with many invoices. */
export const manyInvoices = 100_000;

/** The database of `npm run bench`. */
export interface BenchDatabase extends Database {
  /** A school with 100,000 invoices, not one of `schools`. */
  invoiceSchool: School;
}

const readSeed = () => readFile(join(import.meta.dirname, 'seed.sql'), 'utf8');

/** Creates an empty database with the operator of the benchmark. */
export async function createDatabase(server: Pick<EmbeddedServer, 'url'>, name: string): Promise<void> {
  await ensureDatabase(server, name);
  const url = server.url(name);
  await migrate({ ownerUrl: url });
  const passwordHash = await passwords().hash(benchPassword);
  await withOwner(url, (owner) =>
    createOperator(owner, {
      email: 'operator@bench.example',
      passwordHash,
      firstName: 'Olu',
      lastName: 'Operator',
      role: 'admin',
      tenantIds: null,
    }),
  );
}

/**
 * Adds the schools with the numbers `from` to `upTo`, two in parallel, each in its own transaction. Prints the progress and the
 * remaining time, estimated from the latest ones.
 */
export async function addSchools(
  url: string,
  upTo: number,
  students: number,
  print: (line: string) => void,
  from = 1,
): Promise<void> {
  const seedSql = await readSeed();
  const hash = await passwords().hash(benchPassword);
  const { rows } = await withOwner(url, (owner) =>
    owner.query<{ number: number }>(
      `select number from generate_series($2::integer, $1::integer) number
       where not exists (select from platform.tenant where subdomain = 'school-' || number) order by number`,
      [upTo, from],
    ),
  );
  let left = rows.length;
  let since = performance.now();
  const every = 50;
  const work = async () => {
    while (rows.length > 0) {
      // A connection keeps the plans of all schools that it created, and looks at all of them whenever a table changes.
      const batch = rows.splice(0, 20);
      await withOwner(url, async (owner) => {
        await owner.query(`set synchronous_commit = off; ${seedSql}`);
        for (const { number } of batch) {
          await owner.query('select pg_temp.bench_school($1, $2, $3)', [number, students, hash]);
          left--;
          if (left % every > 0) continue;
          const minutes = ((performance.now() - since) / every / 60_000) * left;
          print(`  ${upTo - left} of ${upTo} schools, ${minutes.toFixed(1)} min left`);
          since = performance.now();
        }
      });
    }
  };
  await Promise.all([work(), work()]);
}

/** Opens a session for the admin of every school and for the operator, as a login does. */
export async function openSessions(server: Pick<EmbeddedServer, 'url'>, name: string): Promise<BenchDatabase> {
  const url = server.url(name);
  return withOwner(url, async (owner) => {
    await owner.query('truncate platform.session, platform.refresh_token, platform.login_throttle');
    const { rows } = await owner.query<{ id: string; tenant_id: string | null; subdomain: string | null }>(`
      with opened as (
        insert into platform.session (tenant_id, user_id, email, permissions, roles, expires_at)
          select id, 1, 'user1@bench.example', (select array_agg(name) from core.permission), '{admin}'::text[],
            now() + interval '7 days'
          from platform.tenant
          where subdomain ~ '^school-\\d+$|^invoices$'
          union all
          select null, 1, 'operator@bench.example', '{}', '{admin}'::text[], now() + interval '7 days'
          returning id, tenant_id
      )
      select o.id, o.tenant_id, t.subdomain
      from opened o
      left join platform.tenant t on t.id = o.tenant_id
      order by o.tenant_id`);
    await owner.query('analyze platform.session');
    const school = ({ id, tenant_id }: { id: string; tenant_id: string | null }): School => ({
      id: Number(tenant_id),
      sessionId: Number(id),
    });
    const operator = rows.find((row) => row.tenant_id === null);
    const invoices = rows.find((row) => row.subdomain === 'invoices');
    return {
      name,
      url,
      schools: rows.filter((row) => row.subdomain?.startsWith('school-')).map(school),
      operator: { userId: 1, sessionId: Number(operator?.id) },
      invoiceSchool: invoices ? school(invoices) : { id: 0, sessionId: 0 },
    };
  });
}

/**
 * Opens a benchmark database. Creates it unless one with the same migrations, seed and size exists. Updates the
 * functions of core and api in both cases.
 * @param prefix  the start of its name; other databases with this prefix are dropped
 */
export async function benchDatabase(
  server: EmbeddedServer,
  schools: number,
  students: number,
  print: (line: string) => void,
  prefix = 'bench',
): Promise<BenchDatabase> {
  const seedSql = await readSeed();
  const parts = [
    schools,
    students,
    seedSql,
    await sqlFiles('migrations/committed'),
    await sqlFiles('migrations/tenant'),
  ];
  const name = `${prefix}_${createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 12)}`;
  const existing = await withOwner(server.url('postgres'), async (owner) => {
    const { rows } = await owner.query<{ datname: string }>(
      "select datname from pg_database where datname like $1 || '\\_%'",
      [prefix],
    );
    for (const { datname } of rows.filter((row) => row.datname !== name)) {
      print(`Dropping ${datname}, which has another size, seed or migrations ...`);
      await owner.query(`drop database ${owner.escapeIdentifier(datname)}`);
    }
    return rows.some((row) => row.datname === name);
  });
  if (!existing) {
    print(`Creating ${name}: ${schools} school${schools === 1 ? '' : 's'} with ${students} students ...`);
    const draft = `${prefix}_draft`;
    const url = server.url(draft);
    await createDatabase(server, draft);
    await addSchools(url, schools, students, print);
    const hash = await passwords().hash(benchPassword);
    await withOwner(url, async (owner) => {
      await owner.query(`set synchronous_commit = off; ${seedSql}`);
      await owner.query('select pg_temp.bench_school_of_invoices($1, $2, $3)', [students, manyInvoices, hash]);
      await owner.query('vacuum analyze');
    });
    await withOwner(server.url('postgres'), (owner) => owner.query(`alter database ${draft} rename to ${name}`));
  }
  await migrate({ ownerUrl: server.url(name) });
  return openSessions(server, name);
}
