import type pg from 'pg';

/** What is in the queue of jobs. */
export interface Queue {
  /** Whether some worker is alive. */
  worker: boolean;
  /** Every task that a worker has ever had. */
  tasks: {
    task: string;
    ready: number;
    /** Their time has not come; those that failed and are tried again are among them. */
    waiting: number;
    running: number;
    /** For good. */
    failed: number;
    /** How long the oldest job that is ready has been so; null without one. */
    oldest_ready_seconds: number | null;
  }[];
}

/** How old the facts for analysts are. */
export interface Facts {
  /** How many schools should have facts. */
  schools: number;
  /** Of the school that has the oldest; 0 without schools. */
  oldest_seconds: number;
}

const text = 'select core.queue() as queue, core.analytics_age() as facts';

/** Reads the lengths of the queue. */
export async function readQueue(client: pg.ClientBase): Promise<Queue> {
  const { rows } = await client.query<{ queue: Queue }>(text);
  return rows[0]?.queue ?? { worker: false, tasks: [] };
}

/**
 * The same, and the age of the facts, with a limit to its time: the database ends the statement after half of it, and nobody waits longer than all of it, whatever becomes of the connection.
 * @throws when it takes longer, or the database does not answer
 */
export async function readQueueWithin(pool: pg.Pool, milliseconds: number): Promise<{ queue: Queue; facts: Facts }> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_done, fail) => {
    timer = setTimeout(() => fail(new Error('The database did not answer in time.')), milliseconds);
  });
  // Two statements in one message, so that it holds behind a pooler as well.
  const reading = pool.query(
    `set local statement_timeout = ${String(milliseconds / 2)}; ${text}`,
  ) as unknown as Promise<pg.QueryResult<{ queue: Queue; facts: Facts }>[]>;
  try {
    const answer = (await Promise.race([reading, late]))[1]?.rows[0];
    if (!answer) throw new Error('The database does not know its queue.');
    return answer;
  } finally {
    clearTimeout(timer);
    reading.catch(() => undefined);
  }
}
