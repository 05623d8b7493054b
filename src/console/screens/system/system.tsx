import { useEffect, useRef } from 'preact/hooks';
import { channelNames, formatNumber, Timestamp } from '../../parts/format.tsx';
import { request } from '../../data/api.ts';
import { useLoad } from '../../data/load.ts';
import { AsyncContent, Badge, Card, EmptyState, PageHeader, Fact } from '../../parts/components.tsx';
import { NumberTable } from '../../parts/table.tsx';
import { href } from '../../router.ts';
import { type StreamStatus, useStream } from '../../data/stream.ts';
import type { Channel, System as SystemState } from '../../types.ts';
import { FailedJobs } from './failed-jobs.tsx';

const refreshMs = 10_000;

/** Calls `work` again and again while the page is visible and the stream is not live. */
function useRefresh(work: () => Promise<void>, status: StreamStatus): void {
  useEffect(() => {
    if (status === 'live') return undefined;
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') void work();
    }, refreshMs);
    return () => clearInterval(timer);
  }, [work, status]);
}

/** Whether the page is live. Screen readers announce changes. */
const ConnectionStatus = ({ status }: { status: StreamStatus }) => (
  <span role="status">
    <Badge value={status} tone={status === 'live' ? 'good' : 'warn'} />
    {status === 'reconnecting' && ' Until then, the page is updated every ten seconds.'}
  </span>
);

const megabytes = (bytes: number) => `${formatNumber(Math.ceil(bytes / 1024 / 1024))} MB`;

