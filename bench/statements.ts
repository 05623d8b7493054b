import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import pg from 'pg';
import { type Call, dispatcher } from '../src/database/call.ts';
import { apiPool, withOptions } from '../src/database/pool/pool.ts';
import { switchToRole } from '../src/domain/role-settings.ts';
import { answerParent } from './child.ts';
import type { Length } from './load.ts';
import { type Measured, summarize, timed } from './statistics.ts';

/** A statement that is measured through pg alone: `core.call`, or a file of baselines/ in the schema of a school. */
export type Statement =
  { kind: 'call'; args: Parameters<Call> } | { kind: 'bare'; file: string; tenantId: number; values: unknown[] };

/** A message to this process: statements to run, all of one kind. */
export type StatementsMessage = { statements: Statement[] } &
  /** Runs the statements in turn, on all connections in parallel. */
  (
    | ({ mode: 'loop'; connections: number } & Length)
    /** Runs each statement once, one after the other, on a new connection. */
    | { mode: 'each-once' }
    /** Returns the JSON of the first statement. */
    | { mode: 'answer' }
    /** Returns the address of an HTTP server that answers `GET /<n>` with the JSON of the statement with this index. */
    | { mode: 'serve'; connections: number }
  );

const [databaseUrl = '', poolSize = ''] = process.argv.slice(2);

/** Runs a statement. @returns its JSON as text */
type Run = (statement: Statement) => Promise<string>;

const pool = apiPool(databaseUrl, undefined, Number(poolSize));
const withCall =
  (call: Call): Run =>
  async (statement) => {
    if (statement.kind !== 'call') throw new Error('Expected a call.');
    return (await call(...statement.args)).answer;
  };

/** A connection of the API without its pool, which would choose the connection by the school, and limit their number. */
async function callConnection(): Promise<Run> {
  const client = new pg.Client({
    connectionString: withOptions(databaseUrl, switchToRole('school_api')),
    application_name: 'bench_call',
  });
  await client.connect();
  return withCall(dispatcher({ query: (statement: string | pg.QueryConfig) => client.query(statement) }));
}
const callConnections: Run[] = [];

const texts = new Map<string, Promise<string>>();
function readText(file: string): Promise<string> {
  let text = texts.get(file);
  if (!text) texts.set(file, (text = readFile(join(import.meta.dirname, 'baselines', file), 'utf8')));
  return text;
}

/**
 * A connection for bare statements. It has the settings of the API, the role of requests and a scope, so that row
 * policies apply, and a prepared statement for each school. Its school is set when it changes: for one school once, for random schools before nearly
 * every statement.
 */
async function bareConnection(): Promise<{ run: Run; end: () => Promise<void> }> {
  const client = new pg.Client({
    connectionString: databaseUrl,
    application_name: 'bench_bare',
    // The JSON stays text, as in the API.
    types: { getTypeParser: () => (value: string) => value },
    options: `${switchToRole('school_api')} -c role=school_tenant -c app.scope=all -c app.user_id=1 -c app.time_zone=Europe/London`,
  });
  await client.connect();
  let current: number | undefined;
  return {
    async run(statement) {
      if (statement.kind !== 'bare') throw new Error('Expected a bare statement.');
      const { file, tenantId, values } = statement;
      if (current !== tenantId)
        await client.query({
          name: 'tenant',
          text: "select set_config('app.tenant_id', $1, false)",
          values: [String(tenantId)],
        });
      current = tenantId;
      const text = (await readText(file)).replaceAll('school.', `tenant_${tenantId}.`);
      const { rows } = await client.query<[string]>({ name: `${file} ${tenantId}`, text, values, rowMode: 'array' });
      if (!rows[0]) throw new Error(`${file} returned no row.`);
      return rows[0][0];
    },
    end: () => client.end(),
  };
}
const bareConnections: Awaited<ReturnType<typeof bareConnection>>[] = [];

