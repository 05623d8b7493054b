import { z } from 'zod';
import { json, page, resource, stream, type StreamHandler } from '../http/endpoint.ts';
import { id, timestamp } from '../http/schemas.ts';
import { Identified } from './auth.ts';
import { beginStream, lastEventId } from './parts/streams.ts';

const count = z.int();

export const System = z
  .object({
    at: timestamp,
    server: z.object({
      version: z.string(),
      started_at: timestamp,
      database: z.string(),
      size_bytes: count.nullable().meta({ description: 'null here, because it takes long. `school status` shows it.' }),
      is_replica: z.boolean(),
    }),
    release: z
      .object({ fingerprint: z.string(), installed_at: timestamp, schema_version: z.int() })
      .meta({ description: 'The installed functions, and the tenant migration that they need.' }),
    schools: z.array(z.object({ status: z.string(), schema_version: z.int(), schools: count })).meta({
      description: 'On this server. Those with an older `schema_version` than the release wait for a migration.',
    }),
    delayed_schools: z
      .array(
        z.object({
          tenant_id: id,
          subdomain: z.string(),
          schema_version: z.int(),
          failed_version: z.int().nullable(),
          error: z.string().nullable(),
          skip_reason: z.string().nullable(),
        }),
      )
      .meta({ description: 'Schools whose last migration failed, or was skipped.' }),
    deliveries: z
      .array(z.object({ channel: z.string(), sent: count, pending: count, failed: count, dropped: count }))
      .meta({
        description: 'Messages of the last 7 days, as of the last refresh of the facts for analysts.',
      }),
    workers: count,
    queue: z.object({
      worker: z.boolean(),
      tasks: z.array(
        z.object({
          task: z.string(),
          ready: count,
          waiting: count.meta({ description: 'Scheduled for later, including failed jobs that will be retried.' }),
          running: count,
          failed: count.meta({ description: 'Failed at their last attempt.' }),
          oldest_ready_seconds: z.number().nullable(),
          repeated: count.meta({ description: 'With three attempts or more, failed ones included.' }),
          oldest_due_seconds: z.number().nullable().meta({
            description: 'Since the oldest job that was due and has not succeeded was queued.',
          }),
        }),
      ),
    }),
    connections: z.array(
      z.object({
        name: z.string().meta({ description: 'The name of the program (`application_name`).' }),
        connections: count,
        active: count.nullable(),
        idle_in_transaction: count.nullable(),
        waiting: count.nullable().meta({ description: 'For a lock.' }),
      }),
    ),
    slow_operations: z
      .array(
        z.object({
          operation: z.string().meta({ examples: ['students_list'] }),
          calls: count,
          mean_ms: count,
          max_ms: count,
        }),
      )
      .meta({ description: 'The slowest on average in the last hour.' }),
    max_connections: count,
    missing_grant: z
      .string()
      .nullable()
      .meta({
        description:
          'If the owner of the database may not see what other roles do, the statement that lets it. What it cannot ' +
          'see is null: `long_transactions`, `replicas`, and the state of connections.',
        examples: ['grant pg_read_all_stats to school'],
      }),
    long_transactions: z
      .array(z.object({ pid: z.int(), name: z.string(), state: z.string().nullable(), seconds: z.number() }))
      .nullable()
      .meta({ description: 'Open for more than 30 seconds.' }),
    replicas: z
      .array(
        z.object({
          name: z.string(),
          state: z.string().nullable(),
          lag_bytes: z.number().nullable(),
          lag_seconds: z.number().nullable(),
        }),
      )
      .nullable()
      .meta({ description: 'A replica that is away is known by its replication slot: its state is `disconnected`.' }),
    refusal: z
      .string()
      .nullable()
      .meta({
        description: 'Why this database runs no jobs, and creates and moves no school. Null if it does.',
        examples: ['This database is a copy beside the one that schools use (school database adopt --as copy).'],
      }),
    kept_schools: z
      .array(z.object({ id, subdomain: z.string().nullable() }))
      .meta({ description: 'Schools that moved away, whose tables this database keeps until the move is confirmed.' }),
    nodes: z
      .array(
        z.object({
          name: z.string(),
          status: z.enum(['joining', 'active', 'draining']),
          schools: count,
          answered_at: timestamp.nullable(),
          unreachable_since: timestamp.nullable(),
        }),
      )
      .meta({ description: 'Other servers with schools.' }),
  })
  .meta({ id: 'System' });

export const FailedJob = z
  .object({
    id,
    task: z.string().meta({ examples: ['send_email'] }),
    tenant_id: id.nullable(),
    subdomain: z.string().nullable(),
    attempts: count,
    max_attempts: count,
    error: z.string().nullable().meta({ description: 'The first line of the last error, without email addresses.' }),
    next_run_at: timestamp.nullable().meta({ description: 'null after the last attempt.' }),
  })
  .meta({ id: 'FailedJob' });

const openStream: StreamHandler = async (exchange) => {
  const last = lastEventId(exchange);
  await exchange.call('platform_system_stream', {});
  beginStream(exchange, Number(last ?? 0));
};

export const platformSystem = resource('/platform', 'System', 'The state of the installation, for operators.', {
  'GET /system': {
    operation: 'platform_system',
    summary: 'Get the state of the installation',
    response: json(System),
  },
  'GET /system/stream': {
    operation: 'platform_system_stream',
    summary: 'Receive the state of the installation as a stream',
    description:
      'Server-sent events with the JSON of a System: one at once, then one when anything but `at` has changed, at ' +
      'most every 2 seconds. Otherwise like the stream of notifications.',
    response: stream(openStream),
  },
  'GET /jobs': {
    operation: 'platform_jobs_list',
    summary: 'List jobs that have failed',
    description: 'At least once. Those that failed at their last attempt come first; at most 1,000.',
    response: page(FailedJob, { task: z.string().max(100).optional() }),
  },
  'POST /jobs/:id/retry': {
    operation: 'platform_jobs_retry',
    summary: 'Run a job again now',
    description: 'With all its attempts. 409 invalid_state while it is running.',
    response: json(Identified),
  },
  'POST /jobs/:id/cancel': {
    operation: 'platform_jobs_cancel',
    summary: 'Remove a job from the queue',
    description: '409 invalid_state while it is running.',
    response: json(Identified),
  },
});
