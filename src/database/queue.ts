import type pg from 'pg';

/** The job queue in numbers. */
export interface Queue {
  /** Whether a worker is alive. */
  worker: boolean;
  /** Every task that a worker has ever registered. */
  tasks: {
    task: string;
    ready: number;
    /** Scheduled for later, including failed jobs that will be retried. */
    waiting: number;
    running: number;
    /** No attempts left. */
    failed: number;
    /** Seconds since the oldest ready job became ready; null without one. */
    oldest_ready_seconds: number | null;
    /** With three attempts or more, those that have failed for good included. */
    repeated?: number;
    /** Seconds since the oldest job that was due and has not succeeded was queued; null without one. */
    oldest_due_seconds?: number | null;
  }[];
}

/** The age of the analytics facts. */
export interface Facts {
  /** Number of schools that should have facts. */
  schools: number;
  /** Seconds since the least recent refresh; 0 without schools. */
  oldest_seconds: number;
}

/** What the metrics report about the database. */
export interface QueueState {
  queue: Queue;
  facts: Facts;
  nodes: NodeReachability;
  /** The queues of the nodes that answered the last check of the worker, as they were then, by name. */
  nodeQueues: Record<string, Queue>;
  /** Schools that wait for a migration. */
  tenantsBehind: number;
  /** Whether writes wait for a synchronous replica. */
  writesWait: boolean;
}

/** Whether each node answered the last check of the worker, by name; null before the first check. */
export type NodeReachability = Record<string, boolean | null>;

export async function readQueue(client: pg.ClientBase): Promise<Queue> {
  const { rows } = await client.query<{ queue: Queue }>('select core.queue() as queue');
  return rows[0]?.queue ?? { worker: false, tasks: [] };
}

/**
 * Reads the queue, the age of the facts and the state of the nodes within a time limit. The database cancels the
 * statement after half of that time; this function gives up after all of it, even when the connection hangs.
 * @throws when the database does not respond in time
 */
export async function readQueueWithin(pool: pg.Pool, timeoutMs: number): Promise<QueueState> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_done, fail) => {
    timer = setTimeout(() => fail(new Error('The database did not respond in time.')), timeoutMs);
  });
  // Two statements in one message, so that `set local` also applies behind a connection pooler.
  const reading = pool.query(
    `set local statement_timeout = ${String(timeoutMs / 2)}; select core.queue() as queue, core.analytics_age() as facts,
       core.node_reachability() as nodes, core.node_queues() as "nodeQueues",
       (r ->> 'tenants_behind')::integer as "tenantsBehind", (r ->> 'writes_wait')::boolean as "writesWait"
     from core.readiness() r`,
  ) as unknown as Promise<pg.QueryResult<QueueState>[]>;
  try {
    const answer = (await Promise.race([reading, timeout]))[1]?.rows[0];
    if (!answer) throw new Error('The database returned no queue.');
    return answer;
  } finally {
    clearTimeout(timer);
    reading.catch(() => undefined);
  }
}
