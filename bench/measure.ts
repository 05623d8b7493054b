import type autocannon from 'autocannon';
import { withOwner } from '../src/database/pool.ts';
import type { Tokens } from '../src/http/tokens.ts';
import type { BenchCase, CaseRequest } from './cases.ts';
import type { Child } from './child.ts';
import type { BenchDatabase, School } from './database.ts';
import type { BaselineMessage, Statement } from './baseline.ts';
import type { Load, Measured } from './load.ts';
import type { ServiceChild } from './service.ts';
import { usage } from './usage.ts';

/** Everything that a measurement needs. */
export interface Rig {
  database: BenchDatabase;
  students: number;
  service: ServiceChild;
  baseline: Child;
  load: Child;
  tokens: Tokens;
  connections: number;
  seconds: number;
  rounds: number;
}

/** The result of one case, for one school or for random schools: the service and its baselines. */
export interface CaseResult {
  service: Omit<Measured, 'answers'>;
  /**
   * Responses per second of the baseline: the same statement through node:http and pg, or only argon2, or only writing
   * a PDF.
   */
  baseline: number;
  /** The statement with pg alone. Undefined if the baseline is not the statement. */
  loop: number | undefined;
  /** node:http alone, responding with as many bytes. */
  constant: number;
  /** service / baseline. */
  ratio: number;
  /** CPU time of the Node process per response in µs, without database and load generator. It has little noise. */
  cpu: { service: number; baseline: number | undefined };
}

const pick = (upTo: number) => 1 + Math.floor(Math.random() * upTo);

const median = (values: number[]): number => values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;

/** Builds the requests of a case with their sessions, and the statements behind them. */
function prepare(
  rig: Rig,
  bench: BenchCase,
  schools: School[],
): { requests: autocannon.Request[]; statements: Statement[] } {
  const samples = Array.from({ length: 2000 }, () => {
    const school = schools[pick(schools.length) - 1] ?? { id: 0, sessionId: 0 };
    const request: CaseRequest = bench.request({
      tenantId: school.id,
      student: pick(rig.students),
      classId: pick(24),
      user: pick(20),
      students: rig.students,
    });
    return { school, request };
  });
  const authorization = new Map(
    schools.map(({ id, sessionId }) => [
      id,
      `Bearer ${rig.tokens.sign({ session_id: sessionId, user_id: 1, tenant_id: id })}`,
    ]),
  );
  return {
    requests: samples.map(({ school, request }) => ({
      method: request.method ?? 'GET',
      path: request.path,
      headers: {
        authorization: authorization.get(school.id),
        ...(request.body ? { 'content-type': 'application/json' } : {}),
      },
      ...(request.body ? { body: JSON.stringify(request.body) } : {}),
    })),
    statements: samples.map(({ school, request }) => [
      request.operation,
      String(school.sessionId),
      request.params,
      { request_id: crypto.randomUUID(), ip: '127.0.0.1' },
    ]),
  };
}

/** Reverts the changes of a case. */
async function undo(rig: Rig, bench: BenchCase, schools: School[]): Promise<void> {
  const { undo: sql } = bench;
  if (!sql) return;
  await withOwner(rig.database.url, async (owner) => {
    // Requests that were cut off at the end of the load may still be running.
    const busy =
      "select from pg_stat_activity where datname = current_database() and application_name = 'school_api' and state <> 'idle'";
    while ((await owner.query(busy)).rowCount) await new Promise((done) => setTimeout(done, 20));
    for (const { id } of schools) await owner.query(`set search_path = tenant_${id}, public; ${sql(rig.students)}`);
    if (schools.length === 1) await owner.query('vacuum student, enrollment, counter');
  });
}

/**
 * Measures one case. Service and baseline alternate, because the machine may be shared. Reports the median of the
 * rounds.
 * @param schools  each request picks one of them at random
 */
