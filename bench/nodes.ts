import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { addNode } from '../src/servers/nodes/join.ts';
import { withOptions, withOwner } from '../src/database/pool/pool.ts';
import { createForwarder } from '../src/servers/forwarder.ts';
import { switchToRole } from '../src/domain/role-settings.ts';
import { tokens } from '../src/http/credentials/tokens.ts';
import { createServer, isInstalled, removeServer, serverUrl, type TestServer } from '../test/nodes/servers.ts';
import { type BenchCase, cases } from './cases.ts';
import { type Child, startChild } from './child.ts';
import { addSchools, createDatabase, openSessions, type School } from './database.ts';
import type { Load } from './load.ts';
import { type Rig, sample, serviceRequests, undo } from './measure.ts';
import { machine, percent, precise, table, whole, withAim } from './report.ts';
import { commit, note } from './run.ts';
import { startApi } from './service.ts';
import { type Measured, median, pick } from './statistics.ts';
import { type CpuSeconds, cpuSecondsBetween, serverCpuSeconds } from './usage.ts';

/** The part of the direct rate that requests through the forwarder should reach. */
const routedAim = 0.8;

export interface NodesOptions {
  /** Schools on each node. */
  tenants: number;
  students: number;
  seconds: number;
  rounds: number;
  connections: number;
  /** Names of cases. */
  only: readonly string[];
}

/** A node with its schools. */
interface BenchNode {
  url: string;
  schools: School[];
}

/** A way to the schools: an API process, the schools that it is asked for, and the databases that work for it. */
interface Way {
  url: string;
  pid: number | undefined;
  schools: School[];
  /** Where its requests run, with the name of the connections there. */
  databases: { url: string; application: string }[];
}

/** The measurements of a case by way, in the order of the rounds. */
type Results = Record<WayName, { measured: Measured[]; cpuMicroseconds: number[] }>;
type WayName = 'direct' | 'routed' | 'both';

/** Enters schools of a node into the directory of the home, as if the home had reserved their ids. */
const enterSchools = (homeUrl: string, name: string, schools: { id: string; subdomain: string }[]) =>
  withOwner(homeUrl, (home) =>
    home.query(
      `insert into platform.tenant (id, name, subdomain, contact_email, plan_id, node_id)
       select s.id, s.subdomain, s.subdomain, 'admin@' || s.subdomain || '.example', p.id, n.id
       from json_populate_recordset(null::platform.tenant, $1) s, platform.plan p, platform.node n
       where p.name = 'Premium' and n.name = $2`,
      [JSON.stringify(schools), name],
    ),
  );

/** Creates a home, two nodes with schools, and a forwarder beside the home. */
async function createServers(
  { tenants, students }: NodesOptions,
  atEnd: (stop: () => Promise<void>) => void,
): Promise<{ home: string; forwarder: string; nodes: BenchNode[]; operator: number }> {
  const start = async () => {
    const server = await createServer();
    atEnd(() => removeServer(server));
    return server;
  };
  const homeServer = await start();
  const createEmpty = async (server: TestServer, name: string) => {
    await withOwner(serverUrl(server, 'postgres'), (owner) => owner.query(`create database ${name}`));
    return serverUrl(server, name);
  };
  const home = serverUrl(homeServer, 'school');
  await createDatabase({ url: (name) => serverUrl(homeServer, name) }, 'school');
  const forwarder = await createEmpty(homeServer, 'forwarder');
  const nodes: BenchNode[] = [];
  for (const number of [1, 2]) {
    const server = await start();
    const name = `node-${String(number)}`;
    const url = await createEmpty(server, 'school');
    await withOwner(home, (client) => addNode(client, { name, url, homeUrl: home, onStep: () => undefined }));
    note(`${String(tenants)} schools with ${String(students)} students on ${name} ...`);
    await addSchools(url, number * tenants, students, note, (number - 1) * tenants + 1);
    const { rows } = await withOwner(url, async (owner) => {
      await owner.query('vacuum analyze');
      return owner.query<{ id: string; subdomain: string }>('select id, subdomain from platform.tenant');
    });
    await enterSchools(home, name, rows);
    const { schools } = await openSessions({ url: () => url }, 'school');
    nodes.push({ url, schools });
  }
  await withOwner(home, (client) => createForwarder(client, { name: 'bench', url: forwarder, homeUrl: home }));
  const { operator } = await openSessions({ url: () => home }, 'school');
  return { home, forwarder, nodes, operator: operator.sessionId };
}

/** One API process on the first node, and one on the forwarder. */
async function startWays(
  { home, forwarder, nodes }: Awaited<ReturnType<typeof createServers>>,
  connections: number,
  folder: string,
  secret: string,
  atEnd: (stop: () => Promise<void>) => void,
): Promise<Record<WayName, Way>> {
  const [first, second] = nodes as [BenchNode, BenchNode];
  const start = async (name: string, url: string, settings: Record<string, string>) => {
    await mkdir(join(folder, name), { recursive: true });
    return startApi(url, secret, connections, join(folder, name), atEnd, [], false, settings);
  };
  const onNode = await start('direct', first.url, {});
  const onForwarder = await start('routed', home, {
    API_DATABASE_URL: withOptions(forwarder, switchToRole('school_api')),
    LISTEN_DATABASE_URL: [home, first.url, second.url].join(' '),
  });
  const ofForwarder = { url: forwarder, application: 'school_api' };
  const ofNode = ({ url }: BenchNode) => ({ url, application: 'school_forwarder' });
  return {
    direct: {
      url: onNode.url,
      pid: onNode.pid,
      schools: first.schools,
      databases: [{ url: first.url, application: 'school_api' }],
    },
    routed: {
      url: onForwarder.url,
      pid: onForwarder.pid,
      schools: first.schools,
      databases: [ofForwarder, ofNode(first)],
    },
    both: {
      url: onForwarder.url,
      pid: onForwarder.pid,
      schools: nodes.flatMap(({ schools }) => schools),
      databases: [ofForwarder, ...nodes.map(ofNode)],
    },
  };
}

