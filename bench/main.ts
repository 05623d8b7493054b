import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { join, resolve } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { tokens } from '../src/http/credentials/tokens.ts';
import { lockDataDir, startEmbedded } from '../src/database/embedded.ts';
import { withOwner } from '../src/database/pool/pool.ts';
import { cases } from './cases.ts';
import { startChild } from './child.ts';
import { benchDatabase } from './database.ts';
import { measureFairness } from './fairness.ts';
import { measureFanout } from './fanout.ts';
import { measureProvisioning, measureSchoolYear } from './figures.ts';
import { measure, type Comparison, type Rig } from './measure.ts';
import { markdown, type Figure, type Report } from './report.ts';
import { commit, count, listOf, note, runBenchmark } from './run.ts';
import { startApi } from './service.ts';
import { pick } from './statistics.ts';
import { usage } from './usage.ts';

const folder = resolve(import.meta.dirname, '../.bench');
const parts = [...cases.map((c) => c.name), 'fairness', 'figures'];
/** The cases without baselines are measured only when they are named. */
const usual = [...cases.filter((c) => c.hasBaselines).map((c) => c.name), 'fairness', 'figures'];

const part = (text: string) => {
  if (!parts.includes(text)) throw new InvalidArgumentError(`Allowed: ${parts.join(', ')}.`);
  return text;
};

const command = new Command('bench')
  .description('Measures the service and its baselines. docs/benchmarks.md explains the columns.')
  .option('--tenants <n>', 'number of schools; with --nodes 10 by default', count, 300)
  .option('--students <n>', 'students per school, at least 750', count, 1000)
  .option('--seconds <n>', 'length of one measurement', count, 4)
  .option('--rounds <n>', 'measurements of each kind; the median is reported', count, 3)
  .option('--connections <n>', 'concurrent requests, and database connections', count, 10)
  .option(
    '--only <parts>',
    `parts to run, separated by commas: ${parts.join(', ')}; default: ${usual.join(', ')}; with --nodes: get, list, create`,
    listOf(part),
  )
  .option('--nodes', 'requests through a forwarder to schools on one and two nodes, beside the direct way')
  .option('--metrics', 'turn on the Prometheus metrics of the service')
  .option('--profile', 'write a CPU profile of the API process to .bench/')
  .parse();
const options = command.opts<{
  tenants: number;
  students: number;
  seconds: number;
  rounds: number;
  connections: number;
  only?: string[];
  nodes?: boolean;
  metrics?: boolean;
  profile?: boolean;
}>();
const isWanted = (name: string) => (options.only ?? usual).includes(name);

type AtEnd = (stop: () => Promise<void>) => void;

/** `--nodes`: by default fewer schools, because they are created in each run, and fewer cases. */
async function runNodes(atEnd: AtEnd): Promise<string> {
  const { measureNodes } = await import('./nodes.ts');
  await mkdir(folder, { recursive: true });
  const tenants = command.getOptionValueSource('tenants') === 'default' ? 10 : options.tenants;
  const only = options.only ?? ['get', 'list', 'create'];
  const missing = only.filter((name) => cases.find((one) => one.name === name)?.needsManyInvoices !== undefined);
  if (missing.length > 0)
    throw new Error(`--nodes has no school with many invoices, so it cannot run ${missing.join()}.`);
  return measureNodes({ ...options, tenants, only }, folder, atEnd);
}