export async function measure(rig: Rig, bench: BenchCase, schools: School[]): Promise<CaseResult> {
  const { service, seconds } = rig;
  const connections = bench.connections ?? rig.connections;
  const generateLoad = async (
    url: string,
    requests: autocannon.Request[],
    time = seconds,
  ): Promise<Measured & { cpu: number }> => {
    const { pid } = url === service.url ? service : rig.baseline;
    const before = await usage(pid);
    const measured = await rig.load.ask<Measured>({ url, requests, connections, seconds: time } satisfies Load);
    return { ...measured, cpu: (((await usage(pid)).cpuSeconds - before.cpuSeconds) / measured.answers) * 1e6 };
  };
  const ask = <T>(message: BaselineMessage) => rig.baseline.ask<T>(message);
  const byNumber = (count: number): autocannon.Request[] =>
    Array.from({ length: count }, (_, n) => ({ path: `/${n}` }));

  const runService = async (time?: number) => {
    const answer = await generateLoad(service.url, prepare(rig, bench, schools).requests, time);
    await undo(rig, bench, schools);
    return answer;
  };
  const runBaseline = async (time = seconds) => {
    if (bench.baseline === 'argon2') {
      const { passwordHash: hash } = rig.database;
      const password = (
        bench.request({ tenantId: 0, student: 0, classId: 0, user: 1, students: 0 }).body as { password: string }
      ).password;
      return {
        ...(await ask<{ perSecond: number }>({
          mode: 'argon2',
          hash,
          password,
          seconds: time,
          concurrency: connections,
        })),
        cpu: undefined,
      };
    }
    const { statements } = prepare(rig, bench, schools);
    if (bench.baseline === 'print')
      return {
        ...(await ask<{ perSecond: number }>({ mode: 'print', statements, seconds: time, concurrency: connections })),
        cpu: undefined,
      };
    const { url } = await ask<{ url: string }>({ mode: 'statements', statements });
    const answer = await generateLoad(url, byNumber(statements.length), time);
    await undo(rig, bench, schools);
    return answer;
  };
  const runLoop = async () => {
    const { statements } = prepare(rig, bench, schools);
    const { perSecond } = await ask<{ perSecond: number }>({
      mode: 'loop',
      statements,
      seconds,
      concurrency: connections,
    });
    await undo(rig, bench, schools);
    return perSecond;
  };
  const runConstant = async () => {
    const [sample] = prepare(rig, bench, schools).requests;
    const response = await fetch(`${service.url}${sample?.path ?? ''}`, {
      method: sample?.method ?? 'GET',
      headers: sample?.headers as Record<string, string>,
      body: (sample?.body as string | undefined) ?? null,
    });
    const bytes = (await response.arrayBuffer()).byteLength;
    const { url } = await ask<{ url: string }>({ mode: 'constant', bytes });
    return (await generateLoad(url, [{ path: '/' }])).perSecond;
  };

  // Warm up plans, catalog caches and the JIT.
  await runService(1);
  await runBaseline(1);
  const services: Awaited<ReturnType<typeof runService>>[] = [];
  const baselines: Awaited<ReturnType<typeof runBaseline>>[] = [];
  for (let round = 0; round < rig.rounds; round++) {
    services.push(await runService());
    baselines.push(await runBaseline());
  }
  const baseline = median(baselines.map((f) => f.perSecond));
  const result = {
    perSecond: median(services.map((s) => s.perSecond)),
    p50: median(services.map((s) => s.p50)),
    p99: median(services.map((s) => s.p99)),
  };
  return {
    service: result,
    baseline,
    loop: bench.baseline === 'statement' ? await runLoop() : undefined,
    constant: await runConstant(),
    ratio: result.perSecond / baseline,
    cpu: {
      service: median(services.map((s) => s.cpu)),
      baseline: bench.baseline === 'statement' ? median(baselines.map((f) => f.cpu ?? NaN)) : undefined,
    },
  };
}

/** Sends a request as a user of a school or as an operator. @throws unless the response has this `status` */
async function send(
  rig: Rig,
  claims: Parameters<Tokens['sign']>[0],
  status: number,
  method: string,
  path: string,
  body?: object | FormData,
): Promise<{ id: number }> {
  const response = await fetch(`${rig.service.url}/api${path}`, {
    method,
    headers: {
      authorization: `Bearer ${rig.tokens.sign(claims)}`,
      ...(body instanceof FormData ? {} : { 'content-type': 'application/json' }),
    },
    body: body instanceof FormData ? body : body ? JSON.stringify(body) : null,
  });
  const text = await response.text();
  if (response.status !== status)
    throw new Error(`${method} ${path} returned ${response.status}: ${text.slice(0, 500)}`);
  return (JSON.parse(text) as { data: { id: number } }).data;
}

const timed = async (work: () => Promise<unknown>): Promise<number> => {
  const start = performance.now();
  await work();
  return performance.now() - start;
};

/** Creates a school by POST /api/platform/tenants. */
function newSchool(rig: Rig): Promise<{ id: number }> {
  const { operator } = rig.database;
  const name = `bench-${crypto.randomUUID().slice(0, 8)}`;
  return send(
    rig,
    { session_id: operator.sessionId, user_id: operator.userId, tenant_id: null },
    201,
    'POST',
    '/platform/tenants',
    {
      name,
      subdomain: name,
      contact_email: 'new@bench.example',
      plan_id: 3,
      admin_password: 'a new password',
    },
  );
}

