import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type autocannon from 'autocannon';
import type pg from 'pg';
import { withOwner } from '../src/database/pool/pool.ts';
import type { Tokens } from '../src/http/credentials/tokens.ts';
import type { BenchCase, CaseRequest } from './cases.ts';
import type { Child } from './child.ts';
import type { Database, School } from './database.ts';
import type { Length, Load } from './load.ts';
import type { ServiceChild } from './service.ts';
import type { Statement, StatementsMessage } from './statements.ts';
import { type Measured, pick } from './statistics.ts';
import { cpuSecondsBetween, serverCpuSeconds } from './usage.ts';

/** The service with its database, and a load generator. */
export interface Rig {
  database: Database;
  /** Students per school. */
  students: number;
  service: ServiceChild;
  load: Child;
  tokens: Tokens;
  connections: number;
}

/** The baselines, and the duration of each measurement. */
export interface Comparison {
  rig: Rig;
  /** `core.call` and bare statements through pg. */
  statements: Child;
  /** PostGraphile over the schema of one school, which is in a database of its own. */
  postgraphile: { url: string; pid: number | undefined; databaseUrl: string; school: School };
  seconds: number;
  rounds: number;
}

/**
 * The service over HTTP, `core.call` and the bare statement through pg, the bare statement through `node:http` alone, and
 * PostGraphile over HTTP.
 */
export type System = 'service' | 'call' | 'bare' | 'http' | 'postgraphile';

/** The measurements of each system. Those with the same index are from the same round. */
export type Rounds = Partial<Record<System, Measured[]>>;

/** The result of one case. */
export interface CaseResult {
  one: Rounds;
  /** Undefined if it was not measured for random schools. */
  random: Rounds | undefined;
  /** The first request of a connection to each school, one at a time. Only for cases with baselines. */
  first: Rounds;
  /** CPU time in microseconds per request of one school, in each round: of the server and its database connections. */
  cpuMicroseconds: { service: number[]; postgraphile: number[] };
}

/** Builds requests of a case, each for a school of the given distribution. */
export function sample(
  rig: Pick<Rig, 'students'>,
  bench: BenchCase,
  count: number,
  pickSchool: (n: number) => School,
): { school: School; request: CaseRequest }[] {
  const upTo = (limit: number) => 1 + Math.floor(Math.random() * limit);
  return Array.from({ length: count }, (_, n) => {
    const school = pickSchool(n);
    const request = bench.request({
      tenantId: school.id,
      student: upTo(rig.students),
      classId: upTo(24),
      user: upTo(20),
      students: rig.students,
    });
    return { school, request };
  });
}

/** The requests for the service, with the sessions of their schools. */
export function serviceRequests(rig: Pick<Rig, 'tokens'>, samples: ReturnType<typeof sample>): autocannon.Request[] {
  const tokens = new Map<School, string>();
  const authorization = (school: School) => {
    let token = tokens.get(school);
    if (token === undefined) {
      token = `Bearer ${rig.tokens.sign({ session_id: school.sessionId, user_id: 1, tenant_id: school.id })}`;
      tokens.set(school, token);
    }
    return token;
  };
  return samples.map(({ school, request }) => ({
    method: request.method ?? 'GET',
    path: request.path,
    headers: {
      authorization: authorization(school),
      ...(request.body ? { 'content-type': 'application/json' } : {}),
    },
    ...(request.body ? { body: JSON.stringify(request.body) } : {}),
  }));
}

const statementsOf = (kind: Statement['kind'], bench: BenchCase, samples: ReturnType<typeof sample>): Statement[] =>
  samples.map(({ school, request }) =>
    kind === 'call'
      ? {
          kind,
          args: [
            request.operation,
            String(school.sessionId),
            request.params,
            { request_id: crypto.randomUUID(), ip: '127.0.0.1', school: school.id },
          ],
        }
      : { kind, file: `${bench.name}.sql`, tenantId: school.id, values: request.baseline?.values ?? [] },
  );