/**
 * One function per connection. Calls of several schools use the pool of the API, so that each backend keeps the plans of
 * some schools.
 */
async function runners(statements: Statement[], connections: number): Promise<Run[]> {
  const [first] = statements;
  if (first?.kind === 'call') {
    const schools = new Set(statements.map((one) => one.kind === 'call' && one.args[3].school));
    if (schools.size > 1) return Array<Run>(connections).fill(withCall(dispatcher(pool)));
    while (callConnections.length < connections) callConnections.push(await callConnection());
    return callConnections.slice(0, connections);
  }
  while (bareConnections.length < connections) bareConnections.push(await bareConnection());
  return bareConnections.slice(0, connections).map(({ run }) => run);
}

/** Runs the statements in turn, on all connections in parallel, until `isDone`. */
async function loop(statements: Statement[], runs: Run[], isDone: (count: number) => boolean): Promise<Measured> {
  const latencies: number[] = [];
  let count = 0;
  const work = async (run: Run) => {
    while (!isDone(count)) {
      const statement = statements[count++ % statements.length];
      if (statement) latencies.push(await timed(() => run(statement)));
    }
  };
  const elapsed = await timed(() => Promise.all(runs.map(work)));
  return summarize(latencies, elapsed);
}

async function eachOnce(statements: Statement[]): Promise<Measured> {
  const { run, end } = statements[0]?.kind === 'bare' ? await bareConnection() : await newCallConnection(statements);
  try {
    return await loop(statements, [run], (count) => count >= statements.length);
  } finally {
    await end();
  }
}

/** A connection that has not run any statement of a school. */
async function newCallConnection(statements: Statement[]): Promise<{ run: Run; end: () => Promise<void> }> {
  // So large that the connection is not replaced.
  const single = apiPool(databaseUrl, undefined, 1, 10_000);
  const [first] = statements;
  const school = first?.kind === 'call' ? first.args[3].school : undefined;
  // Opens the connection of schools.
  await single.query('select', { school, isVerified: true, planKey: '' });
  return { run: withCall(dispatcher(single)), end: () => single.end() };
}

/** What the HTTP server serves. It shows the highest rate that Node can reach with these statements. */
const served: { statements: Statement[]; runs: Run[] } = { statements: [], runs: [] };
/** Each HTTP connection has a connection to the database, so that none waits for another one. */
const runOf = new WeakMap<Socket, Run>();
let opened = 0;
const server = createServer((req, res) => {
  const statement = served.statements[Number(req.url?.slice(1))];
  const run = runOf.get(req.socket) ?? served.runs[opened++ % served.runs.length];
  if (!statement || !run) return void res.writeHead(404).end();
  runOf.set(req.socket, run);
  void run(statement).then(
    (json) => res.setHeader('Content-Type', 'application/json').end(json),
    (error: unknown) => res.writeHead(500).end(String(error)),
  );
});

async function serve(statements: Statement[], connections: number): Promise<{ url: string }> {
  Object.assign(served, { statements, runs: await runners(statements, connections) });
  if (!server.listening) await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return { url: `http://127.0.0.1:${String((server.address() as AddressInfo).port)}` };
}

answerParent(async (message: StatementsMessage): Promise<Measured | { answer: string } | { url: string }> => {
  const { statements } = message;
  const [first] = statements;
  if (!first) throw new Error('There are no statements.');
  if (message.mode === 'each-once') return eachOnce(statements);
  if (message.mode === 'serve') return serve(statements, message.connections);
  const runs = await runners(statements, message.mode === 'answer' ? 1 : message.connections);
  if (message.mode === 'answer') return { answer: (await runs[0]?.(first)) ?? '' };
  if ('amount' in message) return loop(statements, runs, (count) => count >= message.amount);
  const end = performance.now() + message.seconds * 1000;
  return loop(statements, runs, () => performance.now() >= end);
});
