import base from '../../jest.config.js';

const { testMatch: _, ...shared } = base;

/** Files that do not run with schools on nodes, each with its reason. */
const exceptions = {
  'api/platform-system': 'the page describes one server, here the home, which has no school and two replicas',
  'api/system-stream':
    'the same, and it starts a second service, while the servers of a Jest worker have the databases of one',
};

/** The files of `--ci`: one for each way in which a request or a job finds its server. */
const short = [
  'api/(auth|audit-logs|calendar-feeds|imports|pictures|sessions|students)',
  'attack/(api-keys|credentials|permissions)',
  'workers/(clean-up|daily-job|notification-delivery|retention)',
];
const isShort = process.argv.includes('--ci');

/** @type {import('jest').Config} */
export default {
  ...shared,
  rootDir: '../..',
  testPathIgnorePatterns: ['/node_modules/', ...Object.keys(exceptions).map((name) => `/test/${name}\\.test\\.ts$`)],
  testRegex: isShort
    ? short.map((names) => `/test/${names}\\.test\\.ts$`)
    : ['/test/(api|attack|workers)/.*\\.test\\.ts$'],
  globalSetup: '<rootDir>/test/nodes/spread-setup.ts',
  globalTeardown: '<rootDir>/test/support/server/teardown.ts',
  // Each Jest worker has three servers.
  maxWorkers: 2,
};
