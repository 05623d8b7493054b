import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { withOwner } from '../../src/database/pool/pool.ts';
import { ownServer } from '../support/server/own-server.ts';
import { type Program, startProgram } from '../support/server/processes.ts';
import { balancer, type Side, type Target } from './balancer.ts';
import {
  checkSchools,
  type Load,
  openOperator,
  openSchool,
  startAnalytics,
  operatorEmail,
  password,
  type School,
  startLoad,
} from './load.ts';
import { type Release, unpack } from './releases.ts';

export interface UpgradeOptions {
  release: Release;
  /** How long the clients run in all phases together, besides the time that the steps take. */
  seconds: number;
  print: (line: string) => void;
}

/** How long a school has an open transaction for which its migration must wait. */
const longTransactionMs = 3_000;

/** How long the workers may take to run the jobs that are left at the end. */
const queueTimeoutMs = 60_000;

/** The API process and the worker of a release. */
interface Running {
  target: Target;
  api: Program;
  worker: Program;
}

/**
 * Upgrades from a release to this version, back, and again, while clients send requests. Both releases use one database.
 * @throws if a request failed, or if the database differs from what was acknowledged
 */
export async function runUpgrade({ release, seconds, print }: UpgradeOptions): Promise<void> {
  const scratch = await mkdtemp(join(tmpdir(), 'school-upgrade-'));
  const server = await ownServer();
  const url = server.url('school');
  const programs: Program[] = [];
  const requests = balancer();
  const load: Load = { balancer: requests, isOver: false };
  const schools: School[] = [];
  let operator: Awaited<ReturnType<typeof openOperator>> | undefined;
  const start = performance.now();
  const elapsed = () => `${((performance.now() - start) / 1000).toFixed(1).padStart(6)} s`;
  const say = (line: string) => print(`${elapsed()}  ${line}`);
  const phase = async (name: string, work: () => Promise<void>) => {
    requests.phase = name;
    say(name);
    await work();
    if (requests.failures.length > 0) throw new Error('Stopped after a failure.');
  };
  const rest = () => pause((seconds * 1000) / 6);
  const folders: Record<Side, string | undefined> = { old: undefined, new: undefined };
  const env = {
    DATABASE_URL: url,
    PORT: '0',
    DATA_DIR: join(server.folder, 'data'),
    DEMO: 'false',
    LOG_LEVEL: 'warn',
    JWT_SECRETS: 'a secret of the tests that is long enough',
    MIGRATE_ON_START: 'false',
    // More than the clients use. While the functions are installed, a request waits in the database without a limit, but
    // at most three seconds for a connection, which is too short on a busy machine.
    DATABASE_POOL_SIZE: '30',
    RATE_LIMIT_PER_MINUTE: '0',
    USER_RATE_LIMIT_PER_MINUTE: '0',
    SCHOOL_RATE_LIMIT_PER_MINUTE: '0',
    PUBLIC_RATE_LIMIT_PER_MINUTE: '0',
    LOGIN_RATE_LIMIT_PER_MINUTE: '0',
    PLATFORM_ADMIN_EMAIL: operatorEmail,
    PLATFORM_ADMIN_PASSWORD: password,
  };
  const program = (side: Side, file: string, args: string[]) => {
    const cwd = folders[side];
    const started = startProgram(file, args, env, cwd === undefined ? {} : { cwd });
    programs.push(started);
    return started;
  };

  /** Starts the processes of a release, and waits until they are ready. */
  async function run(side: Side): Promise<Running> {
    const api = program(side, 'src/main.ts', ['--only', 'api']);
    const worker = program(side, 'src/main.ts', ['--only', 'worker']);
    // 1.0.0-rc.2 and earlier releases print text.
    const [, address = ''] = await api.prints(/(?:"api":"|API +)(http:[^\s"]+)\/api/);
    await worker.prints(/Worker ready(?: in |\.)/);
    const target = requests.add(side, address);
    target.isOpen = false;
    await requireReady(side, address);
    if (operator) await startAnalytics(operator, address);
    target.isOpen = true;
    return { target, api, worker };
  }

  /** @throws unless a process is ready */
  async function requireReady(side: Side, address: string): Promise<void> {
    const response = await fetch(`${address}/api/health/ready`);
    if (response.status !== 200) throw new Error(`The ${side} release is not ready: ${await response.text()}`);
  }

  /** Stops the processes of a release, while they still get requests. */
  async function stop(side: Side, { target, api, worker }: Running): Promise<void> {
    target.isStopping = true;
    api.kill('SIGTERM');
    worker.kill('SIGTERM');
    for (const { ended } of [api, worker]) {
      const { code, stdout, stderr } = await ended;
      if (code !== 0)
        throw new Error(`A process of the ${side} release ended with ${String(code)}:\n${stdout}\n${stderr}`);
    }
    target.isOpen = false;
  }

  /** Migrates the database to a release, as its operators do. Until then, each school may answer 503. */
  async function migrate(side: Side, more: string[] = []): Promise<void> {
    const migrated = new Set<number>();
    requests.migrated = migrated;
    const migration = program(side, 'src/cli/main.ts', ['migrate', ...more]);
    const done = /school (\d+) \([^)]*\): \d+ applied/g;
    while (!migration.hasEnded) {
      for (const [, id] of migration.output().matchAll(done)) migrated.add(Number(id));
      await pause(20);
    }
    const { code, stdout, stderr } = await migration.ended;
    requests.migrated = undefined;
    for (const line of stdout.trim().split('\n')) say(`  ${line}`);
    if (code !== 0) throw new Error(`The migration of the ${side} release ended with ${String(code)}:\n${stderr}`);
  }

  /** Computes the facts for analysts with the functions that are installed, on the tables of this version. */
  async function refreshAnalytics(side: Side): Promise<void> {
    const { code, stdout, stderr } = await program(side, 'src/cli/main.ts', ['analytics', 'refresh']).ended;
    if (code !== 0)
      throw new Error(`The analytics of the ${side} release ended with ${String(code)}:\n${stdout}\n${stderr}`);
  }

  /** Keeps a transaction open in a school, so that its migration has to wait. */
  async function openTransaction(school: School): Promise<void> {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(
      `begin; select count(*) from tenant_${String(school.id)}.student, tenant_${String(school.id)}.user_account`,
    );
    await pause(longTransactionMs);
    await client.query('commit');
    await client.end();
  }

  try {
    folders.old = await unpack(release, scratch);
    await migrate('old');
    let old = await run('old');
    operator = await openOperator(load);
    await startAnalytics(operator, old.target.url);
    for (const name of ['north', 'south', 'west']) schools.push(await openSchool(load, operator, name));
    // Emails to addresses that nobody has confirmed take turns, one in ten minutes.
    await withOwner(url, async (owner) => {
      for (const { id } of schools)
        await owner.query(`update tenant_${String(id)}.user_account set email_verified_at = now()`);
    });
    // On the database of the earlier release, and without clients: a dry run holds its locks until the end.
    await migrate('new', ['plan']);
    const endLoad = startLoad(load, schools, operator);
    try {
      await phase(`1 ${release.version} alone`, rest);
      await phase('2 migration', async () => {
        const [, , west] = schools;
        await Promise.all([west && openTransaction(west), migrate('new', ['up'])]);
        await requireReady('old', old.target.url);
      });
      let current: Running | undefined;
      await phase('3 both releases', async () => {
        current = await run('new');
        await rest();
        await requireReady('old', old.target.url);
      });
      await phase('4 this version alone', async () => {
        await stop('old', old);
        // As the next version will do.
        await withOwner(url, (owner) =>
          owner.query("update platform.installation set fingerprint = 'of another version'"),
        );
        await migrate('new', ['up']);
        await rest();
      });
      await phase('5 rollback', async () => {
        old = await run('old');
        if (current) await stop('new', current);
        await migrate('old');
        await refreshAnalytics('old');
        await rest();
        await requireReady('old', old.target.url);
      });
      await phase('6 forward again', async () => {
        await migrate('new', ['up']);
        current = await run('new');
        await stop('old', old);
        await refreshAnalytics('new');
        await rest();
      });
    } finally {
      requests.phase ||= 'start';
      await endLoad().catch((error: unknown) => {
        if (requests.failures.length === 0) throw error;
      });
    }
    requests.phase = '7 comparison';
    say(requests.phase);
    await checkSchools(load, schools);
    const violations = await withOwner(url, (owner) => findViolations(owner, schools, env.DATA_DIR));
    if (violations.length > 0) throw new Error(violations.slice(0, 20).join('\n'));
  } catch (error) {
    const lines = [...new Set([...requests.failures, error instanceof Error ? error.message : String(error)])];
    const errors = programs.flatMap((each) =>
      each
        .output()
        .split('\n')
        .filter((line) => line.includes('"level":"error"')),
    );
    throw new Error([...lines.slice(0, 20), ...errors.slice(0, 20)].join('\n'), { cause: error });
  } finally {
    printSummary(requests, print);
    for (const each of programs) if (!each.hasEnded) each.kill('SIGTERM');
    await Promise.all(programs.map(({ ended }) => ended));
    requests.close();
    await server.remove();
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Describes jobs that were not done, emails that were not sent once, and violated invariants. */
async function findViolations(owner: pg.Client, schools: readonly School[], dataDir: string): Promise<string[]> {
  const found: string[] = [];
  const end = performance.now() + queueTimeoutMs;
  for (;;) {
    const { rows } = await owner.query<{ task: string; attempts: number; last_error: string | null }>(
      `select task_identifier as task, attempts, left(last_error, 300) as last_error
       from graphile_worker.jobs
       where run_at < now() + interval '30 seconds' or last_error is not null`,
    );
    if (rows.length === 0) break;
    if (performance.now() > end || rows.some((job) => job.last_error !== null)) {
      found.push(...rows.slice(0, 5).map((job) => `A job was not done: ${JSON.stringify(job)}`));
      break;
    }
    await pause(200);
  }
  const outbox = join(dataDir, 'outbox');
  const sent = new Map<string, number>();
  for (const name of await readdir(outbox)) {
    const [, title] = /^Subject: (News-\d+)/m.exec(await readFile(join(outbox, name), 'utf8')) ?? [];
    if (title) sent.set(title, (sent.get(title) ?? 0) + 1);
  }
  for (const { id, subdomain, titles, receipts } of schools) {
    for (const title of titles)
      if (sent.get(title) !== 1)
        found.push(`The email ${title} of ${subdomain} was sent ${String(sent.get(title) ?? 0)} times.`);
    const { rows: payments } = await owner.query<{ receipt_number: string }>(
      `select receipt_number from tenant_${String(id)}.payment`,
    );
    if (payments.length !== receipts.size || payments.some((payment) => !receipts.has(payment.receipt_number)))
      found.push(
        `${subdomain} has ${String(payments.length)} payments, and ${String(receipts.size)} were acknowledged.`,
      );
    const { rows } = await owner.query<{ rule: string; violations: string }>(
      'select rule, violations from core.find_violations($1)',
      [id],
    );
    for (const { rule, violations } of rows) found.push(`${subdomain}: ${rule} Violations: ${violations}`);
  }
  return found;
}

/** Prints the number of answers by phase, release and status. */
function printSummary({ counts, slowest }: ReturnType<typeof balancer>, print: (line: string) => void): void {
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  print(`${String(total)} requests`);
  let last = '';
  for (const [key, count] of [...counts].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const [phase = '', side = '', status = ''] = key.split('\t');
    const { ms, request } = slowest.get(phase) ?? { ms: 0, request: '' };
    if (phase !== last) print(`${phase} (slowest: ${request}, ${(ms / 1000).toFixed(1)} s)`);
    last = phase;
    print(`  ${side}  ${String(count).padStart(6)}  ${status}`);
  }
}
