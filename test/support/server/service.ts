import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from '@jest/globals';
import type { Timing } from '../../../src/process/timing.ts';
import type { Client } from '../client/client.ts';
import { closeIdleConnections } from '../client/connections.ts';
import { type Queries, settle, testDatabase, type TestDatabase, withoutSchedule } from './database.ts';
import { until } from '../client/until.ts';
import { poolerSettings } from './pooler-settings.ts';

const { client, createOperator, passwords, pino, readConfig, startService, withOptions, withOwner } = shared;

/** Argon2 as in the service, but with 64 KiB instead of 19 MiB: tests log in a thousand times. */
const hashing = passwords({ memoryCost: 64 });

export const operatorEmail = 'operator@test.example';
export const testPassword = 'test-password';
/** Signs the tokens of every service of the tests. */
export const testJwtSecret = 'a secret of the tests that is long enough';

/** A running service on a database of its own. */
export interface TestService {
  url: string;
  /** The address of the metrics, if METRICS_PORT is set. */
  metricsUrl: string | undefined;
  /** The same, with those of the workers of the other servers. */
  allMetricsUrls: string[];
  database: TestDatabase;
  /** What another API process on the same schools needs besides the address of the database. */
  settings: Record<string, string>;
  /** A client without a login. */
  anonymous: Client;
  /** A platform operator. */
  operator: Client;
  /** The emails that were sent, oldest first. Waits until there are `count`. */
  outbox(count: number): Promise<string[]>;
  /** Waits until people have been told of everything that has happened: until the outbox of each server is empty. */
  settled(): Promise<void>;
  /** Adds a plan. Default: 5 students, 5 teachers, no features. */
  plan(fields?: Record<string, unknown>): Promise<{ id: number; name: string }>;
  /** Adds a school with an admin. */
  school(fields?: Record<string, unknown>): Promise<School>;
  close(): Promise<void>;
}

/** A school that a test added. */
export interface School {
  id: number;
  subdomain: string;
  /** The schema of its tables. */
  schema: string;
  /** The database that serves it: another one than that of the service if schools are on several servers. */
  database: Queries;
  /** Its first admin. */
  admin: Client;
  adminEmail: string;
  /** Adds a user with these roles (by name) and logs them in. */
  user(roles: string[], fields?: Record<string, unknown>): Promise<Client & { id: number; email: string }>;
  /** Adds a role with exactly these permissions. Returns its name. */
  role(...permissions: string[]): Promise<string>;
  /** Inserts a row into a table of the school. Returns its id. */
  insert(table: string, fields: Record<string, unknown>): Promise<number>;
  /** Inserts an academic year (if there is none), a grade and a class. Returns their ids. */
  classroom(name?: string): Promise<{ classId: number; gradeId: number; yearId: number }>;
}

/** Settings of a service with ten connections, of which one school uses at most eight at the same time. */
export const manyConnections = { DATABASE_POOL_SIZE: '10' };

/** Enough template schools for most files. */
const defaultSchools = 3;

let serial = 0;
/** Letters that differ in each file of a run whose files share the servers. Digits could be part of a test's text. */
const fileLetters = process.env['TEST_NODES']
  ? Array.from({ length: 8 }, () => String.fromCharCode(97 + Math.random() * 26)).join('')
  : '';

/** A name that is unique in the test file: `prefix` and a number. */
export const unique = (prefix: string) => `${prefix}-${fileLetters}${++serial}`;

/**
 * Starts the API and a worker on a clone of the migrated database.
 * @param env  settings that override the tests' own
 * @param schools  how many schools the file adds. They get the tables of template schools (see template-schools.ts). With
 *   0, each school is created by the migrations
 * @param timing  times of the service that override those of the tests
 */