/** Measures plain inserts of the fees and fee items of a school, in ms: the baseline of billing. */
function measureFees(rig: Rig, tenantId: number): Promise<number> {
  return withOwner(rig.database.url, async (owner) => {
    await owner.query(
      `set search_path = tenant_${tenantId}, public;
       select set_config('app.tenant_id', '${tenantId}', false), set_config('app.scope', 'all', false);
       create temporary table fee as select * from student_fee; create temporary table item as select * from student_fee_item; delete from student_fee;
       grant select on fee, item to school_tenant; grant insert on student_fee to school_tenant; set role school_tenant`,
    );
    const columns = 'student_id, fee_component_id, name, amount, period_start, period_end';
    return timed(() =>
      owner.query(
        `begin; insert into student_fee (id, student_id, fee_structure_id, class_id, amount, due_date, billed_on, items_digest)
           select id, student_id, fee_structure_id, class_id, amount, due_date, billed_on, items_digest from fee order by id;
         insert into student_fee_item (student_fee_id, ${columns}) select student_fee_id, ${columns} from item order by id; commit`,
      ),
    );
  });
}

/**
 * Imports 5,000 students into a new school, bills them and promotes 500 of them, three times. @returns the median times
 * in ms
 */
export async function measureSchoolYear(
  rig: Rig,
): Promise<{ importing: number; billing: number; billingBaseline: number; billingAgain: number; promoting: number }> {
  const importing: number[] = [];
  const billing: number[] = [];
  const billingBaseline: number[] = [];
  const billingAgain: number[] = [];
  const promoting: number[] = [];
  for (let n = 0; n < 3; n++) {
    const { id } = await newSchool(rig);
    const sessionId = await withOwner(rig.database.url, async (owner) => {
      const { rows } = await owner.query<{ id: string }>(
        `insert into platform.session (tenant_id, user_id, email, permissions, roles, expires_at)
         select $1, 1, 'new@bench.example', (select array_agg(name) from core.permission), '{admin}', now() + interval '1 hour' returning id`,
        [id],
      );
      return Number(rows[0]?.id);
    });
    const admin = { session_id: sessionId, user_id: 1, tenant_id: id };
    const add = (path: string, body: object) => send(rig, admin, 201, 'POST', path, body);
    const grade = await add('/grades', { name: 'One' });
    const year = await add('/academics/years', {
      name: 'Now',
      start_date: '2026-08-01',
      end_date: '2027-07-31',
      is_current: true,
    });
    const nextYear = await add('/academics/years', { name: 'Next', start_date: '2027-08-01', end_date: '2028-07-31' });
    const present = await add('/classes', { name: 'Now', grade_id: grade.id, academic_year_id: year.id });
    const next = await add('/classes', { name: 'Next', grade_id: grade.id, academic_year_id: nextYear.id });
    const lines = Array.from(
      { length: 5000 },
      (_, row) => `Benedikt,Benchmark ${row},2015-04-01,male,Berta Benchmark,${present.id}`,
    );
    const form = new FormData();
    form.append(
      'file',
      new Blob([['first_name,last_name,date_of_birth,gender,parent_name,class_id', ...lines].join('\n')]),
      'students.csv',
    );
    importing.push(await timed(() => send(rig, admin, 201, 'POST', '/students/import', form)));
    const structure = await add('/finance/fee-structures', {
      name: 'Fees',
      academic_year_id: year.id,
      class_ids: [present.id],
      components: ['one_time', 'monthly', 'quarterly', 'annual'].map((frequency) => ({
        name: frequency,
        amount: 100,
        frequency,
      })),
    });
    const bill = () =>
      timed(() =>
        send(rig, admin, 200, 'POST', '/finance/student-fees/generate', {
          fee_structure_id: structure.id,
          date: '2027-07-31',
        }),
      );
    billing.push(await bill());
    billingBaseline.push(await measureFees(rig, id));
    billingAgain.push(await bill());
    const student_ids = Array.from({ length: 500 }, (_, student) => student + 1);
    promoting.push(
      await timed(() =>
        send(rig, admin, 200, 'POST', '/students/promote', {
          student_ids,
          to_class_id: next.id,
          to_academic_year_id: nextYear.id,
        }),
      ),
    );
  }
  await deleteCreatedSchools(rig);
  return {
    importing: median(importing),
    billing: median(billing),
    billingBaseline: median(billingBaseline),
    billingAgain: median(billingAgain),
    promoting: median(promoting),
  };
}

/** Deletes the schools that a measurement created. */
async function deleteCreatedSchools(rig: Rig): Promise<void> {
  await withOwner(rig.database.url, async (owner) => {
    const { rows } = await owner.query<{ id: string }>("select id from platform.tenant where subdomain like 'bench-%'");
    for (const { id } of rows)
      await owner.query(`drop schema tenant_${id} cascade; delete from platform.tenant where id = ${id}`);
  });
}

/** Creates ten schools by POST /api/platform/tenants and deletes them. @returns the median time in ms */
export async function measureProvisioning(rig: Rig): Promise<number> {
  const times: number[] = [];
  for (let n = 0; n < 10; n++) times.push(await timed(() => newSchool(rig)));
  await deleteCreatedSchools(rig);
  return median(times);
}