/** The processor time so far of what serves a way, in seconds. */
async function cpuSeconds({ pid, databases }: Way): Promise<CpuSeconds> {
  // The process is counted once.
  const all = await Promise.all(
    databases.map(({ url, application }, index) => serverCpuSeconds(index === 0 ? pid : undefined, url, application)),
  );
  return new Map(all.flatMap((one) => [...one]));
}

/** Measures one case on all ways in turn, because the machine may be shared. */
async function measureCase(
  bench: BenchCase,
  ways: Record<WayName, Way>,
  load: Child,
  rig: Pick<Rig, 'students' | 'tokens'>,
  { rounds, seconds, connections }: NodesOptions,
  nodes: BenchNode[],
): Promise<Results> {
  const names = ['direct', 'routed', 'both'] as const;
  const results: Results = {
    direct: { measured: [], cpuMicroseconds: [] },
    routed: { measured: [], cpuMicroseconds: [] },
    both: { measured: [], cpuMicroseconds: [] },
  };
  const run = async (name: WayName, length: { seconds: number } | { amount: number }) => {
    const way = ways[name];
    const requests = serviceRequests(
      rig,
      sample(rig, bench, 2000, () => pick(way.schools)),
    );
    const before = await cpuSeconds(way);
    const measured = await load.ask<Measured>({ url: way.url, requests, connections, ...length } satisfies Load);
    const cpu = (cpuSecondsBetween(before, await cpuSeconds(way)) / measured.answers) * 1e6;
    for (const { url, schools } of nodes) await undo(url, bench, schools, rig.students);
    return { measured, cpu };
  };
  for (const name of names) await run(name, { amount: (30 + ways[name].schools.length) * connections });
  for (let round = 0; round < rounds; round++)
    for (const name of names) {
      const { measured, cpu } = await run(name, { seconds });
      results[name].measured.push(measured);
      if (!Number.isNaN(cpu)) results[name].cpuMicroseconds.push(cpu);
    }
  return results;
}

/** The median over the rounds. */
const figure = ({ measured }: Results[WayName], field: keyof Measured) => median(measured.map((one) => one[field]));

function rows(bench: BenchCase, { direct, routed, both }: Results): string[] {
  const rate = (of: Results[WayName]) => figure(of, 'perSecond');
  return [
    bench.title,
    whole(rate(direct)),
    whole(rate(routed)),
    withAim(rate(routed) / rate(direct), routedAim, percent),
    ...[direct, routed].flatMap((of) => [precise(figure(of, 'p50')), precise(figure(of, 'p99'))]),
    whole(median(direct.cpuMicroseconds)),
    whole(median(routed.cpuMicroseconds)),
    percent(median(direct.cpuMicroseconds) / median(routed.cpuMicroseconds)),
    whole(rate(both)),
    percent(rate(both) / rate(routed)),
  ];
}

const head = [
  'schools of one node',
  'direct, req/s',
  'forwarder, req/s',
  'forwarder / direct',
  'direct, p50 ms',
  'p99 ms',
  'forwarder, p50 ms',
  'p99 ms',
  'CPU direct, µs',
  'CPU forwarder, µs',
  'direct / forwarder',
  'two nodes, req/s',
  'two nodes / one',
];

/**
 * `npm run bench -- --nodes`: requests to schools on a node, through the forwarder and directly, and requests to schools
 * on two nodes. Needs the same Postgres as `npm run test:nodes`.
 * @returns the report
 */
export async function measureNodes(
  options: NodesOptions,
  folder: string,
  atEnd: (stop: () => Promise<void>) => void,
): Promise<string> {
  if (!(await isInstalled())) throw new Error('Debian: apt-get install postgresql-15 postgresql-15-plproxy');
  const loadBefore = loadavg()[0] ?? NaN;
  const servers = await createServers(options, atEnd);
  const secret = randomBytes(32).toString('hex');
  const ways = await startWays(servers, options.connections, folder, secret, atEnd);
  const load = startChild('load.ts');
  atEnd(() => load.stop());
  const rig = { students: options.students, tokens: tokens([secret]) };
  const lines = [head];
  for (const bench of cases.filter(({ name }) => options.only.includes(name))) {
    note(`${bench.title} ...`);
    lines.push(rows(bench, await measureCase(bench, ways, load, rig, options, servers.nodes)));
  }
  const text = `${machine(commit())}, Postgres 15, load average before it ${loadBefore.toFixed(1)}, two nodes with
${String(options.tenants)} schools of ${String(options.students)} students each, ${String(options.connections)} connections; medians of ${String(options.rounds)} rounds of ${String(options.seconds)} s.

${table(lines)}
`;
  await writeFile(join(folder, 'result-nodes.md'), text);
  return text;
}
