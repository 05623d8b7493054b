import { randomBytes } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { lockDataDir, scratchSettings, startEmbedded, type EmbeddedServer } from '../src/database/embedded.ts';
import { migrate } from '../src/database/migrate/migrate.ts';
import { withOwner } from '../src/database/pool/pool.ts';
import { tokens } from '../src/http/credentials/tokens.ts';
import { cases } from './cases.ts';
import { startChild } from './child.ts';
import { addSchools, createDatabase, openSessions, type School } from './database.ts';
import { measureFanout } from './fanout.ts';
import { measureProvisioning } from './figures.ts';
import { type Rig, sample, serviceRequests } from './measure.ts';
import { plot } from './plot.ts';
import { machine, table, verdict } from './report.ts';
import { commit, count, listOf, note, runBenchmark } from './run.ts';
import { startApi } from './service.ts';
import { type Measured, median, pick, skewedPick } from './statistics.ts';
import { type BackendMemory, backendMemory } from './usage.ts';

// `npm run bench:scale`: the same load on one database with more and more schools. The schools stay in .bench-scale, so
// that a run that was stopped continues where it was.

const folder = resolve(import.meta.dirname, '../.bench-scale');
const image = resolve(import.meta.dirname, '../docs/images/scale.svg');

const studentCount = (text: string) => {
  const students = count(text);
  if (students < 50) throw new InvalidArgumentError('Must be at least 50.');
  return students;
};

const options = new Command('bench:scale')
  .description('Measures the service with more and more schools on one database. Continues a run that was stopped.')
  .option('--only <n>', 'numbers of schools, separated by commas; default: 10,300,1000,2000', listOf(count))
  .option('--students <n>', 'students per school, at least 50', studentCount, 100)
  .option('--seconds <n>', 'length of one measurement', count, 20)
  .option('--connections <n>', 'concurrent requests, and database connections', count, 10)
  .option('--fresh', 'start over with an empty database')
  .parse()
  .opts<{ only?: number[]; students: number; seconds: number; connections: number; fresh?: boolean }>();
const resultsFile = join(folder, `results-${options.students}.json`);

/** The results for one number of schools. */
interface Result {
  schools: number;
  commit: string;
  date: string;
  get: Measured;
  list: Measured;
  /** Private memory of the backends of the API after the load, in MB. */
  backends: BackendMemory;
  catalog: { relations: number; rows: number; megabytes: number };
  startMs: number;
  provisioningMs: number;
  /** Creating the tables of a new school in advance. */
  tablesMs: number;
  /** Adding a column to every school. */
  fanoutSeconds: number;
  /** The duration of all measurements, without adding the schools. */
  minutes: number;
}

const readResults = async (): Promise<Result[]> =>
  JSON.parse(await readFile(resultsFile, 'utf8').catch(() => '[]')) as Result[];

/** Gives the planner statistics of the new schools, and tidies the catalogs as autovacuum would. */
async function analyze(url: string): Promise<void> {
  await withOwner(url, async (owner) => {
    const { rows } = await owner.query<{ tables: string }>(`
      select string_agg(oid::regclass::text, ', ') as tables
      from (
        select oid, row_number() over (order by oid) / 500 as batch
        from pg_class
        where relkind = 'r' and reltuples < 0 and relnamespace <> 'pg_catalog'::regnamespace
      ) t
      group by batch`);
    for (const { tables } of rows) await owner.query(`analyze ${tables}`);
    const catalogs = await owner.query<{ tables: string }>(`
      select string_agg(oid::regclass::text, ', ') as tables
      from pg_class
      where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r'`);
    await owner.query(`vacuum analyze ${catalogs.rows[0]?.tables ?? ''}`);
  });
}

async function measureCatalog(url: string): Promise<Result['catalog']> {
  const { rows } = await withOwner(url, (owner) =>
    owner.query<Result['catalog']>(`
      select
        (select count(*)::integer from pg_class) as relations,
        sum(greatest(reltuples, 0))::float as rows,
        (sum(pg_total_relation_size(oid)) / 1024 / 1024)::float as megabytes
      from pg_class
      where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r'`),
  );
  return rows[0] ?? { relations: NaN, rows: NaN, megabytes: NaN };
}

