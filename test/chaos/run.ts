import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';
import { withOwner } from '../../src/database/pool/pool.ts';
import { serverOfSchool } from '../../src/servers/servers.ts';
import { findViolations, type Summary, summaryErrors } from './acknowledged.ts';
import { chaosClient, type Log } from './client.ts';
import { type Cluster, type FaultName, operatorEmail, password, startCluster } from './cluster.ts';
import { pick, type Random, random } from './random.ts';
import { adminEmail, createSchool, fillSchool, type SharedWorld } from './school.ts';
import { findDisagreements, moveAndConfirm } from './servers.ts';
import { moneySteps } from './steps/money.ts';
import { peopleSteps } from './steps/people.ts';
import { schoolDaySteps } from './steps/school-day.ts';
import type { Step, World } from './world.ts';

export interface ChaosOptions {
  /** Determines the steps of each client and the faults. How concurrent requests interleave depends on the machine. */
  seed: number;
  seconds: number;
  /** The run continues until each of these requests has had this status, for at most twenty phases. */
  until?: readonly string[];
  /** The faults to choose from; by default all. Each phase has one of them, or several in a long run. */
  faults?: readonly FaultName[];
  clients?: number;
  /** The number of nodes beside the home. Each server begins with a school of its own. */
  nodes?: number;
  stepsOfPhase?: number;
  /** SQL to run in the schema of the school, to test that the checks detect errors. */
  sabotage?: string | undefined;
  onPhase?: (line: string) => void;
}

/** The report of a run. */
export interface ChaosReport {
  phases: number;
  requests: number;
  /** Number of faults by name. */
  faults: Record<string, number>;
  /** Number of responses by method, path and status. */
  answers: Record<string, number>;
}

const steps: Record<string, [Step, number]> = { ...moneySteps, ...peopleSteps, ...schoolDaySteps };
/** Each name as often as its weight. */
const lots = Object.entries(steps).flatMap(([name, [, weight]]) => Array<string>(weight).fill(name));

/** Longer than graphile-worker waits before the second retry of a job. */
const queueTimeoutMs = 60_000;

/**
 * Runs clients against several API processes and workers while these, Postgres and their connections fail. After each
 * phase, compares the database with the responses, and checks its invariants.
 * @throws with the violations, the seed and the last requests
 */
export async function runChaos({
  seed,
  seconds,
  until = [],
  faults,
  clients = 6,
  nodes = 0,
  stepsOfPhase = 40,
  sabotage,
  onPhase = () => undefined,
}: ChaosOptions): Promise<ChaosReport> {
  const log: Log = { requests: 0, answers: {}, lines: [] };
  const report: ChaosReport = { phases: 0, requests: 0, faults: {}, answers: log.answers };
  const cluster = await startCluster({ nodes });
  try {
    const schools = await openSchools(cluster, log, nodes + 1);
    if (sabotage) await schools[0]?.asOwner((owner) => owner.query(sabotage));
    const end = performance.now() + seconds * 1000;
    const faultRandom = random(seed);
    // The random numbers of a client continue across phases, so that its steps do not depend on timing.
    const numbers = Array.from({ length: clients }, (_, client) => random(seed * 1000 + client));
    const names = faults ?? (Object.keys(cluster.faults) as FaultName[]);
    const isShort = () =>
      report.phases < 20 &&
      (until.some((answer) => log.answers[answer] === undefined) || names.some((name) => !report.faults[name]));
    while (report.phases === 0 || performance.now() < end || isShort()) {
      report.phases++;
      for (const school of schools) await school.login();
      const state = { isOver: false };
      const work = Promise.all(
        numbers.flatMap((n, client) => {
          const school = schools[client % schools.length];
          return school ? runClient(school.world(client), n, stepsOfPhase, report.phases) : [];
        }),
      ).finally(() => (state.isOver = true));
      work.catch(() => undefined);
      while (!state.isOver) {
        await pause(100 + faultRandom() * 900);
        // First the faults that have not happened yet.
        const name = names.find((each) => !report.faults[each]) ?? pick(names, faultRandom);
        if (!name) break;
        log.lines.push(`(${name})`);
        await cluster.faults[name]?.(faultRandom);
        log.lines.push('(over)');
        report.faults[name] = (report.faults[name] ?? 0) + 1;
        await cluster.check();
      }
      await work;
      const violations = await findAllViolations(cluster, schools);
      report.requests = log.requests;
      const count = Object.values(report.faults).reduce((sum, each) => sum + each, 0);
      onPhase(`phase ${String(report.phases)}: ${String(report.requests)} requests and ${String(count)} faults so far`);
      if (violations.length > 0) throw new Error(violations.join('\n'));
    }
    return report;
  } catch (error) {
    const violation = error instanceof Error ? error.message : String(error);
    throw new Error(
      `Seed ${String(seed)}, phase ${String(report.phases)}:\n${violation}\nThe last requests:\n${log.lines.slice(-60).join('\n')}`,
      { cause: error },
    );
  } finally {
    await cluster.close();
  }
}

