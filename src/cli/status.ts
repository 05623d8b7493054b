import { setTimeout as delay } from 'node:timers/promises';
import { type Queue } from '../database/queue.ts';
import { withOwner } from '../database/pool/pool.ts';
import type { Config } from '../process/config.ts';
import { formatMinute, withMigratedDatabase } from '../process/database-access.ts';
import { exitCodes } from './exit-codes.ts';
import { counted, duration, fields, type Format, indented, table } from './output.ts';
import { type OfServer, onEachServer, serversOfCommand } from '../servers/servers.ts';

interface Status {
  at: string;
  server: { version: string; started_at: string; database: string; size_bytes: number; is_replica: boolean };
  release: { fingerprint: string; installed_at: string; schema_version: number };
  schools: { status: string; schema_version: number; schools: number }[];
  /** Schools that are behind because their migration failed or because they are skipped. */
  delayed_schools: {
    tenant_id: number;
    subdomain: string;
    schema_version: number;
    error: string | null;
    skip_reason: string | null;
  }[];
  workers: number;
  queue: Queue;
  connections: {
    name: string;
    connections: number;
    active: number | null;
    idle_in_transaction: number | null;
    waiting: number | null;
  }[];
  slow_operations: { operation: string; calls: number; mean_ms: number; max_ms: number }[];
  max_connections: number;
  /** The statement that lets the owner see what is null: `active` and so on, transactions, replicas. */
  missing_grant: string | null;
  long_transactions: { pid: number; name: string; state: string; seconds: number }[] | null;
  replicas: { name: string; state: string; lag_bytes: number; lag_seconds: number | null }[] | null;
  /** Why the server runs no jobs, and creates and moves no schools; null if it does. */
  refusal: string | null;
  /** Schools that moved away, whose tables the server has kept. */
  kept_schools: { id: number; subdomain: string | null }[];
  /** At home: what the checks of the worker have found. */
  nodes: { name: string; answered_at: string | null; unreachable_since: string | null }[];
}

/** A number that is null if it cannot be seen. */
const orUnknown = (count: number | null) => count ?? '?';

/** @param grant  the statement without which they cannot be seen */
function describeTransactions(transactions: Status['long_transactions'], grant: string | null): string {
  if (transactions === null)
    return (
      'Long transactions of other roles cannot be seen, nor replicas and what "?" stands for. As a superuser, run: ' +
      `${grant ?? ''};\n`
    );
  if (transactions.length === 0) return 'No transaction has been open for more than 30 seconds.\n';
  return table(
    ['LONG TRANSACTION', 'PROCESS', 'STATE', 'OPEN FOR'],
    transactions.map((each) => [each.name, String(each.pid), each.state, duration(each.seconds)]),
  );
}

function describeReplicas(replicas: Status['replicas']): string[] {
  if (replicas === null) return [];
  if (replicas.length === 0) return [`${counted(0, 'replica')}.\n`];
  return [
    table(
      ['REPLICA', 'STATE', 'BEHIND', 'LAG'],
      replicas.map((each) => [
        each.name,
        each.state,
        megabytes(each.lag_bytes),
        each.lag_seconds === null ? '-' : duration(each.lag_seconds),
      ]),
    ),
  ];
}

const megabytes = (bytes: number) => `${String(Math.ceil(bytes / 1024 / 1024))} MB`;

/** Why a school is behind. */
const describeDelay = ({
  tenant_id,
  subdomain,
  schema_version,
  error,
  skip_reason,
}: Status['delayed_schools'][number]) =>
  [
    `School ${String(tenant_id)} (${subdomain}) is at version ${String(schema_version)}.`,
    ...(skip_reason === null ? [] : [`  skipped: ${skip_reason}`]),
    ...(error === null ? [] : [`  failed: ${indented(error, 4)}`]),
  ]
    .map((line) => `${line}\n`)
    .join('');

