import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import pg from 'pg';
import { startEmbedded } from '../src/database/embedded.ts';
import { tokens } from '../src/http/credentials/tokens.ts';
import { benchDatabase, type School } from './database.ts';
import { count, listOf, note, runBenchmark } from './run.ts';
import { startApi, startWorker } from './service.ts';
import { quantile } from './statistics.ts';

// `npm run bench:fairness`: how long five schools wait for each shared resource, alone and while a sixth school sends ten
// times as many requests as each of them. Requests of that school may be refused (429, 503).

const resources = [
  'connections',
  'passwords',
  'imports',
  'exports',
  'printing',
  'generator',
  'streams',
  'analytics',
  'jobs',
  'notifications',
] as const;
type Resource = (typeof resources)[number];
const resource = (text: string): Resource => {
  const known = resources.find((one) => one === text);
  if (!known) throw new InvalidArgumentError(`Allowed: ${resources.join(', ')}.`);
  return known;
};

const options = new Command('bench:fairness')
  .description('Measures how much a busy school slows down five others, for each resource that schools share.')
  .option('--seconds <n>', 'how long each measurement takes', count, 10)
  .option('--students <n>', 'students of a school', count, 300)
  .option('--only <resources>', `only these resources, separated by commas: ${resources.join(', ')}`, listOf(resource))
  .parse()
  .opts<{ seconds: number; students: number; only?: Resource[] }>();

const others = 5;
/** Each of the other schools sends one request at a time, the busy one this many. */
const busyRequests = 10;
/** Between two requests of a client, also after a refusal. */
const pauseMs = 50;

/** Uses a resource once. @throws if the request was refused or failed */
type Use = (school: School) => Promise<unknown>;

/** Repeats a use until the signal aborts. @returns the latencies of those that succeeded, and the number of the others */
async function repeat(use: Use, school: School, pause: number, signal: AbortSignal) {
  const latencies: number[] = [];
  let refused = 0;
  while (!signal.aborted) {
    const start = performance.now();
    try {
      await use(school);
      latencies.push(performance.now() - start);
    } catch {
      refused++;
    }
    await new Promise((done) => setTimeout(done, pause));
  }
  return { latencies, refused };
}

async function measure(use: Use, quiet: School[], busy: School | undefined) {
  const signal = AbortSignal.timeout(options.seconds * 1000);
  const flood = busy ? Array.from({ length: busyRequests }, () => repeat(use, busy, pauseMs, signal)) : [];
  const results = await Promise.all(quiet.map((school) => repeat(use, school, pauseMs, signal)));
  await Promise.all(flood);
  return {
    p99: quantile(
      results.flatMap(({ latencies }) => latencies),
      0.99,
    ),
    refused: results.reduce((sum, { refused }) => sum + refused, 0),
  };
}

/** A CSV of 200 students. A dry run reads and checks it. */
const csv = ['first_name,last_name', ...Array.from({ length: 200 }, (_, n) => `Amina,Okafor ${n}`)].join('\n');

