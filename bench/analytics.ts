import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { tokens } from '../src/http/credentials/tokens.ts';
import { startEmbedded } from '../src/database/embedded.ts';
import { withOwner } from '../src/database/pool/pool.ts';
import { benchDatabase } from './database.ts';
import { firstQueries } from './analytics-start.ts';
import { startApi } from './service.ts';
import { median, pick, quantile } from './statistics.ts';
import { sendSteadily, timedRequest } from './steady.ts';
import { usage } from './usage.ts';

// `npm run bench:analytics`: the latency of school requests without analytics queries, and with four queries over all
// schools running at all times. The two alternate, because the machine may be shared. Requests are sent at a steady
// rate, whether or not earlier ones have been answered. Also the time of the first analytics query after a start.

const number = (text: string) => Number(text);
const options = new Command('bench:analytics')
  .option('--schools <n>', 'number of schools with facts', number, 500)
  .option('--rate <n>', 'school requests per second', number, 100)
  .option('--seconds <n>', 'length of one measurement', number, 5)
  .option('--rounds <n>', 'number of measurements of each kind; 0 measures only the first queries', number, 9)
  .option('--starts <n>', 'number of starts of the service to measure the first query', number, 5)
  .option('--connections <n>', 'ANALYTICS_CONNECTIONS; default: that of the service', number)
  .parse()
  .opts<{ schools: number; rate: number; seconds: number; rounds: number; starts: number; connections?: number }>();
const print = (text: string) => process.stdout.write(`${text}\n`);

/**
 * A year of facts for $SCHOOLS schools with 24 classes each. Only in the mart, which is all that analytics queries
 * read.
 */
const facts = `
  insert into platform.tenant (name, subdomain, contact_email, plan_id, schema_version, is_setup_complete)
    select 'Generated ' || n, 'generated-' || n, 'head@generated.example', 1 + n % 3, 9999, true from generate_series(1, $SCHOOLS) n;
  create temporary table schools as select id as tenant_id, row_number() over (order by id) as n from platform.tenant where subdomain like 'generated-%';
  insert into platform.tenant_usage (tenant_id, students, teachers, classes) select tenant_id, 600, 40, 24 from schools;
  insert into mart.academic_year select tenant_id, 1, '2026/27', '2026-09-01', '2027-07-31', true from schools;
  insert into mart.class select tenant_id, c, 1, 'Grade ' || (c + 1) / 2, chr(65 + c % 2), 30 from schools, generate_series(1, 24) c;
  insert into mart.enrollment (tenant_id, class_id, month, gender, students, joiners, leavers)
    select tenant_id, c, date '2026-09-01' + m * interval '1 month', g, 12, 1, 1 from schools, generate_series(1, 24) c, generate_series(0, 9) m, unnest('{female,male}'::text[]) g;
  insert into mart.attendance_by_day (tenant_id, class_id, date, present, late, absent, excused)
    select tenant_id, c, date '2026-09-01' + d, 22 + (n + c + d) % 3, d % 2, 3 - (n + c + d) % 3, 0 from schools, generate_series(1, 24) c, generate_series(0, 299) d where d % 7 < 5;
  insert into mart.fee_amount (tenant_id, academic_year_id, month, source, component, currency, billed, discounted, waived, collected, overdue)
    select tenant_id, 1, date '2026-09-01' + m * interval '1 month', 'student_fees', f, 'USD', 1000, 0, 0, 500 + n % 500, 0 from schools, generate_series(0, 9) m, unnest('{Tuition,Transport,Books}'::text[]) f;
  insert into mart.notification_day (tenant_id, date, event, channel, messages, pending, sent, failed, dropped, read)
    select tenant_id, date '2026-09-01' + d, 'attendance.marked_absent', c, 40, 0, 39, 1, 0, 20 from schools, generate_series(0, 299) d, unnest('{in_app,push,email}'::text[]) c;
  analyze`;

/** Expensive queries: groups over all days of all schools, distinct counts, relations, long pages. */
const queries = [
  '{ attendanceDays { groupedAggregates(groupBy: [DATE_TRUNCATED_TO_WEEK, GRADE]) { keys sum { present late marked } distinctCount { tenantId } } } }',
  '{ tenants(first: 100) { nodes { name attendanceDays { groupedAggregates(groupBy: [DATE_TRUNCATED_TO_MONTH]) { keys sum { present late marked } } } } } }',
  '{ tenants(first: 1000, filter: { attendanceDays: { aggregates: { sum: { absent: { greaterThan: "1000" } } } } }) { totalCount nodes { name } } }',
  '{ attendanceDays(first: 1000, orderBy: [ATTENDANCE_RATE_ASC], filter: { tenant: { plan: { equalTo: "Standard" } } }) { totalCount nodes { date grade attendanceRate tenant { name } } } }',
  '{ notificationDays { groupedAggregates(groupBy: [TENANT_ID, DATE_TRUNCATED_TO_MONTH, CHANNEL]) { keys sum { messages sent failed } } } }',
  '{ attendanceDays { aggregates { distinctCount { classId date tenantId grade } average { attendanceRate } } } }',
];