async function runClient(world: World, n: Random, stepsOfPhase: number, phase: number): Promise<void> {
  for (let index = 0; index < stepsOfPhase; index++) {
    const name = pick(lots, n) ?? 'look';
    const step = steps[name]?.[0];
    // Each step has its own generator, because the count of numbers that a step uses depends on the data.
    const numbers = random(Math.floor(n() * 2 ** 31));
    try {
      await step?.(world, numbers);
    } catch (error) {
      const where = `${name}, step ${String(index)} of client ${String(world.client)} in phase ${String(phase)}`;
      throw new Error(`${where}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    }
  }
}

/** Waits until the workers have run all jobs that are due, and have emptied the outbox. @returns a description of those that did not succeed */
async function unfinishedJobs(owner: pg.Client): Promise<string[]> {
  const end = performance.now() + queueTimeoutMs;
  for (;;) {
    const { rows } = await owner.query<object>(
      `select task, state, attempts, max_attempts, left(last_error, 200) as last_error, run_at, locked_at, locked_by
       from core.jobs()
       where run_at < now() + interval '30 seconds' or attempts >= max_attempts
       union all
       select 'outbox', event, attempts, null, error, retry_at, created_at, null from platform.outbox`,
    );
    if (rows.length === 0) return [];
    if (performance.now() > end) return rows.slice(0, 5).map((job) => `A job did not finish: ${JSON.stringify(job)}`);
    await pause(200);
  }
}

type OpenSchool = Awaited<ReturnType<typeof openSchool>>;

/** All errors in the databases, in the queues and in the responses of the service. */
async function findAllViolations({ servers }: Cluster, schools: readonly OpenSchool[]): Promise<string[]> {
  const found: string[] = [];
  for (const { url } of [servers.home, ...servers.nodes]) found.push(...(await withOwner(url, unfinishedJobs)));
  for (const school of schools) found.push(...(await school.findViolations()));
  return [...found, ...(await findDisagreements(servers))];
}

/** Creates a school for each server. New ones begin on the nodes, so the first one moves to the home. */
async function openSchools(cluster: Cluster, log: Log, count: number): Promise<OpenSchool[]> {
  const schools: OpenSchool[] = [];
  for (let n = 0; n < count; n++) schools.push(await openSchool(cluster, log, `chaos-${String(n)}`));
  const [first] = schools;
  if (first && count > 1) await moveAndConfirm(cluster.servers, first.id, 'home');
  return schools;
}

/** Creates a school. Returns its clients and its checks. */
async function openSchool({ servers, apiUrls }: Cluster, log: Log, subdomain: string) {
  let token = '';
  let serial = 0;
  const client = (name: string) => chaosClient(`${subdomain} ${name}`, apiUrls, () => token, log);
  const admin = client('admin');
  const logIn = async (credentials: object) => {
    token = '';
    const body = { ...credentials, password };
    // A login changes nothing that a repeat could break.
    for (;;) {
      const { status, data } = await admin<{ access_token: string }>([200], 'POST', '/auth/login', body);
      if (status === 200) {
        token = data.access_token;
        return;
      }
    }
  };
  const login = () => logIn({ subdomain, email: adminEmail });
  await logIn({ is_platform: true, email: operatorEmail });
  const id = await createSchool(admin, subdomain);
  await login();
  const shared: SharedWorld = await fillSchool(admin);

  const schema = `tenant_${String(id)}`;
  /** Runs `work` in the schema of the school, on the server where it lives now. */
  const asOwner = async <T>(work: (owner: pg.Client) => Promise<T>): Promise<T> => {
    const { url } = await serverOfSchool(servers.home.url, String(id));
    return withOwner(url, async (owner) => {
      await owner.query(`set search_path = ${schema}, public`);
      return work(owner);
    });
  };

  return {
    id,
    asOwner,
    login,
    world: (number: number): World => ({
      ...shared,
      client: number,
      request: client(`client ${String(number)}`),
      unique: (prefix) => `${prefix}-${String(++serial)}`,
    }),

    /** All errors in the database and in the responses of the service. */
    async findViolations(): Promise<string[]> {
      const found = await asOwner((owner) => findViolations(owner, id, shared.acknowledged));
      for (const year of shared.years) {
        const path = `/finance/summary?academic_year_id=${String(year.id)}`;
        const { data } = await admin<Summary>([200], 'GET', path);
        found.push(...(await asOwner((owner) => summaryErrors(owner, schema, year.id, data))));
      }
      return found;
    },
  };
}