function uses(
  url: string,
  owner: pg.Pool,
  tokenOf: (school: School) => string,
  analystOf: (school: School) => string,
): Record<Resource, Use> {
  const send = async (school: School, path: string, init: RequestInit = {}) => {
    const headers = new Headers(init.headers);
    headers.set('authorization', `Bearer ${tokenOf(school)}`);
    const response = await fetch(`${url}${path}`, { ...init, headers });
    const text = await response.text();
    if (!response.ok) throw new Error(`${path} answered ${response.status}: ${text}`);
  };
  const post = (school: School, path: string, body: object) =>
    send(school, path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  const form = () => {
    const data = new FormData();
    data.set('dry_run', 'true');
    data.set('file', new Blob([csv], { type: 'text/csv' }), 'students.csv');
    return data;
  };
  let serial = 0;
  return {
    connections: (school) => send(school, '/api/students?search=okafor'),
    passwords: (school) =>
      post(school, '/api/users', {
        email: `fair${Date.now()}-${serial++}@bench.example`,
        first_name: 'Fay',
        last_name: 'Fair',
        password: 'bench-password',
        role_ids: [2],
      }),
    imports: (school) => send(school, '/api/students/import', { method: 'POST', body: form() }),
    exports: (school) => send(school, '/api/finance/balances/export?format=csv'),
    printing: (school) => send(school, '/api/timetable/print?class_id=1'),
    generator: (school) =>
      post(school, '/api/timetable/generate', {
        class_ids: [1],
        dry_run: true,
        allow_partial: true,
        time_limit_seconds: 1,
        effort: 1,
      }),
    streams: async (school) => {
      const gone = new AbortController();
      const response = await fetch(`${url}/api/notifications/stream`, {
        headers: { authorization: `Bearer ${tokenOf(school)}` },
        signal: gone.signal,
      });
      gone.abort();
      if (!response.ok) throw new Error(`A stream was answered with ${response.status}.`);
    },
    analytics: async (school) => {
      const response = await fetch(`${url}/graphql`, {
        method: 'POST',
        headers: { authorization: `Bearer ${analystOf(school)}`, 'content-type': 'application/json' },
        body: JSON.stringify({
          query: '{ attendanceDays { aggregates { distinctCount { classId date tenantId } } } }',
        }),
      });
      const text = await response.text();
      if (!response.ok || text.includes('"errors"')) throw new Error(`A query was answered with ${text}`);
    },
    jobs: async (school) => {
      const key = `fair-${serial++}`;
      await owner.query(
        `select core.add_jobs('send_email', array[(jsonb_build_object('tenant_id', $1::bigint, 'user_id', 1,
           'kind', 'email_verification'), $2, null)::core.new_job])`,
        [school.id, key],
      );
      const isQueued = `select from graphile_worker.jobs where key like '%:' || $1`;
      while ((await owner.query(isQueued, [key])).rowCount) await new Promise((done) => setTimeout(done, 10));
    },
    // From the request until the notifications of all users of the school are stored.
    notifications: async (school) => {
      await post(school, '/api/notifications/send', {
        all: true,
        title: 'Snow',
        message: 'The school is closed today.',
      });
      const waits = 'select from platform.outbox where tenant_id = $1 limit 1';
      while ((await owner.query(waits, [school.id])).rowCount) await new Promise((done) => setTimeout(done, 10));
    },
  };
}

/** Gives the first class of each school lessons to place. Its timetable is made anew, so that they have room. */
async function addSubjects(owner: pg.Pool, schools: readonly School[]): Promise<void> {
  for (const { id } of schools)
    await owner.query(
      `insert into tenant_${id}.class_subject (class_id, subject_id, teacher_id, periods_per_week)
       select 1, n, n, 3 from generate_series(1, 8) n`,
    );
}

/** Gives a school so many users that its requests together send 20,000 notifications at a time. */
async function addUsers(owner: pg.Pool, { id }: School): Promise<void> {
  await owner.query(
    `insert into tenant_${id}.user_account (email, first_name, last_name)
     select 'many' || n || '@bench.example', 'Uma', 'User' from generate_series(1, $1::integer) n`,
    [20_000 / busyRequests],
  );
}

/** Adds an analyst for each school, who stands for it: analysts belong to no school. */
async function addAnalysts(owner: pg.Pool, schools: readonly School[]) {
  const analysts = new Map<School, { session_id: number; user_id: number }>();
  for (const school of schools) {
    const { rows } = await owner.query<{ id: string; user_id: string }>(
      `with added as (
         insert into platform.user_account (email, password_hash, first_name, last_name, role)
           values ('analyst' || $1 || '@bench.example', '', 'Ana', 'Lyst', 'analyst') returning id, email)
       insert into platform.session (user_id, email, permissions, roles, expires_at)
         select id, email, '{}', '{analyst}', now() + interval '1 day' from added returning id, user_id`,
      [school.id],
    );
    for (const { id, user_id } of rows) analysts.set(school, { session_id: Number(id), user_id: Number(user_id) });
  }
  return analysts;
}

await runBenchmark(async (atEnd) => {
  const folder = await mkdtemp(join(tmpdir(), 'school-bench-'));
  atEnd(() => rm(folder, { recursive: true, force: true }));
  const server = await startEmbedded(folder);
  atEnd(() => server.stop());
  const database = await benchDatabase(server, others + 1, options.students, note, 'fairness');
  const secret = randomBytes(32).toString('hex');
  const service = await startApi(database.url, secret, 10, folder, atEnd);
  await startWorker(database.url, secret, folder, atEnd);
  const signing = tokens([secret]);
  const tokenOf = ({ id, sessionId }: School) => signing.sign({ session_id: sessionId, user_id: 1, tenant_id: id });
  const [busy, ...quiet] = database.schools;
  // The requests of the jobs run at the same time.
  const owner = new pg.Pool({ connectionString: database.url, max: others + busyRequests });
  atEnd(() => owner.end());
  await addSubjects(owner, database.schools);
  if (busy) await addUsers(owner, busy);
  const analysts = await addAnalysts(owner, database.schools);
  const analystOf = (school: School) =>
    signing.sign({ ...(analysts.get(school) ?? { session_id: 0, user_id: 0 }), tenant_id: null });
  const lines = ['resource      p99 alone ms   with a busy school ms   factor   refused'];
  const useOf = uses(service.url, owner, tokenOf, analystOf);
  for (const name of options.only ?? resources) {
    const use = useOf[name];
    note(name);
    // The first use loads code and plans. It also shows whether the request works at all.
    try {
      for (const school of database.schools) await use(school);
    } catch (error) {
      lines.push(`${name.padEnd(14)}not measured: ${error instanceof Error ? error.message : String(error)}`);
      continue;
    }
    const alone = await measure(use, quiet, undefined);
    const crowded = await measure(use, quiet, busy);
    const cells = [alone.p99.toFixed(1), crowded.p99.toFixed(1), (crowded.p99 / alone.p99).toFixed(2)];
    const [first = '', second = '', factor = ''] = cells;
    lines.push(
      `${name.padEnd(14)}${first.padStart(12)}${second.padStart(24)}${factor.padStart(9)}` +
        String(alone.refused + crowded.refused).padStart(10),
    );
  }
  return `${lines.join('\n')}\n`;
});
