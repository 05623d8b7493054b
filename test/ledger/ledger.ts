import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { withOwner } from '../../src/database/pool.ts';
import { crashingServer, type CrashingServer } from '../support/server/own-server.ts';
import { type Program, startProgram } from '../support/server/processes.ts';
import { findViolations, nothing, type Summary, summaryErrors } from './invariants.ts';
import { type Answer, nextStep, perform, random, type Random, type World } from './steps.ts';

export interface LedgerOptions {
  /** Determines the steps of each client. How concurrent requests interleave depends on the machine. */
  seed: number;
  seconds: number;
  /** The run continues until each of these steps has had this status, for at most twenty phases. */
  until?: readonly string[];
  clients?: number;
  /** SQL to run in the schema of the school, to test that the invariants detect errors. */
  sabotage?: string | undefined;
  onPhase?: (line: string) => void;
}

/** The report of a run. */
export interface LedgerReport {
  phases: number;
  crashes: number;
  requests: number;
  /** Number of responses by step and status. */
  answers: Record<string, number>;
}

const password = 'test-password';
const schema = 'tenant_1';
const components = [
  [
    { name: 'Tuition', amount: 333.33, frequency: 'monthly' },
    { name: 'Bus', amount: 17.01, frequency: 'quarterly' },
    { name: 'Admission', amount: 50, frequency: 'one_time' },
  ],
  [
    { name: 'Tuition', amount: 99.99, frequency: 'term' },
    { name: 'Lab', amount: 0.03, frequency: 'annual' },
  ],
  [{ name: 'Lunch', amount: 41.5, frequency: 'monthly' }],
];

/**
 * Runs clients against the service while Postgres crashes, and checks the ledger after each phase.
 * @throws with the violated invariants, the seed and the last steps
 */
export async function runLedger({
  seed,
  seconds,
  until = [],
  clients = 5,
  sabotage,
  onPhase = () => undefined,
}: LedgerOptions): Promise<LedgerReport> {
  const log: string[] = [];
  const report: LedgerReport = { phases: 0, crashes: 0, requests: 0, answers: {} };
  const server = await crashingServer();
  let program: Program | undefined;
  try {
    program = startProgram('src/main.ts', [], {
      ...{
        DATABASE_URL: server.url,
        PORT: '0',
        DATA_DIR: join(server.folder, 'data'),
        DEMO: 'false',
        LOG_LEVEL: 'silent',
        DATABASE_POOL_SIZE: '6',
      },
      ...{
        RATE_LIMIT_PER_MINUTE: '0',
        PUBLIC_RATE_LIMIT_PER_MINUTE: '0',
        PLATFORM_ADMIN_EMAIL: 'op@test.example',
        PLATFORM_ADMIN_PASSWORD: password,
      },
    });
    const url = (await program.prints(/API +(http:\S+)\/api/))[1] ?? '';
    const school = await openSchool(url, server, log, report);
    if (sabotage)
      await withOwner(server.url, (owner) => owner.query(`set search_path = ${schema}, public; ${sabotage}`));
    const end = performance.now() + seconds * 1000;
    // The random numbers of a client continue across phases, so that its steps do not depend on timing.
    const choosers = Array.from({ length: clients }, (_, client) => random(seed * 1000 + client));
    const ours = random(seed);
    const isShort = () => report.phases < 20 && until.some((answer) => report.answers[answer] === undefined);
    while (report.phases === 0 || performance.now() < end || isShort()) {
      report.phases++;
      await school.login();
      const isCrashing = report.phases % 2 === 1;
      const work = Promise.all(choosers.map((n, client) => runClient(school.world(client), n, report.phases, client)));
      if (isCrashing) {
        await Promise.race([pause(200 + ours() * 1500), work]);
        await school.crash(ours);
        report.crashes++;
      }
      await work;
      const wrong = await school.findViolations();
      onPhase(
        `phase ${String(report.phases)}${isCrashing ? ', with a crash' : ''}: ${String(report.requests)} requests so far`,
      );
      if (wrong.length > 0) throw new Error(wrong.join('\n'));
    }
    return report;
  } catch (error) {
    const what = error instanceof Error ? error.message : String(error);
    throw new Error(
      `The ledger is wrong with seed ${String(seed)}, in phase ${String(report.phases)}:\n${what}\nWhat was done last:\n${log.slice(-40).join('\n')}`,
      {
        cause: error,
      },
    );
  } finally {
    program?.kill('SIGTERM');
    await program?.ended;
    await server.remove();
  }
}