function describe(status: Status): string {
  const { server, release, queue } = status;
  const sum = (state: 'ready' | 'waiting' | 'running' | 'failed') =>
    queue.tasks.reduce((total, task) => total + task[state], 0);
  const oldest = Math.max(0, ...queue.tasks.map((task) => task.oldest_ready_seconds ?? 0));
  const connections = status.connections.reduce((total, each) => total + each.connections, 0);
  return [
    fields([
      ['Time', formatMinute(new Date(status.at))],
      [
        'Server',
        `Postgres ${server.version}${server.is_replica ? ' (replica)' : ''}, database ${server.database}, ` +
          `${megabytes(server.size_bytes)}, started ${formatMinute(new Date(server.started_at))}`,
      ],
      [
        'Release',
        `schema version ${String(release.schema_version)}, functions ${release.fingerprint}, ` +
          `installed ${formatMinute(new Date(release.installed_at))}`,
      ],
      ['Workers', status.workers === 0 ? 'none: jobs are not processed' : String(status.workers)],
      [
        'Queue',
        `${String(sum('ready'))} ready, ${String(sum('waiting'))} waiting, ${String(sum('running'))} running, ` +
          `${String(sum('failed'))} failed; oldest ready ${duration(oldest)}`,
      ],
      ['Connections', `${String(connections)} of ${String(status.max_connections)}`],
      ...(status.refusal === null ? [] : [['Refused', status.refusal] satisfies [string, string]]),
      ...(status.kept_schools.length === 0
        ? []
        : [
            [
              'Unconfirmed moves',
              status.kept_schools.map(({ id, subdomain }) => subdomain ?? String(id)).join(', '),
            ] satisfies [string, string],
          ]),
    ]),
    table(
      ['SCHOOLS', 'VERSION', 'NUMBER'],
      status.schools.map((each) => [
        each.status,
        each.schema_version < release.schema_version && each.status !== 'purged'
          ? `${String(each.schema_version)} (behind)`
          : String(each.schema_version),
        each.schools,
      ]),
    ),
    ...status.delayed_schools.map(describeDelay),
    table(
      ['CONNECTIONS', 'OPEN', 'ACTIVE', 'IN TRANSACTION', 'WAIT FOR LOCK'],
      status.connections.map((each) => [
        each.name,
        each.connections,
        orUnknown(each.active),
        orUnknown(each.idle_in_transaction),
        orUnknown(each.waiting),
      ]),
    ),
    describeTransactions(status.long_transactions, status.missing_grant),
    ...(status.slow_operations.length === 0
      ? []
      : [
          table(
            ['SLOW OPERATION', 'CALLS', 'MEAN MS', 'MAX MS'],
            status.slow_operations.map((each) => [each.operation, each.calls, each.mean_ms, each.max_ms]),
          ),
        ]),
    ...describeReplicas(status.replicas),
  ].join('\n');
}

/** Reads the status of a database. */
const readStatus = (url: string): Promise<Status> =>
  withOwner(url, async (client) => {
    const { rows } = await client.query<{ status: Status }>('select core.status() as status');
    if (!rows[0]) throw new Error('The database returned no status.');
    // core.status, which the console shows too, has only the first line of each error.
    const { rows: errors } = await client.query<{ tenant_id: string; error: string | null }>(
      'select tenant_id, error from platform.delayed_migration',
    );
    const { status } = rows[0];
    const wholeError = (id: number) => errors.find(({ tenant_id }) => Number(tenant_id) === id)?.error ?? null;
    const delayed = status.delayed_schools.map((each) => ({ ...each, error: wholeError(each.tenant_id) }));
    return { ...status, delayed_schools: delayed };
  });

/** The reports of all servers, the home first, as text or JSON. @throws if the home does not answer */
function describeAll([home, ...nodes]: OfServer<Status>[], json: boolean | undefined): string {
  if (home?.error !== undefined) throw new Error(home.error);
  if (!home) return '';
  const checkOf = (name: string) => home.result.nodes.find((node) => node.name === name);
  const describeFailure = ({ server, error }: OfServer<Status>) => {
    const since = checkOf(server.name)?.unreachable_since;
    const failure = since ? `Has not answered since ${formatMinute(new Date(since))}` : 'Does not answer';
    return `${failure}: ${error ?? ''}\n`;
  };
  if (json) {
    const ofNodes = nodes.map((node) => {
      const { answered_at, unreachable_since } = checkOf(node.server.name) ?? {};
      const result = node.error === undefined ? { ...node.result, nodes: undefined } : { error: node.error };
      return { name: node.server.name, answered_at, unreachable_since, ...result };
    });
    return `${JSON.stringify({ ...home.result, ...(nodes.length > 0 ? { nodes: ofNodes } : {}) })}\n`;
  }
  if (nodes.length === 0) return describe(home.result);
  return [home, ...nodes]
    .map(
      (each) =>
        `== ${each.server.name} ==\n${each.error === undefined ? describe(each.result) : describeFailure(each)}`,
    )
    .join('\n');
}

/**
 * `school status`: one report of the database and its nodes, or with `watch` one every few seconds until the process is
 * stopped.
 * @returns the exit code: `failed` if a node does not answer
 */
export async function statusCommand(
  config: Config,
  { json, watch, interval }: Format & { watch?: boolean; interval: number },
): Promise<number> {
  return withMigratedDatabase(config, async (ownerUrl) => {
    for (;;) {
      const states = await onEachServer(await serversOfCommand(ownerUrl), ({ url }) => readStatus(url));
      const text = describeAll(states, json);
      if (watch && !json && process.stdout.isTTY) process.stdout.write('\u001b[H\u001b[2J');
      process.stdout.write(text);
      if (!watch) return states.some(({ error }) => error !== undefined) ? exitCodes.failed : exitCodes.done;
      await delay(interval * 1000);
    }
  });
}