const folder = await mkdtemp(join(tmpdir(), 'school-bench-'));
const server = await startEmbedded(folder);
let stopApi = () => Promise.resolve();
try {
  const database = await benchDatabase(server, 4, 1000, print);
  const secret = randomBytes(32).toString('hex');
  const settings = options.connections === undefined ? {} : { ANALYTICS_CONNECTIONS: String(options.connections) };
  const start = () =>
    startApi(database.url, secret, 10, folder, (stop) => (stopApi = stop), [], false, {
      DATA_DIR: join(folder, 'api'),
      ...settings,
    });
  const signer = tokens([secret]);
  const { userId, sessionId: operatorSession } = database.operator;
  const operator = signer.sign({ session_id: operatorSession, user_id: userId, tenant_id: null });
  if (options.starts > 0) print(await firstQueries(options.starts, start, () => stopApi(), operator));
  if (options.rounds > 0) {
    print(`Writing the facts of ${String(options.schools)} schools ...`);
    const operators = await withOwner(database.url, async (owner) => {
      await owner.query(`set synchronous_commit = off; ${facts.replace('$SCHOOLS', String(options.schools))}`);
      await owner.query('vacuum');
      const { rows } = await owner.query<{ id: string; user_id: string }>(
        `with users as (insert into platform.user_account (email, password_hash, first_name, last_name, role)
         values ('one@bench.example', '', 'Ana', 'Lyst', 'analyst'), ('two@bench.example', '', 'Ana', 'Lyst', 'analyst') returning id, email)
       insert into platform.session (user_id, email, permissions, roles, expires_at) select id, email, '{}', '{analyst}', now() + interval '1 day' from users returning id, user_id`,
      );
      return rows;
    });
    const service = await start();
    const analysts = operators.map(({ id, user_id }) =>
      signer.sign({ session_id: Number(id), user_id: Number(user_id), tenant_id: null }),
    );
    const schools = database.schools.map(({ id, sessionId }) =>
      signer.sign({ session_id: sessionId, user_id: 1, tenant_id: id }),
    );
    const upTo = (limit: number) => 1 + Math.floor(Math.random() * limit);
    const sendSchoolRequest = async () => {
      const path =
        upTo(4) > 1 ? `/api/students/${String(upTo(1000))}` : `/api/students?class_id=${String(upTo(24))}&pageSize=25`;
      return (await timedRequest(service.url, path, pick(schools))).milliseconds;
    };
    const sendSchoolRequests = (seconds: number) => sendSteadily(options.rate, seconds, sendSchoolRequest);

    const finished: { milliseconds: number; isComplete: boolean }[] = [];
    /** Keeps four analytics queries running until `signal` is aborted. */
    const runQueries = (signal: AbortSignal) =>
      Promise.all(
        [0, 1, 2, 3].map(async (place) => {
          for (let n = place; !signal.aborted; n++) {
            const { milliseconds, text } = await timedRequest(service.url, '/graphql', analysts[place % 2] ?? '', {
              query: queries[n % queries.length],
            });
            finished.push({ milliseconds, isComplete: !text.startsWith('{"errors"') });
          }
        }),
      );

    const idleMb = (await usage(service.pid)).memoryMb;
    await sendSchoolRequests(3);
    await timedRequest(service.url, '/graphql', analysts[0] ?? '', { query: '{ tenants { totalCount } }' });
    const quiet: number[][] = [];
    const busy: number[][] = [];
    for (let n = 0; n < options.rounds; n++) {
      quiet.push(await sendSchoolRequests(options.seconds));
      const stop = new AbortController();
      const running = runQueries(stop.signal);
      busy.push(await sendSchoolRequests(options.seconds));
      stop.abort();
      await running;
    }
    /** The median over all measurements of a quantile, so that a short disturbance affects only one measurement. */
    const typical = (rounds: number[][], part: number) => median(rounds.map((values) => quantile(values, part)));
    const row = (name: string, rounds: number[][]) =>
      `| ${name} | ${[0.5, 0.95, 0.99].map((part) => typical(rounds, part).toFixed(1)).join(' | ')} |`;
    const lines = [row('none', quiet), row('four at all times', busy)];
    const factor = typical(busy, 0.99) / typical(quiet, 0.99);
    print(`
${String(availableParallelism())} cores; ${String(options.schools)} schools in the mart; ${String(options.rate)} school requests per second, medians of ${String(options.rounds)} measurements of ${String(options.seconds)} s each.

| analytics queries | p50 ms | p95 ms | p99 ms |
| --- | --: | --: | --: |
${lines.join('\n')}

p99 is ${factor.toFixed(2)} times as high (aim: at most 1.5, ${factor <= 1.5 ? 'met' : 'not met'}).
${String(finished.length)} queries, ${String(finished.filter(({ isComplete }) => !isComplete).length)} of them canceled; ${(finished.reduce((sum, { milliseconds }) => sum + milliseconds, 0) / finished.length / 1000).toFixed(1)} s each, including the time in the queue.
Memory of the API process: ${idleMb.toFixed(0)} MB idle, ${(await usage(service.pid)).memoryMb.toFixed(0)} MB at the end.`);
  }
} finally {
  await stopApi();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
}