async function graphqlRequests(bench: BenchCase, samples: ReturnType<typeof sample>): Promise<autocannon.Request[]> {
  const read = (name: string) => readFile(join(import.meta.dirname, 'baselines', `${name}.graphql`), 'utf8');
  const operation = await read(bench.name);
  const query = operation.includes('...StudentFields') ? operation + (await read('student-fields')) : operation;
  return samples.map(({ request }) => ({
    method: 'POST',
    path: '/graphql',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query, variables: request.baseline?.variables }),
  }));
}

/** Reverts the changes of a case in schools that had `students` students. */
export async function undo(databaseUrl: string, bench: BenchCase, schools: School[], students: number): Promise<void> {
  const { undo: sql } = bench;
  if (!sql) return;
  await withOwner(databaseUrl, async (owner) => {
    // Requests that were cut off at the end of the load may still be running.
    const busy = `select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
      and application_name ~ '^(school_api|school_forwarder|bench_)' and state <> 'idle'`;
    while ((await owner.query(busy)).rowCount) await new Promise((done) => setTimeout(done, 20));
    await owner.query('set synchronous_commit = off');
    for (const { id } of schools)
      await owner.query(
        `set search_path = tenant_${id}, public; delete from notification_delivery; delete from notification; ${sql(students)}`,
      );
    await owner.query('select graphile_worker.complete_jobs(array(select id from core.jobs()))');
    await owner.query('truncate platform.outbox');
    if (schools.length === 1) await vacuum(owner, schools);
  });
}

/** Vacuums the tables that the cases change. */
async function vacuum(owner: pg.Client, schools: School[]): Promise<void> {
  for (const { id } of schools) {
    await owner.query(`set search_path = tenant_${id}, public`);
    await owner.query(
      'vacuum student, enrollment, counter, attendance, attendance_day, payment, student_fee, notification, notification_delivery',
    );
  }
}

/** @throws unless the bare statement of a case that only reads has the same answer as the service */
async function requireSameAnswer(
  statements: Child,
  bench: BenchCase,
  samples: ReturnType<typeof sample>,
): Promise<void> {
  if (!bench.hasBaselines || bench.undo) return;
  const answer = async (kind: Statement['kind']) => {
    const message: StatementsMessage = { mode: 'answer', statements: statementsOf(kind, bench, samples) };
    return JSON.parse((await statements.ask<{ answer: string }>(message)).answer) as unknown;
  };
  if (!isDeepStrictEqual(await answer('call'), await answer('bare')))
    throw new Error(`baselines/${bench.name}.sql returns a different answer than the service.`);
}

