import { createHmac, hkdfSync } from 'node:crypto';
import type { SchoolPool } from './pool/school-pool.ts';

/** The state of a counter in its window. */
export interface RequestCount {
  hits: number;
  /** The time until the window ends and the counter starts again. */
  msLeft: number;
}

/** What the database knows of callers without a login, for the rate limits of all API processes. */
export interface AnonymousCallers {
  /**
   * Counts a request, or with -1 takes one back.
   * @throws if the database does not answer within a second
   */
  count(key: string, change: 1 | -1): Promise<RequestCount>;
  /** The SHA-256 (base64) of the emails whose session was last used at an address, or in an IPv6 network (with `/56`). */
  accountsAt(address: string): Promise<ReadonlySet<string>>;
}

interface Change {
  change: 1 | -1;
  done: (count: RequestCount) => void;
  fail: (error: Error) => void;
}

const maxKeysPerStatement = 500;
const maxWaitMs = 1000;

/**
 * All statements count as one school that does not exist, so that they take no connection from a real one, and do not wait
 * behind the clients whom they count.
 */
const request = (planKey: string) => ({ school: 'rate limits', isVerified: true, planKey });

/**
 * A process sends one counting statement at a time. Requests that arrive meanwhile are counted together by the next one.
 * So a flood of requests, from any number of addresses, keeps at most one connection busy.
 * @param secret  the key of the HMAC, without which nobody finds the addresses of stored keys by trying all
 */
export function anonymousCallers(
  pool: Pick<SchoolPool, 'query'>,
  { secret, windowMs }: { secret: string; windowMs: number },
): AnonymousCallers {
  const hmacKey = Buffer.from(hkdfSync('sha256', secret, '', 'rate limits', 32));
  /** The changes that the next statement sends, by the key in base64. */
  const waiting = new Map<string, Change[]>();
  let isSending = false;

  async function sendBatch(): Promise<void> {
    const batch = new Map([...waiting].slice(0, maxKeysPerStatement));
    for (const key of batch.keys()) waiting.delete(key);
    try {
      const { rows } = await pool.query<{ key: Buffer; hits: number; ms_left: number }>(
        {
          name: 'core.count_requests',
          text: 'select key, hits, ms_left from core.count_requests($1, $2, $3)',
          values: [
            [...batch.keys()].map((key) => Buffer.from(key, 'base64')),
            [...batch.values()].map((changes) => changes.reduce((sum, { change }) => sum + change, 0)),
            windowMs,
          ],
        },
        { ...request('count_requests'), server: 'home' },
      );
      for (const { key, hits, ms_left: msLeft } of rows) {
        const changes = batch.get(key.toString('base64')) ?? [];
        // The first requests of the batch may still be within the limit.
        let before = hits - changes.filter(({ change }) => change === 1).length;
        for (const { change, done } of changes) done({ hits: change === 1 ? ++before : hits, msLeft });
      }
    } catch (error) {
      const reason = error instanceof Error ? error : new Error(String(error));
      for (const { fail } of [...batch.values()].flat()) fail(reason);
    }
  }

  async function send(): Promise<void> {
    isSending = true;
    while (waiting.size > 0) await sendBatch();
    isSending = false;
  }

  return {
    count: (name, change) =>
      new Promise((done, fail) => {
        const key = createHmac('sha256', hmacKey).update(name).digest('base64');
        const timer = setTimeout(() => fail(new Error('The database did not count the request in time.')), maxWaitMs);
        const changes = waiting.get(key) ?? [];
        waiting.set(key, changes);
        changes.push({
          change,
          done(count) {
            clearTimeout(timer);
            done(count);
          },
          fail(error) {
            clearTimeout(timer);
            fail(error);
          },
        });
        if (!isSending) void send();
      }),
    async accountsAt(address) {
      const { rows } = await pool.query<{ hash: Buffer }>(
        { name: 'core.accounts_at', text: 'select hash from core.accounts_at($1) hash', values: [address] },
        request('accounts_at'),
      );
      return new Set(rows.map(({ hash }) => hash.toString('base64')));
    },
  };
}
