import { randomBytes } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join, resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { Command } from 'commander';
import { lockDataDir, scratchSettings, startEmbedded } from '../src/database/embedded.ts';
import { migrate } from '../src/database/migrate/migrate.ts';
import { withOwner } from '../src/database/pool/pool.ts';
import { tokens } from '../src/http/credentials/tokens.ts';
import { type BenchCase, cases } from './cases.ts';
import { addSchools, createDatabase, openSessions, type School } from './database.ts';
import { plot } from './plot.ts';
import { machine, table, verdict } from './report.ts';
import { commit, count, note, runBenchmark } from './run.ts';
import { startApi, startWorker } from './service.ts';
import { median, pick, quantile, skewedPick } from './statistics.ts';
import { sendSteadily, timedRequest } from './steady.ts';
import { type BackendMemory, backendMemory, usage } from './usage.ts';

// `npm run bench:soak`: a mixed load at a steady rate for a long time, to see what grows. Uses the schools of
// `npm run bench:scale`, in .bench-scale.

const folder = resolve(import.meta.dirname, '../.bench-scale');
const image = resolve(import.meta.dirname, '../docs/images/soak.svg');

const options = new Command('bench:soak')
  .description('Sends a mixed load for a long time, and measures memory and latency meanwhile.')
  .option('--minutes <n>', 'duration', count, 30)
  .option('--schools <n>', 'number of schools', count, 50)
  .option('--students <n>', 'students per school, at least 50', count, 100)
  .option('--rate <n>', 'requests per second', count, 40)
  .option('--connections <n>', 'database connections', count, 10)
  .option('--streams <n>', 'open notification streams', count, 100)
  .parse()
  .opts<{
    minutes: number;
    schools: number;
    students: number;
    rate: number;
    connections: number;
    streams: number;
  }>();

/** How often memory and latency are sampled. */
const sampleSeconds = 15;

/** The cases of the load, with their weights. `mark` and `payment` write, and notifications create jobs. */
const mix: Record<string, number> = {
  get: 30,
  list: 25,
  search: 5,
  classes: 6,
  dashboard: 10,
  today: 5,
  create: 2,
  mark: 4,
  payment: 4,
  transport: 3,
};
const lots = cases.flatMap((one) => Array<BenchCase>(mix[one.name] ?? 0).fill(one));

const analystQuery =
  '{ tenants(first: 50) { nodes { name attendanceDays { groupedAggregates(groupBy: [DATE_TRUNCATED_TO_MONTH]) { keys sum { present } } } } } }';

interface Sample {
  minute: number;
  apiMb: number;
  workerMb: number;
  backends: BackendMemory;
  workerBackends: BackendMemory;
  p50: number;
  p99: number;
  requests: number;
}

/** Opens a notification stream that reads and drops its events. @returns a function that closes it */
function openStream(url: string, token: string): Promise<() => void> {
  return new Promise((done, fail) => {
    const headers = { authorization: `Bearer ${token}` };
    const sent = request(`${url}/api/notifications/stream`, { agent: false, headers }, (response) => {
      if (response.statusCode !== 200) fail(new Error(`A stream was refused: ${String(response.statusCode)}`));
      response.resume();
      response.on('error', () => undefined);
      done(() => response.destroy());
    });
    sent.on('error', fail);
    sent.end();
  });
}

/** Compares the last quarter of the samples with the second one; the first quarter warms up. */
function trend(samples: Sample[], value: (one: Sample) => number): [before: number, after: number] {
  const quarter = Math.max(1, Math.floor(samples.length / 4));
  return [median(samples.slice(quarter, 2 * quarter).map(value)), median(samples.slice(-quarter).map(value))];
}

function report(samples: Sample[], failures: Map<string, number>): string {
  const row = (label: string, value: (one: Sample) => number, unit: string, limit: number) => {
    const [before, after] = trend(samples, value);
    // A few megabytes or milliseconds more or less are not growth.
    const isFlat = after <= before * limit + (unit === 'MB' ? 10 : 2);
    const max = Math.max(...samples.map(value));
    return [label, ...[before, after, max].map((one) => `${one.toFixed(1)} ${unit}`), verdict(isFlat)];
  };
  const maximum = (value: (one: Sample) => number) => Math.max(...samples.map(value)).toFixed(0);
  const failed = [...failures].map(([label, times]) => `${times} × ${label}`);
  return `${machine(commit())}, shared by API, worker, database and load generator. ${options.schools} schools of ${options.students} students, ${options.rate} requests per second for ${options.minutes} minutes, ${options.streams} open streams, ${options.connections} database connections.

${table([
  ['', 'second quarter', 'last quarter', 'maximum', 'flat'],
  row('memory of the API', ({ apiMb }) => apiMb, 'MB', 1.1),
  row('memory of the worker', ({ workerMb }) => workerMb, 'MB', 1.1),
  row('memory of all backends of the API', ({ backends }) => backends.sumMb, 'MB', 1.1),
  row('memory of all backends of the worker', ({ workerBackends }) => workerBackends.sumMb, 'MB', 1.1),
  row('p50', ({ p50 }) => p50, 'ms', 1.25),
  row('p99', ({ p99 }) => p99, 'ms', 1.5),
])}

At most ${maximum(({ backends }) => backends.sumMb)} MB in all backends of the API, and ${maximum(({ backends }) => backends.maxMb)} MB in one. ${samples.reduce((sum, { requests }) => sum + requests, 0).toLocaleString('en')} requests, ${failed.length === 0 ? 'none of them failed' : `failed: ${failed.join(', ')}`}.
`;
}