/** PostGraphile answers errors with status 200. @throws unless its answer to the case has data only */
async function requireGraphqlAnswer(url: string, [request]: autocannon.Request[]): Promise<void> {
  const body = (request?.body as string | undefined)?.replace('[<id>]', crypto.randomUUID()) ?? null;
  const response = await fetch(`${url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  });
  const answer = (await response.json()) as { errors?: object[] };
  if (answer.errors) throw new Error(`PostGraphile: ${JSON.stringify(answer.errors).slice(0, 1000)}`);
}

/**
 * Measures one case. All systems alternate in each round, because the machine may be shared.
 * @param one  the school of the measurements at one school
 * @param all  the schools of the measurements at random schools; empty if the case is measured at one school only
 */
export async function measure(
  { rig, statements, postgraphile, seconds, rounds }: Comparison,
  bench: BenchCase,
  one: School,
  all: School[],
): Promise<CaseResult> {
  const connections = bench.connections ?? rig.connections;
  const cpuMicroseconds: CaseResult['cpuMicroseconds'] = { service: [], postgraphile: [] };
  const servers = {
    service: { url: rig.service.url, cpu: () => serverCpuSeconds(rig.service.pid, rig.database.url, 'school_api') },
    postgraphile: {
      url: postgraphile.url,
      cpu: () => serverCpuSeconds(postgraphile.pid, postgraphile.databaseUrl, 'bench_postgraphile'),
    },
  };

  async function send(system: System, samples: ReturnType<typeof sample>, length: Length): Promise<Measured> {
    if (system === 'call' || system === 'bare')
      return statements.ask<Measured>({
        statements: statementsOf(system, bench, samples),
        connections,
        mode: 'loop',
        ...length,
      } satisfies StatementsMessage);
    if (system === 'http') {
      const served = statementsOf('bare', bench, samples);
      const message = { mode: 'serve', statements: served, connections } satisfies StatementsMessage;
      const { url } = await statements.ask<{ url: string }>(message);
      const requests = served.map((_, n) => ({ path: `/${n}` }));
      return rig.load.ask<Measured>({ url, requests, connections, ...length } satisfies Load);
    }
    const { url } = servers[system];
    const requests = system === 'service' ? serviceRequests(rig, samples) : await graphqlRequests(bench, samples);
    if (system === 'postgraphile' && 'amount' in length) await requireGraphqlAnswer(url, requests);
    return rig.load.ask<Measured>({ url, requests, connections, ...length } satisfies Load);
  }

  /** Calls `work`, then reverts the changes of its requests. */
  const reverting = async <T>(system: System, schools: School[], work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } finally {
      if (system === 'postgraphile') await undo(postgraphile.databaseUrl, bench, [postgraphile.school], rig.students);
      else await undo(rig.database.url, bench, schools, rig.students);
    }
  };

  /** Warms up the JIT, and the plans of the one school on each connection. */
  const warmUp = (system: System) =>
    reverting(system, [one], () => {
      const amount = 30 * connections;
      return send(
        system,
        sample(rig, bench, amount, () => one),
        { amount },
      );
    });

  /** When each system was last measured for random schools. */
  const measuredAt = new Map<System, number>();
  /**
   * The API closes connections without requests after five minutes. A new one plans everything again, and with so many
   * requests at random each connection has planned what its schools need.
   */
  const needsWarmUp = (system: System) => performance.now() - (measuredAt.get(system) ?? -Infinity) > 4 * 60_000;

  /** Measures random requests of some schools for `seconds`. */
  const run = (system: System, schools: School[]) =>
    reverting(system, schools, async () => {
      const samples = (count: number) => sample(rig, bench, count, () => pick(schools));
      // A connection learns at its next request which tables were vacuumed since its last one. With the plans of 300
      // schools that takes up to 0.3 s.
      const amount = schools.length > 1 && needsWarmUp(system) ? 20 * schools.length : 2 * connections;
      await send(system, samples(amount), { amount });
      if (schools.length > 1)
        return send(system, samples(2000), { seconds }).finally(() => measuredAt.set(system, performance.now()));
      if (system !== 'service' && system !== 'postgraphile') return send(system, samples(2000), { seconds });
      const { cpu } = servers[system];
      const before = await cpu();
      const measured = await send(system, samples(2000), { seconds });
      const cpuSeconds = cpuSecondsBetween(before, await cpu());
      // A connection that was replaced leaves the round without a figure.
      if (!Number.isNaN(cpuSeconds)) cpuMicroseconds[system].push((cpuSeconds / measured.answers) * 1e6);
      return measured;
    });

  const throughPg: System[] = bench.hasBaselines ? ['call', 'bare'] : ['call'];
  const parts: { schools: School[]; systems: System[]; results: Rounds }[] = [
    {
      schools: [one],
      systems: ['service', ...throughPg, ...(bench.hasBaselines ? (['http', 'postgraphile'] as const) : [])],
      results: {},
    },
    ...(all.length > 0 ? [{ schools: all, systems: ['service' as const, ...throughPg], results: {} }] : []),
  ];
  await requireSameAnswer(
    statements,
    bench,
    sample(rig, bench, 1, () => one),
  );
  for (const system of parts[0]?.systems ?? []) await warmUp(system);
  for (let round = 0; round < rounds; round++)
    for (const { schools, systems, results } of parts)
      for (const system of systems) (results[system] ??= []).push(await run(system, schools));

  const first: Rounds = {};
  if (bench.hasBaselines)
    for (let round = 0; round < rounds; round++)
      for (const kind of ['call', 'bare'] as const) {
        const samples = sample(rig, bench, all.length, (n) => all[n] ?? one);
        const message: StatementsMessage = { mode: 'each-once', statements: statementsOf(kind, bench, samples) };
        (first[kind] ??= []).push(await statements.ask<Measured>(message));
        await undo(rig.database.url, bench, all, rig.students);
      }
  if (bench.undo) await withOwner(rig.database.url, (owner) => vacuum(owner, all));
  return { one: parts[0]?.results ?? {}, random: parts[1]?.results, first, cpuMicroseconds };
}
