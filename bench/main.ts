import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { Command, InvalidArgumentError, Option } from 'commander';
import { tokens } from '../src/http/tokens.ts';
import { lockDataDir, startEmbedded } from '../src/database/embedded.ts';
import { withOwner } from '../src/database/pool.ts';
import { cases } from './cases.ts';
import { startChild } from './child.ts';
import { benchDatabase } from './database.ts';
import { measureFanout } from './fanout.ts';
import { measure, measureProvisioning, measureSchoolYear, type Rig } from './measure.ts';
import { markdown, type Report } from './report.ts';
import { startApi } from './service.ts';
import { usage } from './usage.ts';

const folder = resolve(import.meta.dirname, '../.bench');
/** Progress goes to stderr, so that stdout is the report. */
const note = (line: string) =>
  process.stderr.write(`${String(Math.round(performance.now() / 1000)).padStart(4)} s  ${line}\n`);

function count(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('Must be a number of at least 1.');
  return value;
}

const options = new Command('bench')
  .description('Measures the service and its baselines on this machine. docs/benchmarks.md explains the columns.')
  .option('--tenants <n>', 'number of schools', count, 300)
  .option('--students <n>', 'students per school', count, 1000)
  .option('--seconds <n>', 'length of one measurement', count, 4)
  .option('--rounds <n>', 'measurements of each kind; the median is reported', count, 3)
  .option('--connections <n>', 'concurrent requests, and database connections', count, 10)
  .addOption(
    new Option('--only <case...>', 'only these cases; `figures` are memory, provisioning and migration').choices([
      ...cases.map((c) => c.name),
      'figures',
    ]),
  )
  .option('--metrics', 'let the service count its requests for Prometheus')
  .option('--profile', 'write a CPU profile of the API process to .bench/')
  .parse()
  .opts<{
    tenants: number;
    students: number;
    seconds: number;
    rounds: number;
    connections: number;
    only?: string[];
    metrics?: boolean;
    profile?: boolean;
  }>();

/** Run at the end, in reverse order. */
const cleanups: (() => Promise<void>)[] = [];

async function stop(): Promise<void> {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
}

async function run(): Promise<string> {
  const { tenants: schools, students, seconds, rounds, connections, only } = options;
  if (students < 750) throw new Error('--students must be at least 750, so that a class has 25 students.');
  cleanups.push(await lockDataDir(folder));
  const starting = startEmbedded(folder);
  cleanups.push(async () => (await starting).stop());
  const server = await starting;
  const database = await benchDatabase(server, schools, students, note);
  const secret = randomBytes(32).toString('hex');
  let stopService = () => Promise.resolve();
  cleanups.push(() => stopService());
  const service = await startApi(
    database.url,
    secret,
    connections,
    folder,
    (end) => (stopService = end),
    options.profile ? ['--cpu-prof', `--cpu-prof-dir=${folder}`] : [],
    options.metrics,
  );
  const memory = async () => (await usage(service.pid)).memoryMb;
  const idle = await memory();
  const baseline = startChild('baseline.ts', [database.url, String(connections)]);
  cleanups.push(() => baseline.stop());
  const load = startChild('load.ts');
  cleanups.push(() => load.stop());
  const rig: Rig = {
    database,
    students,
    service,
    baseline,
    load,
    tokens: tokens([secret]),
    connections,
    seconds,
    rounds,
  };

  const postgres = await withOwner(
    database.url,
    async (owner) => (await owner.query<{ server_version: string }>('show server_version')).rows[0]?.server_version,
  );
  const report: Report = {
    postgres: postgres?.split(' ')[0] ?? '',
    schools,
    students,
    connections,
    seconds,
    rounds,
    cases: [],
    figures: [],
  };
  for (const bench of cases.filter(({ name }) => only?.includes(name) ?? true)) {
    note(`${bench.title}: one school ...`);
    const one = await measure(
      rig,
      bench,
      bench.needsManyInvoices ? [database.invoiceSchool] : database.schools.slice(0, 1),
    );
    if (!bench.needsManyInvoices) note(`${bench.title}: random schools ...`);
    report.cases.push({
      bench,
      one,
      random: bench.needsManyInvoices ? undefined : await measure(rig, bench, database.schools),
    });
  }
  if (only?.includes('figures') ?? true) {
    note('memory, provisioning, migration ...');
    report.figures.push(
      { what: 'memory of the API process, idle', measured: idle, unit: 'MB', below: 200 },
      ...(report.cases.length > 0
        ? [{ what: 'memory of the API process, after the load', measured: await memory(), unit: 'MB', below: 200 }]
        : []),
      {
        what: 'create a school (POST /api/platform/tenants)',
        measured: await measureProvisioning(rig),
        unit: 'ms',
        below: 500,
      },
    );
    const year = await measureSchoolYear(rig);
    report.figures.push(
      { what: 'import 5,000 students from CSV', measured: year.importing, unit: 'ms' },
      {
        what: 'bill 5,000 students, four components each',
        measured: year.billing,
        unit: 'ms',
        baseline: year.billingBaseline,
      },
      { what: 'bill them again (nothing to do)', measured: year.billingAgain, unit: 'ms' },
      { what: 'promote 500 students', measured: year.promoting, unit: 'ms' },
    );
    // A database can only be cloned while nobody is connected to it.
    await baseline.stop();
    await stopService();
    const fanout = await measureFanout(server, database.name);
    report.figures.push({
      what: `migrate, one small migration in ${fanout.schools} schools`,
      measured: fanout.seconds,
      unit: 's',
      below: 20,
    });
  }
  return markdown(report);
}

const stopping = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    // Under npm, Ctrl-C is received twice.
    if (stopping.signal.aborted) return;
    stopping.abort();
    stop().then(
      () => process.exit(130),
      () => process.exit(1),
    );
  });
}

try {
  const text = await run();
  await stop();
  await writeFile(join(folder, 'result.md'), text);
  process.stdout.write(text);
} catch (error) {
  // Errors after a stop was requested are a consequence of it.
  if (!stopping.signal.aborted) {
    note(error instanceof Error ? error.message : String(error));
    await stop().catch(() => undefined);
    process.exitCode = 1;
  }
}