async function runAll(atEnd: AtEnd): Promise<string> {
  const { tenants: schools, students, seconds, rounds, connections } = options;
  if (students < 750) throw new Error('--students must be at least 750, so that a class has 25 students.');
  const loadBefore = loadavg()[0] ?? NaN;
  atEnd(await lockDataDir(folder, 'Stop it, or wait until it has finished.'));
  // Autovacuum would change the tables of other schools during the measurements.
  const starting = startEmbedded(folder, ['autovacuum=off']);
  atEnd(async () => (await starting).stop());
  const server = await starting;
  const database = await benchDatabase(server, schools, students, note);
  const [one] = database.schools;
  if (!one) throw new Error('The database has no schools.');
  const secret = randomBytes(32).toString('hex');
  let stopService = () => Promise.resolve();
  atEnd(() => stopService());
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
  const figures: Figure[] = [
    { label: 'memory of the API process, idle', measured: await memory(), unit: 'MB', below: 200 },
  ];
  const start = (module: string, args: string[] = []) => {
    const child = startChild(module, args);
    atEnd(() => child.stop());
    return child;
  };
  const load = start('load.ts');
  const rig: Rig = { database, students, service, load, tokens: tokens([secret]), connections };

  const report: Report = {
    postgres: await withOwner(database.url, async (owner) => {
      const { rows } = await owner.query<{ server_version: string }>('show server_version');
      return rows[0]?.server_version.split(' ')[0] ?? '';
    }),
    commit: commit(),
    schools,
    students,
    connections,
    seconds,
    rounds,
    loadBefore,
    cases: [],
    figures: [],
  };
  /** Called after each case, so that a stopped run keeps the results so far. */
  const writeReport = async () => {
    const text = markdown(report);
    await writeFile(join(folder, 'result.md'), text);
    return text;
  };
  const measured = cases.filter(({ name }) => isWanted(name));
  if (measured.length > 0) {
    const statements = start('statements.ts', [database.url, String(connections)]);
    // PostGraphile reads the catalog of the whole database: with 300 schools it takes a minute and 3 GB of memory.
    const { url: databaseUrl, schools: alone } = await benchDatabase(server, 1, students, note, 'postgraphile');
    const school = pick(alone);
    const postgraphile = start('postgraphile.ts', [databaseUrl, String(school.id), String(connections)]);
    const { url } = await postgraphile.ask<{ url: string }>({});
    const comparison: Comparison = {
      rig,
      statements,
      postgraphile: { url, pid: postgraphile.pid, databaseUrl, school },
      seconds,
      rounds,
    };
    for (const bench of measured) {
      note(`${bench.title} ...`);
      const result = await (bench.needsManyInvoices
        ? measure(comparison, bench, database.invoiceSchool, [])
        : measure(comparison, bench, one, database.schools));
      report.cases.push({ bench, result });
      await writeReport();
    }
    // Before the database is cloned: a clone fails while a connection is open.
    await statements.stop();
    await postgraphile.stop();
  }
  if (isWanted('fairness')) {
    note('one school sends ten times its share ...');
    report.fairness = await measureFairness(rig, seconds, rounds);
  }
  if (isWanted('figures')) {
    note('memory, provisioning, migration ...');
    if (measured.length > 0)
      figures.push({
        label: 'memory of the API process, after the load',
        measured: await memory(),
        unit: 'MB',
        below: 200,
      });
    const provisioning = await measureProvisioning(rig, 3 * rounds);
    figures.push(
      {
        label: 'create a school (POST /api/platform/tenants)',
        measured: provisioning.request,
        unit: 'ms',
        below: 500,
      },
      { label: 'create the tables of a school in advance', measured: provisioning.tablesInAdvance, unit: 'ms' },
    );
    const year = await measureSchoolYear(rig, rounds);
    figures.push(
      { label: 'import 5,000 students from CSV', measured: year.importing, unit: 'ms' },
      {
        label: 'bill 5,000 students, four components each',
        measured: year.billing,
        unit: 'ms',
        baseline: year.billingBaseline,
      },
      { label: 'bill them again (nothing to do)', measured: year.billingAgain, unit: 'ms' },
      { label: 'promote 500 students', measured: year.promoting, unit: 'ms' },
    );
    await stopService();
    const fanout = await measureFanout(server, database.name);
    figures.push({
      label: `migrate, one small migration in ${fanout.schools} schools`,
      measured: fanout.seconds,
      unit: 's',
      below: 20,
    });
    report.figures = figures;
  }
  return writeReport();
}

await runBenchmark(options.nodes ? runNodes : runAll);