/** A number of seconds as text, such as `2 min`. */
function duration(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** `1 school`, `2 schools`. */
const counted = (count: number, noun: string) => `${formatNumber(count)} ${noun}${count === 1 ? '' : 's'}`;

/** How long a node has not answered, at the time of the state. */
const downtime = (since: string, { at }: SystemState) => duration((Date.parse(at) - Date.parse(since)) / 1000);

/** What needs the attention of an operator, worst first. */
function findProblems(state: SystemState): string[] {
  const { workers, long_transactions, missing_grant, schools, release, delayed_schools, queue, nodes } = state;
  const waitsFor = schools.filter(
    ({ schema_version, status }) => schema_version < release.schema_version && status !== 'purged',
  );
  const behind = waitsFor.reduce((sum, each) => sum + each.schools, 0);
  const skipped = delayed_schools.filter(({ skip_reason }) => skip_reason !== null).length;
  const unmigrated = delayed_schools.length - skipped;
  const failed = queue.tasks.reduce((sum, task) => sum + task.failed, 0);
  const oldest = Math.max(0, ...queue.tasks.map((task) => task.oldest_ready_seconds ?? 0));
  return [
    state.refusal ?? '',
    ...nodes.map(({ name, schools: held, unreachable_since: since }) =>
      since === null
        ? ''
        : `The node ${name} has not answered for ${downtime(since, state)}: requests of its ${counted(held, 'school')} get 503.`,
    ),
    workers === 0 ? 'No worker is running: emails, push messages and reminders wait.' : '',
    unmigrated > 0 ? `The migration of ${counted(unmigrated, 'school')} failed.` : '',
    skipped > 0 ? `Skipped by migrations: ${counted(skipped, 'school')}.` : '',
    behind > delayed_schools.length ? `Not migrated yet: ${counted(behind - delayed_schools.length, 'school')}.` : '',
    state.kept_schools.length > 0
      ? `Moves to confirm: ${state.kept_schools.map(({ id, subdomain }) => subdomain ?? String(id)).join(', ')}.`
      : '',
    failed > 0 ? `${counted(failed, 'job')} failed at the last attempt.` : '',
    oldest > 300 ? `The oldest job has waited for ${duration(oldest)}.` : '',
    missing_grant !== null
      ? `Long transactions and replicas cannot be seen. As a superuser of the database, run: ${missing_grant}`
      : '',
    long_transactions && long_transactions.length > 0
      ? `Open for more than 30 seconds: ${counted(long_transactions.length, 'transaction')}.`
      : '',
  ].filter(Boolean);
}

function Problems({ state }: { state: SystemState }) {
  const problems = findProblems(state);
  if (problems.length === 0)
    return (
      <div class="callout good">
        <div>Everything is working.</div>
      </div>
    );
  return (
    <div class="problem" role="status">
      <ul>
        {problems.map((problem) => (
          <li key={problem}>{problem}</li>
        ))}
      </ul>
    </div>
  );
}

/** A table of numbers that scrolls on narrow screens. */
const Numbers = ({ caption, rows, ...props }: Parameters<typeof NumberTable>[0] & { caption: string }) => (
  // Keyboards must reach it.
  <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
    <NumberTable
      {...props}
      caption={caption}
      rows={rows.map(([name, ...values]) => [
        name,
        ...values.map((value) => (typeof value === 'number' ? formatNumber(value) : value)),
      ])}
    />
  </div>
);

function Facts({
  state: { server, release, connections, max_connections, workers, replicas, at },
  isLive,
}: {
  state: SystemState;
  isLive: boolean;
}) {
  const open = connections.reduce((sum, each) => sum + each.connections, 0);
  return (
    <Card title="Server">
      <dl class="facts">
        <Fact label="Postgres">
          {server.version}
          {server.is_replica && ' (replica)'}
        </Fact>
        <Fact label="Started">
          <Timestamp at={server.started_at} format="relative" />
        </Fact>
        <Fact label="Database">
          <span class="code">{server.database}</span>
        </Fact>
        <Fact label="Release">
          schema version {release.schema_version}, installed <Timestamp at={release.installed_at} format="relative" />
        </Fact>
        <Fact label="Workers">{workers === 0 ? 'none' : formatNumber(workers)}</Fact>
        <Fact label="Connections">
          {formatNumber(open)} <span class="muted">of {formatNumber(max_connections)}</span>
        </Fact>
        {replicas === null && <Fact label="Replicas">cannot be seen</Fact>}
        {replicas?.map(({ name, state, lag_seconds, lag_bytes }) => (
          <>
            <dt key={name}>Replica</dt>
            <dd>
              {name}, {state},{' '}
              {lag_seconds === null ? `${megabytes(lag_bytes ?? 0)} behind` : `${duration(lag_seconds)} behind`}
            </dd>
          </>
        ))}
        <Fact label={isLive ? 'Last change' : 'As of'}>
          <Timestamp at={at} format="time" />
        </Fact>
      </dl>
    </Card>
  );
}

/** The nodes of a home; nothing on a single server. */
function Nodes({ state }: { state: SystemState }) {
  if (state.nodes.length === 0) return null;
  return (
    <Card title="Nodes">
      <Numbers
        caption="Nodes"
        columns={['Node', 'Status', 'Schools', 'Answers']}
        rows={state.nodes.map(({ name, status, schools, answered_at, unreachable_since: since }) => [
          name,
          status,
          schools,
          since !== null ? `no, for ${downtime(since, state)}` : answered_at === null ? 'not checked yet' : 'yes',
        ])}
      />
    </Card>
  );
}

function DelayedSchools({ schools }: { schools: SystemState['delayed_schools'] }) {
  if (schools.length === 0) return null;
  return (
    <Card title="Schools whose migration failed or is skipped">
      <ul class="prose">
        {schools.map(({ tenant_id, subdomain, failed_version, error, skip_reason }) => (
          <li key={tenant_id}>
            <a href={href(`/schools/${tenant_id}`)}>{subdomain}</a>
            {failed_version !== null && <>, migration {failed_version}</>}: {skip_reason ?? error}
          </li>
        ))}
      </ul>
    </Card>
  );
}

export function System() {
  const newest = useRef<SystemState>(undefined);
  const system = useLoad('system', async (signal) => {
    const { data } = await request<SystemState>('GET', '/api/platform/system', { signal });
    // The stream may have sent a newer state meanwhile.
    return newest.current && Date.parse(newest.current.at) > Date.parse(data.at) ? newest.current : data;
  });
  const status = useStream('/api/platform/system/stream', (state) => {
    newest.current = state as SystemState;
    system.set(newest.current);
  });
  useRefresh(system.reload, status);
  return (
    <>
      <PageHeader
        title="System"
        lead={
          <>
            The database, the job queue and the messages. <ConnectionStatus status={status} />
          </>
        }
      />
      <AsyncContent state={system} lines={8}>
        {(state) => (
          <>
            <Problems state={state} />
            <div class="columns">
              <div>
                <Card title="Job queue">
                  <Numbers
                    caption="Jobs by task"
                    columns={['Task', 'Ready', 'Waiting', 'Running', 'Failed', 'Oldest']}
                    rows={state.queue.tasks.map((task) => [
                      task.task,
                      task.ready,
                      task.waiting,
                      task.running,
                      task.failed,
                      task.oldest_ready_seconds === null ? '–' : duration(task.oldest_ready_seconds),
                    ])}
                  />
                </Card>
                <Card title="Slowest operations of the last hour">
                  {state.slow_operations.length > 0 ? (
                    <Numbers
                      caption="Operations by their mean time"
                      columns={['Operation', 'Calls', 'Mean, ms', 'Slowest, ms']}
                      rows={state.slow_operations.map(({ operation, calls, mean_ms, max_ms }) => [
                        operation,
                        calls,
                        mean_ms,
                        max_ms,
                      ])}
                    />
                  ) : (
                    <EmptyState title="No requests yet" />
                  )}
                </Card>
                <DelayedSchools schools={state.delayed_schools} />
                <FailedJobs />
              </div>
              <div>
                <Facts state={state} isLive={status === 'live'} />
                <Nodes state={state} />
                <Card title="Messages of the last 7 days">
                  {state.deliveries.length > 0 ? (
                    <Numbers
                      caption="Messages by channel"
                      columns={['Channel', 'Sent', 'Pending', 'Failed', 'Dropped']}
                      rows={state.deliveries.map(({ channel, sent, pending, failed, dropped }) => [
                        channelNames[channel as Channel],
                        sent,
                        pending,
                        failed,
                        dropped,
                      ])}
                    />
                  ) : (
                    <EmptyState title="No messages yet" />
                  )}
                </Card>
              </div>
            </div>
          </>
        )}
      </AsyncContent>
    </>
  );
}
