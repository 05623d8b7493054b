// Data: what CI and the matrix run. test/README.md says what each part covers, and which change needs it.
import type { Step } from './step.ts';

const npm = (script: string, ...args: string[]) => ['npm', 'run', '--silent', script, '--', ...args];
const postgres = (version: string, ...options: string[]) =>
  npm('test:postgres', ...options, '--versions', version, '--');

/** The files of CI with schools on two nodes (and on Postgres 15, which has PL/Proxy). */
const shortNodes = [
  'test/api/auth.test.ts',
  'test/api/students.test.ts',
  'test/api/audit-logs.test.ts',
  'test/attack/credentials.test.ts',
  'test/workers/notification-delivery.test.ts',
];
/** The files of CI behind PgBouncer. */
const shortPooler = [
  'test/api/sessions.test.ts',
  'test/api/exports.test.ts',
  'test/api/notification-stream.test.ts',
  'test/workers/job-concurrency.test.ts',
];
/** The files of CI on Postgres 15. */
const shortPostgres = [
  'test/specification/first-year.test.ts',
  'test/db/grants.test.ts',
  'test/db/record-queries.test.ts',
  // Postgres 15 gets updates from Debian before the embedded server does, which can change plans.
  'test/db/list-indexes.test.ts',
  'test/workers/daily-job.test.ts',
];

/** What CI runs, besides the installation. */
export const ciSteps: Step[] = [
  { name: 'check', command: npm('check') },
  { name: 'size', command: ['node', 'packaging/size.ts'] },
  { name: 'conformance', command: npm('test:conformance') },
  { name: 'tests', command: npm('test'), files: [] },
  { name: 'programs', command: npm('test'), files: ['test/programs', 'test/console'] },
  { name: 'nodes', command: npm('test:nodes'), files: shortNodes },
  { name: 'pgbouncer', command: npm('test:pgbouncer'), files: shortPooler },
  { name: 'postgres-15', command: postgres('15'), files: shortPostgres },
];

/** The packages of Debian that CI needs. */
export const ciPackages = ['chromium', 'pgbouncer', 'postgresql-15', 'postgresql-15-plproxy'];

/** The files that run on every version of Postgres. */
const onPostgres = ['test/db', 'test/api', 'test/attack', 'test/specification', 'test/workers', 'test/analytics'];

/** What only the matrix runs, the shortest first. */
export const matrixParts: Step[] = [
  { name: 'vulnerabilities', command: ['node', 'packaging/vulnerabilities.ts'] },
  { name: 'recovery', command: npm('test:recovery') },
  { name: 'failover', command: npm('test:failover') },
  // Whether what the benchmark compares with still answers the same as the service, not how fast.
  {
    name: 'bench',
    command: npm(
      'bench',
      ...['--only', 'get,list,search,dashboard,create,mark,payment'],
      ...['--tenants', '1', '--students', '50', '--seconds', '1', '--rounds', '1'],
    ),
  },
  { name: 'package', command: npm('test:package') },
  { name: 'firefox', command: npm('test'), files: ['test/console/keyboard'], env: { TEST_BROWSER: 'firefox' } },
  { name: 'upgrade', command: npm('test:upgrade', '--seconds', '300') },
  {
    name: 'pgbouncer',
    command: npm('test:pgbouncer'),
    files: ['test/api', 'test/workers', 'test/programs/worker-crash-recovery.test.ts'],
  },
  { name: 'postgres-15', command: postgres('15'), files: onPostgres },
  { name: 'postgres-16', command: postgres('16', '--install'), files: onPostgres },
  { name: 'postgres-17', command: postgres('17', '--install'), files: onPostgres },
  // On Postgres 18, which the service contains.
  { name: 'full', command: npm('test'), files: [], env: { FULL: '1' } },
  {
    name: 'newcomer',
    command: npm('test'),
    files: ['test/programs/adding-a-resource.test.ts', 'test/programs/migrations.test.ts'],
    env: { FULL: '1' },
  },
  { name: 'nodes', command: npm('test:nodes'), files: ['test/nodes'] },
  { name: 'spread', command: npm('test:nodes'), files: ['test/api', 'test/attack', 'test/workers'] },
  { name: 'chaos', command: npm('test:chaos', '--minutes', '10') },
  { name: 'chaos-nodes', command: npm('test:chaos', '--minutes', '10', '--nodes', '1') },
];

/** The packages of Debian that the matrix needs. */
export const matrixPackages = ['chromium', 'firefox-esr', 'pgbouncer', 'postgresql-15', 'postgresql-15-plproxy'];
