import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { passwords } from '../src/domain/passwords.ts';
import { dispatcher } from '../src/database/call.ts';
import { type EmbeddedServer, ensureDatabase } from '../src/database/embedded.ts';
import { sqlFiles } from '../src/database/install.ts';
import { migrate } from '../src/database/migrate.ts';
import { createOperator } from '../src/database/operator.ts';
import { rolePool, withOwner } from '../src/database/pool.ts';
import { benchPassword } from './cases.ts';

/** A school of the benchmark, with a session of its admin. */
export interface School {
  id: number;
  sessionId: number;
}

/** The number of invoices of the school with many invoices. */
export const manyInvoices = 100_000;

/** The migrated and filled database. */
export interface BenchDatabase {
  name: string;
  url: string;
  schools: School[];
  /** A school with 100,000 invoices, not one of `schools`. */
  invoiceSchool: School;
  /** A session of the platform operator. */
  operator: { userId: number; sessionId: number };
  /** The password hash of all users. */
  passwordHash: string;
}

/** Fills a new database with schools, two in parallel, each in its own transaction. */
async function seed(
  url: string,
  seedSql: string,
  schools: number,
  students: number,
  print: (line: string) => void,
): Promise<void> {
  const hash = await passwords().hash(benchPassword);
  await withOwner(url, (owner) =>
    createOperator(owner, {
      email: 'operator@bench.example',
      passwordHash: hash,
      firstName: 'Olu',
      lastName: 'Operator',
      role: 'admin',
      tenantIds: null,
    }),
  );
  const numbers = Array.from({ length: schools }, (_, n) => n + 1).values();
  const work = () =>
    withOwner(url, async (owner) => {
      await owner.query(`set synchronous_commit = off; ${seedSql}`);
      for (const number of numbers) {
        await owner.query('select pg_temp.bench_school($1, $2, $3)', [number, students, hash]);
        if (number % 50 === 0) print(`  ${number} schools`);
      }
    });
  await Promise.all([work(), work()]);
  await withOwner(url, async (owner) => {
    await owner.query(`set synchronous_commit = off; ${seedSql}`);
    await owner.query('select pg_temp.bench_school_of_invoices($1, $2, $3)', [students, manyInvoices, hash]);
  });
  await withOwner(url, (owner) => owner.query('vacuum analyze'));
}

/**
 * Opens a session for the admin of every school and for the operator, as a login does after it has verified the
 * password.
 */
async function openSessions(
  url: string,
  passwordHash: string,
): Promise<Pick<BenchDatabase, 'schools' | 'invoiceSchool' | 'operator'>> {
  const ids = await withOwner(url, async (owner) => {
    await owner.query('truncate platform.session, platform.refresh_token, platform.login_throttle');
    return (
      await owner.query<{ id: string }>(
        "select id from platform.tenant where subdomain ~ '^school-\\d+$|^invoices$' order by subdomain = 'invoices', id",
      )
    ).rows.map((row) => Number(row.id));
  });
  const pool = rolePool('school_api', url, undefined, 1);
  const call = dispatcher(pool);
  const open = async (whom: object) => {
    const { answer } = await call('auth_session_open', null, { ...whom, user_id: 1, password_hash: passwordHash }, {});
    return (JSON.parse(answer) as { session_id: number }).session_id;
  };
  try {
    const schools: School[] = [];
    for (const id of ids) schools.push({ id, sessionId: await open({ tenant_id: id }) });
    const invoiceSchool = schools.pop() ?? { id: 0, sessionId: 0 };
    return { schools, invoiceSchool, operator: { userId: 1, sessionId: await open({ is_platform: true }) } };
  } finally {
    await pool.end();
  }
}

/**
 * Opens the benchmark database. Creates it unless one with the same migrations, seed and size exists. Updates the
 * functions of core and api in both cases.
 */
export async function benchDatabase(
  server: EmbeddedServer,
  schools: number,
  students: number,
  print: (line: string) => void,
): Promise<BenchDatabase> {
  const seedSql = await readFile(join(import.meta.dirname, 'seed.sql'), 'utf8');
  const parts = [
    schools,
    students,
    seedSql,
    await sqlFiles('migrations/committed'),
    await sqlFiles('migrations/tenant'),
  ];
  const name = `bench_${createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 12)}`;
  const existing = await withOwner(server.url('postgres'), async (owner) => {
    const { rows } = await owner.query<{ datname: string }>(
      "select datname from pg_database where datname like 'bench\\_%'",
    );
    for (const { datname } of rows.filter((row) => row.datname !== name))
      await owner.query(`drop database ${owner.escapeIdentifier(datname)}`);
    return rows.some((row) => row.datname === name);
  });
  if (!existing) {
    print(`Creating ${schools} schools with ${students} students ...`);
    const draft = 'bench_draft';
    await ensureDatabase(server, draft);
    await migrate({ ownerUrl: server.url(draft) });
    await seed(server.url(draft), seedSql, schools, students, print);
    await withOwner(server.url('postgres'), (owner) => owner.query(`alter database ${draft} rename to ${name}`));
  }
  const url = server.url(name);
  await migrate({ ownerUrl: url });
  const { rows } = await withOwner(url, (owner) =>
    owner.query<{ password_hash: string }>('select password_hash from platform.user_account where id = 1'),
  );
  const passwordHash = rows[0]?.password_hash ?? '';
  const sessions = await openSessions(url, passwordHash);
  await withOwner(url, (owner) => owner.query('analyze platform.session'));
  return { name, url, passwordHash, ...sessions };
}