const draw = (samples: Sample[]) => {
  const line = (name: string, value: (one: Sample) => number) => ({
    name,
    points: samples.map((one): [number, number] => [Number(one.minute.toFixed(2)), Number(value(one).toPrecision(3))]),
  });
  const charts = [
    {
      title: 'Memory, MB',
      lines: [
        line('backends of the API', ({ backends }) => backends.sumMb),
        line('largest backend', ({ backends }) => backends.maxMb),
        line('API', ({ apiMb }) => apiMb),
        line('worker', ({ workerMb }) => workerMb),
      ],
    },
    { title: 'Latency, ms', lines: [line('p50', ({ p50 }) => p50), line('p99', ({ p99 }) => p99)] },
  ];
  return plot(charts, { name: 'minutes', type: 'value', min: 0 });
};

await runBenchmark(async (atEnd) => {
  const { connections, schools: wanted, students, rate, minutes, streams } = options;
  await mkdir(folder, { recursive: true });
  atEnd(await lockDataDir(folder, 'Stop it, or wait until it has finished.'));
  const starting = startEmbedded(folder, scratchSettings);
  atEnd(async () => (await starting).stop());
  const server = await starting;
  const name = `scale_${students}`;
  const url = server.url(name);
  const exists = await withOwner(
    server.url('postgres'),
    async (owner) => (await owner.query('select from pg_database where datname = $1', [name])).rowCount === 1,
  );
  note(`${wanted} schools: preparing ...`);
  if (exists) await migrate({ ownerUrl: url });
  else await createDatabase(server, name);
  await addSchools(url, wanted, students, note);
  const database = await openSessions(server, name);
  const schools = database.schools.slice(0, wanted);
  const secret = randomBytes(32).toString('hex');
  const signer = tokens([secret]);
  // Signed for each request, because a token expires after 15 minutes.
  const tokenFor = ({ id, sessionId }: School) => signer.sign({ session_id: sessionId, user_id: 1, tenant_id: id });
  const analystToken = () => signer.sign({ session_id: database.operator.sessionId, user_id: 1, tenant_id: null });
  const service = await startApi(url, secret, connections, folder, atEnd, [], true, {
    DATA_DIR: join(folder, 'worker'),
  });
  // The worker writes its emails there.
  atEnd(() => rm(join(folder, 'worker'), { recursive: true, force: true }));
  const workerPid = await startWorker(url, secret, folder, atEnd);

  note(`opening ${streams} streams ...`);
  const closers = await Promise.all(
    Array.from({ length: streams }, () => openStream(service.url, tokenFor(pick(schools)))),
  );
  const failures = new Map<string, number>();
  const fail = (label: string) => failures.set(label, (failures.get(label) ?? 0) + 1);
  const upTo = (limit: number) => 1 + Math.floor(Math.random() * limit);
  const pickSchool = skewedPick(schools);

  async function sendOne(): Promise<number> {
    const school = pickSchool();
    const bench = pick(lots);
    const subject = { tenantId: school.id, student: upTo(students), classId: upTo(24), user: upTo(20), students };
    const { path, body } = bench.request(subject);
    try {
      return (await timedRequest(service.url, path, tokenFor(school), body)).milliseconds;
    } catch (error) {
      fail(`${bench.name}: ${error instanceof Error ? error.message.slice(0, 120) : String(error)}`);
      return NaN;
    }
  }
  const stop = new AbortController();
  /** Repeats background work until the end. */
  const repeat = async (everyMs: number, label: string, work: () => Promise<unknown>) => {
    while (!stop.signal.aborted) {
      await work().catch((error: unknown) =>
        fail(`${label}: ${error instanceof Error ? error.message.slice(0, 120) : ''}`),
      );
      await pause(everyMs, undefined, { signal: stop.signal }).catch(() => undefined);
    }
  };
  const background = [
    repeat(2000, 'notification', () =>
      timedRequest(service.url, '/api/notifications/send', tokenFor(pickSchool()), {
        user_ids: [upTo(20)],
        title: 'Soak',
        message: 'A notification in the app and by email.',
        channels: ['in_app', 'email'],
      }),
    ),
    repeat(3000, 'analyst', () => timedRequest(service.url, '/graphql', analystToken(), { query: analystQuery })),
  ];

  const samples: Sample[] = [];
  const start = performance.now();
  while (performance.now() - start < minutes * 60_000) {
    const latencies = (await sendSteadily(rate, sampleSeconds, sendOne)).filter((one) => !Number.isNaN(one));
    const [api, worker, backends, workerBackends] = await Promise.all([
      usage(service.pid),
      usage(workerPid),
      backendMemory(url, 'school_api'),
      backendMemory(url, 'school_worker'),
    ]);
    samples.push({
      minute: (performance.now() - start) / 60_000,
      apiMb: api.memoryMb,
      workerMb: worker.memoryMb,
      backends,
      workerBackends,
      p50: median(latencies),
      p99: quantile(latencies, 0.99),
      requests: latencies.length,
    });
    const latest = samples.at(-1);
    if (samples.length % 4 === 0 && latest)
      note(
        `${latest.minute.toFixed(0)} min: p50 ${latest.p50.toFixed(1)} ms, p99 ${latest.p99.toFixed(0)} ms, API ${latest.apiMb.toFixed(0)} MB, backends ${backends.sumMb.toFixed(0)} MB, ${failures.size} kinds of failures`,
      );
  }
  stop.abort();
  await Promise.all(background);
  for (const close of closers) close();
  await writeFile(join(folder, 'soak.json'), JSON.stringify({ options, samples, failures: [...failures] }, null, 2));
  await writeFile(image, draw(samples));
  return report(samples, failures);
});