const stepsOfPhase = 40;

async function runClient(world: World, n: Random, phase: number, client: number): Promise<void> {
  for (let step = 0; step < stepsOfPhase; step++) {
    const name = nextStep(n);
    // Each step has its own generator, because the count of numbers that a step uses depends on the data.
    const numbers = random(Math.floor(n() * 2 ** 31));
    try {
      await perform(name, world, numbers);
    } catch (error) {
      throw new Error(
        `${name}, step ${String(step)} of client ${String(client)} in phase ${String(phase)}: ${error instanceof Error ? error.message : String(error)}`,
        {
          cause: error,
        },
      );
    }
  }
}

/** A school with two years, some classes, students and fee structures, and what its clients need. */
async function openSchool(url: string, server: CrashingServer, log: string[], report: LedgerReport) {
  let token = '';
  let serial = 0;
  /** Since when the database is down. All connections notice it shortly after the restart. */
  let awayFrom = Infinity;
  let backSince = 0;
  const acknowledged = nothing();
  const shared: Omit<World, 'ask' | 'unique'> = {
    students: [],
    fees: [],
    invoices: [],
    payments: [],
    structures: [],
    years: [],
    acknowledged,
  };

  /** Sends one request. The client may disconnect before the response. */
  async function send<T>(
    method: string,
    path: string,
    body: object | undefined,
    headers: Record<string, string>,
    signal?: AbortSignal,
  ): Promise<Answer<T>> {
    report.requests++;
    const response = await fetch(`${url}/api${path}`, {
      method,
      headers: {
        ...(token ? { Authorization: `Bearer ${token}` } : {}),
        ...(body ? { 'Content-Type': 'application/json' } : {}),
        ...headers,
      },
      body: body ? JSON.stringify(body) : null,
      ...(signal ? { signal } : {}),
    });
    const answer = (await response.json()) as { data: T; message?: string };
    return { status: response.status, data: answer.data, message: answer.message ?? '' };
  }

  const ask =
    (client: number): World['ask'] =>
    async <T>(statuses: number[], method: string, path: string, body?: object, key?: string) => {
      const headers: Record<string, string> = key ? { 'Idempotency-Key': key } : {};
      const mayRepeat = method === 'GET' || key !== undefined;
      const patience = performance.now() + 60_000;
      for (let attempt = 1; ; attempt++) {
        const began = performance.now();
        // Sometimes a client does not wait for the response, and retries.
        const isCut = mayRepeat && key !== undefined && attempt === 1 && ++serial % 16 === 0;
        const answer = await send<T>(
          method,
          path,
          body,
          headers,
          isCut ? AbortSignal.timeout(1 + (serial % 20)) : undefined,
        ).catch((error: unknown) => {
          if (isCut) return undefined;
          throw error;
        });
        const took = `${(performance.now() - began).toFixed(0)} ms`;
        log.push(
          `${String(client)}: ${method} ${path} ${body ? JSON.stringify(body) : ''} ${key ?? ''} -> ${answer ? `${String(answer.status)} ${answer.message}` : 'cut off'} (${took})`,
        );
        if (!answer) continue;
        if (answer.status !== 503) {
          const name = `${method} ${path.replace(/\d+/g, ':id').replace(/\?.*/, '')} ${String(answer.status)}`;
          report.answers[name] = (report.answers[name] ?? 0) + 1;
          if (!statuses.includes(answer.status))
            throw new Error(
              `${method} ${path} answered ${String(answer.status)}: ${answer.message}\n${JSON.stringify(body)}`,
            );
          return answer;
        }
        const ended = performance.now();
        // On a busy machine, a request may wait too long for a connection or a lock.
        const isSlow = ended - began > 2500;
        if (!isSlow && (ended < awayFrom || began > backSince + 1000))
          throw new Error(`${method} ${path} answered 503 while the database was there: ${answer.message}`);
        if (ended > patience) throw new Error(`${method} ${path} was answered 503 for a minute.`);
        if (!mayRepeat) return answer;
        await pause(20);
      }
    };
  const admin = ask(-1);
  const make = async (path: string, body: object) =>
    (await admin<{ id: number }>([201], 'POST', path, body, `made-${String(++serial)}`)).data.id;
  const open = async (credentials: object) => {
    token = '';
    const { status, data, message } = await send<{ access_token: string }>(
      'POST',
      '/auth/login',
      { ...credentials, password },
      {},
    );
    if (status !== 200) throw new Error(`Logging in answered ${String(status)}: ${message}`);
    token = data.access_token;
  };
  const login = () => open({ subdomain: 'ledger', email: 'admin@ledger.example' });

  await open({ is_platform: true, email: 'op@test.example' });
  await make('/platform/tenants', {
    name: 'Ledger',
    subdomain: 'ledger',
    contact_email: 'admin@ledger.example',
    plan_id: 3,
    admin_password: password,
  });
  await login();
  const gradeId = await make('/grades', { name: 'One' });
  const now = new Date();
  const firstYear = now.getUTCFullYear() - (now.getUTCMonth() < 7 ? 1 : 0);
  for (const offset of [0, 1]) {
    const [start_date, end_date] = [`${String(firstYear + offset)}-08-01`, `${String(firstYear + offset + 1)}-07-31`];
    const yearId = await make('/academics/years', {
      name: `Year ${String(offset)}`,
      start_date,
      end_date,
      is_current: offset === 0,
    });
    await make('/academic-terms', {
      academic_year_id: yearId,
      name: 'Autumn',
      start_date,
      end_date: `${String(firstYear + offset)}-12-20`,
    });
    await make('/academic-terms', {
      academic_year_id: yearId,
      name: 'Spring',
      start_date: `${String(firstYear + offset + 1)}-01-07`,
      end_date,
    });
    const classes: number[] = [];
    for (const name of ['A', 'B', 'C'])
      classes.push(await make('/classes', { name, grade_id: gradeId, academic_year_id: yearId }));
    shared.years.push({ id: yearId, start: new Date(start_date), classes });
    for (const [n, parts] of components.entries()) {
      const id = await make('/finance/fee-structures', {
        name: `Fees ${String(n)}`,
        academic_year_id: yearId,
        components: parts,
        class_ids: classes,
      });
      shared.structures.push({ id, yearId });
    }
  }
  for (let n = 0; n < 15; n++) {
    shared.students.push(
      await make('/students', {
        first_name: 'Stu',
        last_name: `Dent ${String(n)}`,
        class_id: shared.years[0]?.classes[n % 3],
      }),
    );
  }

  return {
    login,
    world: (client: number): World => ({
      ...shared,
      ask: ask(client),
      unique: (what) => `${what}-${String(++serial)}`,
    }),

    /** Kills Postgres or one of its processes, and waits until it and the service are available again. */
    async crash(n: Random) {
      awayFrom = performance.now();
      backSince = Infinity;
      const before = log.push('(crash)');
      await server.crash(n() < 0.5 ? 'server' : 'backend', Math.floor(n() * 600));
      while ((await fetch(`${url}/api/health/ready`)).status !== 200) await pause(20);
      backSince = performance.now();
      log.push(`(back after ${(backSince - awayFrom).toFixed(0)} ms and ${String(log.length - before)} lines)`);
    },

    /** All errors in the database and in the responses of the service. */
    findViolations: () =>
      withOwner(server.url, async (owner) => {
        const found = await findViolations(owner, schema, acknowledged);
        for (const { id } of shared.years) {
          const { data } = await admin<Summary>([200], 'GET', `/finance/summary?academic_year_id=${String(id)}`);
          found.push(...(await summaryErrors(owner, schema, id, data)));
        }
        return found;
      }),
  };
}