export async function testService(
  env: Record<string, string> = {},
  schools = defaultSchools,
  timing: Partial<Timing> = {},
): Promise<TestService> {
  const database = await testDatabase(schools);
  const { servers } = database;
  const settings: Record<string, string> = servers
    ? {
        API_DATABASE_URL: withOptions(servers.forwarder, '-c role=school_api'),
        LISTEN_DATABASE_URL: [servers.home, ...servers.nodes.map(({ url }) => url)].join(' '),
      }
    : {};
  const dataDir = await mkdtemp(join(tmpdir(), 'school-data-'));
  const values = {
    PORT: '0',
    NODE_ENV: 'test',
    DATA_DIR: dataDir,
    LOG_LEVEL: 'warn',
    // Tests of schools that stay closed send a request to each operation.
    CLOSED_SCHOOL_WAIT_MS: '0',
    JWT_SECRETS: testJwtSecret,
    RATE_LIMIT_PER_MINUTE: '0',
    USER_RATE_LIMIT_PER_MINUTE: '0',
    SCHOOL_RATE_LIMIT_PER_MINUTE: '0',
    PUBLIC_RATE_LIMIT_PER_MINUTE: '0',
    // Few, because a new connection makes its first requests slow. `manyConnections` overrides it.
    DATABASE_POOL_SIZE: '4',
    // Each of them opens a connection at the start. Two still run jobs at the same time.
    WORKER_CONCURRENCY: '2',
    ...poolerSettings(database.url),
    ...settings,
    ...env,
  };
  const options = {
    hashing,
    // A failed test prints it (environment.mts).
    logStream: pino.destination({ dest: serviceLog, sync: true }),
    // So that a table changes only while a request changes it.
    timing: { usageIntervalMs: 3_600_000, ...timing },
  };
  const passwordHash = await hashing.hash(testPassword);
  const homeUrl = servers?.home ?? database.url;
  await withOwner(homeUrl, async (owner) => {
    // Databases with template schools have it already.
    if (schools === 0) await owner.query(withoutSchedule);
    await createOperator(owner, {
      email: operatorEmail,
      passwordHash,
      firstName: 'Op',
      lastName: 'Erator',
      role: 'admin',
      tenantIds: null,
    });
  });
  const service = await startService(readConfig(values), homeUrl, ['api', 'worker'], options);
  const url = service.url ?? '';
  const ofNodes = readConfig({ PUBLIC_URL: url, ...values });
  const workers = await Promise.all(
    (servers?.nodes ?? []).map((node) => startService(ofNodes, node.url, ['worker'], options)),
  );
  const anonymous = await client(url);
  const operator = await anonymous.login({ is_platform: true, email: operatorEmail, password: testPassword });

  async function settled(): Promise<void> {
    await Promise.all(database.all().map(settle));
  }

  async function school(fields: Record<string, unknown> = {}): Promise<School> {
    const n = ++serial;
    const subdomain = `school-${n}-${Math.random().toString(36).slice(2, 8)}`;
    const adminEmail = `admin@${subdomain}.example`;
    const { data } = await operator.post<{ id: number }>(
      '/api/platform/tenants',
      {
        name: `School ${n}`,
        subdomain,
        contact_email: adminEmail,
        plan_id: 3,
        admin_email: adminEmail,
        admin_password: testPassword,
        ...fields,
      },
      201,
    );
    const schema = `tenant_${data.id}`;
    const admin = await anonymous.login({
      subdomain: fields['subdomain'] ?? subdomain,
      email: adminEmail,
      password: testPassword,
    });
    return {
      id: data.id,
      subdomain,
      schema,
      database: database.of(data.id),
      admin,
      adminEmail,
      async user(roles, userFields = {}) {
        const email = `${unique('user')}@${subdomain}.example`;
        const ids = await database.query<{ id: string }>(`select id from ${schema}.role where name = any ($1)`, [
          roles,
        ]);
        const created = await admin.post<{ id: number }>(
          '/api/users',
          {
            email,
            first_name: 'Uma',
            last_name: 'User',
            password: testPassword,
            role_ids: ids.map((row) => Number(row.id)),
            ...userFields,
          },
          201,
        );
        // The welcome is there before the test goes on.
        await settled();
        const loggedIn = await anonymous.login({ tenant_id: data.id, email, password: testPassword });
        return Object.assign(loggedIn, { id: created.data.id, email });
      },
      async role(...permissions) {
        const { data: allPermissions } = await admin.get<{ id: number; name: string }[]>('/api/rbac/permissions');
        const permission_ids = permissions.map(
          (permission) => allPermissions.find(({ name }) => name === permission)?.id,
        );
        return (await admin.post<{ name: string }>('/api/rbac/roles', { name: unique('Role'), permission_ids }, 201))
          .data.name;
      },
      async insert(table, row) {
        const columns = Object.keys(row);
        const [created] = await database.query<{ id: number }>(
          `insert into ${schema}.${table} (${columns.join()}) values (${columns.map((_, n) => `$${n + 1}`).join()}) returning id::integer`,
          Object.values(row),
        );
        if (!created) throw new Error(`No row of ${table} was created.`);
        return created.id;
      },
      async classroom(name = 'Class') {
        const [row] = await database.query<{ class_id: string; grade_id: string; year_id: string }>(
          `with year as (
             insert into ${schema}.academic_year (name, start_date, end_date, is_current)
             select 'Year ' || extract(year from now()), date_trunc('year', now()), date_trunc('year', now()) + interval '1 year - 1 day', true
             where not exists (select from ${schema}.academic_year where is_current) returning id),
           the_year as (select id from year union all select id from ${schema}.academic_year where is_current limit 1),
           grade as (insert into ${schema}.grade (name) values ($1 || ' grade') returning id)
           insert into ${schema}.class (name, grade_id, academic_year_id) select $1, grade.id, the_year.id from grade, the_year
           returning id as class_id, grade_id, academic_year_id as year_id`,
          [name],
        );
        if (!row) throw new Error('No class was created.');
        return { classId: Number(row.class_id), gradeId: Number(row.grade_id), yearId: Number(row.year_id) };
      },
    };
  }

  return {
    url,
    metricsUrl: service.metricsUrl,
    allMetricsUrls: [service, ...workers].flatMap(({ metricsUrl }) => metricsUrl ?? []),
    database,
    settings,
    anonymous,
    operator,
    school,
    async plan(fields = {}) {
      const plan = { name: unique('Plan'), price_monthly: 1, max_students: 5, max_teachers: 5, ...fields };
      return (await operator.post<{ id: number; name: string }>('/api/platform/plans', plan, 201)).data;
    },
    settled,
    async outbox(count) {
      const folder = join(dataDir, 'outbox');
      const names = await until(async () => {
        const found = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith('.eml')).sort();
        return found.length >= count ? found : undefined;
      });
      return Promise.all(names.map((name) => readFile(join(folder, name), 'utf8')));
    },
    async close() {
      // Those of `send`, and those of `client`, which is loaded once per process.
      closeIdleConnections();
      shared.closeIdleConnections();
      await Promise.all([service, ...workers].map((each) => each.close()));
      options.logStream.end();
      await database.drop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/** Starts the service of a test file, at the top of the file. It is closed after the last test. */
export async function serviceOfFile(
  env: Record<string, string> = {},
  schools?: number,
  timing?: Partial<Timing>,
): Promise<TestService> {
  const service = await testService(env, schools, timing);
  afterAll(() => service.close());
  return service;
}

/** Starts the service of a test file, and adds a school. */
export async function serviceWithSchool(
  env: Record<string, string> = {},
  schools?: number,
  timing?: Partial<Timing>,
): Promise<{ service: TestService; school: School }> {
  const service = await serviceOfFile(env, schools, timing);
  try {
    return { service, school: await service.school() };
  } catch (error) {
    // Jest runs no afterAll when a file fails to load.
    await service.close();
    throw error;
  }
}
