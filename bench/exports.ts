import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { tokens } from '../src/http/credentials/tokens.ts';
import { dispatcher } from '../src/database/call.ts';
import { startEmbedded } from '../src/database/embedded.ts';
import { apiPool, withOwner } from '../src/database/pool/pool.ts';
import { benchDatabase } from './database.ts';
import { count } from './run.ts';
import { startApi } from './service.ts';
import { usage } from './usage.ts';

// `npm run bench:exports -- [rows]`: speed of exports of `rows` payments and balances, and the memory that they add to
// the API process. The baseline reads the same pages with pg alone, one after the other.

const [rows] = new Command('bench:exports')
  .description('Measures the speed of exports, and the memory that they add to the API process.')
  .argument('[rows]', 'number of payments and of balances', count, 100_000)
  .parse().processedArgs as [number];
/** Students created by seed.sql. The rest is inserted directly, because no plan allows that many. */
const seeded = 1000;
const print = (text: string) => process.stdout.write(`${text}\n`);

/**
 * Inserts students, each with a fee, an invoice and a payment. Triggers are off for speed, so derived columns are set
 * here.
 */
const money = `
  set session_replication_role = replica;
  insert into student (first_name, last_name, admission_number, class_id, grade_id)
    select 'Amina', 'Okafor', lpad(n::text, 6, '0'), s.class_id, s.grade_id from generate_series(${String(seeded + 1)}, ${String(rows)}) n join student s on s.id = 1 + n % 100;
  insert into fee_structure (name, academic_year_id) values ('Tuition', 2);
  insert into student_fee (student_id, fee_structure_id, class_id, amount, paid_amount, due_date, status)
    select id, 1, class_id, 100.50, 40, '2090-01-01', 'partially_paid' from student;
  insert into invoice (student_id, class_id, due_date, invoice_number, issued_at, amount, status)
    select id, class_id, '2090-01-01', 'INV-2026-' || lpad(id::text, 6, '0'), now(), 20, 'sent' from student;
  insert into payment (student_id, student_fee_id, amount, payment_date, payment_method, receipt_number, reference_number, recorded_by, recorded_by_name)
    select student_id, id, 40, date '2026-01-01' + (id % 200)::integer, 'cash', 'RCT-2026-' || lpad(id::text, 6, '0'), 'C-' || id, 1, 'Ada Admin' from student_fee;
  analyze`;

interface Download {
  seconds: number;
  bytes: number;
  /** Peak memory while the file was sent. */
  memoryMb: number;
  cpuSeconds: number;
}

const folder = await mkdtemp(join(tmpdir(), 'school-bench-'));
const server = await startEmbedded(folder);
let stopApi = () => Promise.resolve();
try {
  const database = await benchDatabase(server, 1, seeded, print);
  const [school] = database.schools;
  if (!school) throw new Error('No school was created.');
  await withOwner(database.url, (owner) => owner.query(`set search_path = tenant_${school.id}, public; ${money}`));
  const secret = randomBytes(32).toString('hex');
  const service = await startApi(database.url, secret, 10, folder, (stop) => (stopApi = stop));
  const authorization = `Bearer ${tokens([secret]).sign({ session_id: school.sessionId, user_id: 1, tenant_id: school.id })}`;

  const download = async (path: string, maxPerSecond = Infinity): Promise<Download> => {
    const before = await usage(service.pid);
    let highest = before.memoryMb;
    const timer = setInterval(
      () => void usage(service.pid).then(({ memoryMb }) => (highest = Math.max(highest, memoryMb))),
      20,
    );
    const start = performance.now();
    const bytes = await new Promise<number>((done, fail) => {
      get(`${service.url}${path}`, { headers: { authorization } }, (response) => {
        let count = 0;
        response.on('data', (chunk: Buffer) => {
          count += chunk.length;
          if (count / maxPerSecond < (performance.now() - start) / 1000) return;
          response.pause();
          setTimeout(() => response.resume(), 20);
        });
        response.on('end', () => {
          if (response.statusCode === 200) done(count);
          else fail(new Error(`${path} returned ${String(response.statusCode)}`));
        });
        response.on('error', fail);
      }).on('error', fail);
    });
    clearInterval(timer);
    const seconds = (performance.now() - start) / 1000;
    return { seconds, bytes, memoryMb: highest, cpuSeconds: (await usage(service.pid)).cpuSeconds - before.cpuSeconds };
  };

  /** Reads all pages with pg alone. */
  const baseline = async (operation: string): Promise<number> => {
    const pool = apiPool(database.url, undefined, 1);
    const call = dispatcher(pool);
    const start = performance.now();
    for (let after: unknown = undefined; after !== null;) {
      const { answer } = await call(
        operation,
        String(school.sessionId),
        { limit: 1000, ...(after === undefined ? {} : { after }) },
        {},
      );
      after = (JSON.parse(answer) as { next: unknown }).next;
    }
    await pool.end();
    return (performance.now() - start) / 1000;
  };

  print(`${String(rows)} rows; the API process is at ${(await usage(service.pid)).memoryMb.toFixed(0)} MB`);
  for (const [operation, path] of [
    ['payments_export', '/api/fees/payments/export'],
    ['balances_export', '/api/finance/balances/export'],
  ] as const) {
    for (const format of ['csv', 'xlsx', 'csv', 'xlsx']) {
      const { seconds, bytes, memoryMb, cpuSeconds } = await download(`${path}?format=${format}`);
      const speed = `${(rows / seconds).toFixed(0)} rows/s, ${seconds.toFixed(2)} s, ${(bytes / 1e6).toFixed(1)} MB`;
      print(`${path} ${format}: ${speed}; CPU time ${cpuSeconds.toFixed(2)} s; peak memory ${memoryMb.toFixed(0)} MB`);
    }
    const seconds = await baseline(operation);
    print(`${operation}, baseline, the same pages with pg alone: ${(rows / seconds).toFixed(0)} rows/s`);
  }
  const slow = await download('/api/fees/payments/export', 3_000_000);
  print(`payments to a slow client (3 MB/s): ${slow.seconds.toFixed(1)} s; peak memory ${slow.memoryMb.toFixed(0)} MB`);
} finally {
  await stopApi();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
}