type AtEnd = (stop: () => Promise<void>) => void;

/** Measures the database as it is. Stops the API at the end, because the database is cloned for the last measurement. */
async function measureSize(server: EmbeddedServer, name: string, schools: number, atEnd: AtEnd): Promise<Result> {
  const { connections, seconds } = options;
  const since = performance.now();
  const secret = randomBytes(32).toString('hex');
  const database = await openSessions(server, name);
  let stopService = () => Promise.resolve();
  atEnd(() => stopService());
  const starts: number[] = [];
  const start = async () => {
    await stopService();
    const service = await startApi(database.url, secret, connections, folder, (stop) => (stopService = stop));
    starts.push(service.startMs);
    return service;
  };
  await start();
  await start();
  const service = await start();
  const load = startChild('load.ts');
  atEnd(() => load.stop());
  const rig: Rig = { database, students: options.students, service, load, tokens: tokens([secret]), connections };

  const skewed = skewedPick(database.schools);
  const run = async (
    name: 'get' | 'list',
    pickSchool: () => School,
    length: { amount: number } | { seconds: number },
  ) => {
    const bench = cases.find((one) => one.name === name);
    if (!bench) throw new Error(`There is no case ${name}.`);
    const requests = serviceRequests(rig, sample(rig, bench, Math.max(2000, 5 * schools), pickSchool));
    return load.ask<Measured>({ url: service.url, requests, connections, ...length });
  };
  note(`${schools} schools: warming up ...`);
  for (const name of ['get', 'list'] as const)
    await run(name, () => pick(database.schools), { amount: schools * connections });
  note(`${schools} schools: get and list ...`);
  const get = await run('get', skewed, { seconds });
  const list = await run('list', skewed, { seconds });
  const backends = await backendMemory(database.url, 'school_api');
  note(`${schools} schools: provisioning ...`);
  const provisioning = await measureProvisioning(rig, 5);
  const catalog = await measureCatalog(database.url);
  await stopService();
  await load.stop();
  note(`${schools} schools: a column in every school ...`);
  const fanout = await measureFanout(server, name);
  return {
    schools,
    commit: commit(),
    date: new Date().toISOString(),
    get,
    list,
    backends,
    catalog,
    startMs: median(starts),
    provisioningMs: provisioning.request,
    tablesMs: provisioning.tablesInAdvance,
    fanoutSeconds: fanout.seconds,
    minutes: (performance.now() - since) / 60_000,
  };
}

/** The aims at every size, between the smallest and the largest, and for 1,000 schools. */
function aims(results: Result[]): string {
  const [first] = results;
  const last = results.at(-1);
  if (!first || !last) return '';
  const thousand = results.find(({ schools }) => schools === 1000);
  const max = (of: (result: Result) => number) => Math.max(...results.map(of));
  const growth = (name: 'get' | 'list') => last[name].p50 / first[name].p50;
  return table([
    ['aim', 'measured', 'at most', ''],
    ...(
      [
        [`p50 of get, ${last.schools} to ${first.schools} schools`, growth('get'), 1.3, '×'],
        [`p50 of list, ${last.schools} to ${first.schools} schools`, growth('list'), 1.3, '×'],
        ['memory of all backends', max(({ backends }) => backends.sumMb), 2500, 'MB'],
        ['memory of a backend', max(({ backends }) => backends.maxMb), 300, 'MB'],
        ['start of the API', max(({ startMs }) => startMs), 2000, 'ms'],
        ['a new school', max(({ provisioningMs }) => provisioningMs), 500, 'ms'],
        ...(thousand ? ([['a column in 1,000 schools', thousand.fanoutSeconds, 60, 's']] as const) : []),
      ] as const
    ).map(([label, measured, limit, unit]) => [
      label,
      `${Number(measured.toPrecision(3))} ${unit}`,
      `${limit} ${unit}`,
      verdict(measured <= limit),
    ]),
  ]);
}

function markdown(results: Result[]): string {
  const whole = (value: number) => Math.round(value).toLocaleString('en');
  return `${machine(commit())}, shared by API, database and load generator. Schools of ${options.students} students, ${options.connections} connections; one school in a hundred makes half of the load.

${table([
  [
    'schools',
    'get, p50 ms',
    'p99 ms',
    'list, p50 ms',
    'p99 ms',
    'all backends, MB',
    'largest, MB',
    'relations',
    'rows of the catalogs',
    'catalogs, MB',
    'start of the API, ms',
    'a new school, ms',
    'its tables in advance, ms',
    'a column in every school, s',
    'commit',
  ],
  ...results.map(({ schools, get, list, backends, catalog, ...rest }) => [
    whole(schools),
    get.p50.toFixed(1),
    get.p99.toFixed(1),
    list.p50.toFixed(1),
    list.p99.toFixed(1),
    whole(backends.sumMb),
    whole(backends.maxMb),
    whole(catalog.relations),
    whole(catalog.rows),
    whole(catalog.megabytes),
    whole(rest.startMs),
    whole(rest.provisioningMs),
    whole(rest.tablesMs),
    rest.fanoutSeconds.toFixed(1),
    rest.commit,
  ]),
])}

${aims(results)}
`;
}

const draw = (results: Result[]) => {
  const line = (name: string, value: (result: Result) => number) => ({
    name,
    points: results.map((result): [number, number] => [result.schools, Number(value(result).toPrecision(3))]),
  });
  const charts = [
    {
      title: 'Latency at random schools, ms',
      lines: [
        line('get p50', ({ get }) => get.p50),
        line('get p99', ({ get }) => get.p99),
        line('list p50', ({ list }) => list.p50),
        line('list p99', ({ list }) => list.p99),
      ],
    },
    {
      title: 'Memory of the database connections, MB',
      lines: [line('all', ({ backends }) => backends.sumMb), line('largest', ({ backends }) => backends.maxMb)],
    },
  ];
  return plot(charts, { name: 'schools', type: 'log', min: 10 });
};

await runBenchmark(async (atEnd) => {
  const sizes = (options.only ?? [10, 300, 1000, 2000]).toSorted((a, b) => a - b);
  await mkdir(folder, { recursive: true });
  atEnd(await lockDataDir(folder, 'Stop it, or wait until it has finished.'));
  const starting = startEmbedded(folder, scratchSettings);
  atEnd(async () => (await starting).stop());
  const server = await starting;
  const name = `scale_${options.students}`;
  const url = server.url(name);
  const exists = await withOwner(server.url('postgres'), async (owner) => {
    if (options.fresh) await owner.query(`drop database if exists ${name}`);
    return (await owner.query('select from pg_database where datname = $1', [name])).rowCount === 1;
  });
  if (exists) await migrate({ ownerUrl: url });
  else {
    await createDatabase(server, name);
    await writeFile(resultsFile, '[]');
  }
  for (const size of sizes) {
    const { schools: present } = await openSessions(server, name);
    if (present.length > size) {
      note(`${size} schools: not measured, because the database has ${present.length} already (--fresh starts over)`);
      continue;
    }
    note(`${size} schools: adding ${size - present.length} ...`);
    await addSchools(url, size, options.students, note);
    await analyze(url);
    const result = await measureSize(server, name, size, atEnd);
    const others = (await readResults()).filter(({ schools }) => schools !== size);
    await writeFile(
      resultsFile,
      JSON.stringify(
        [...others, result].toSorted((a, b) => a.schools - b.schools),
        null,
        2,
      ),
    );
    note(`${size} schools: done, ${result.minutes.toFixed(1)} min`);
  }
  const results = await readResults();
  if (results.length > 1) await writeFile(image, draw(results));
  const text = markdown(results);
  await writeFile(join(folder, 'result.md'), text);
  return text;
});
