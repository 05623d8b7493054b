import base from '../../jest.config.js';

/** Files that do not run with schools on nodes, each with its reason. */
const exceptions = {
  'api/platform-system': 'the page describes one server, here the home, which has no school and two replicas',
  'api/system-stream':
    'the same, and it starts a second service, while the servers of a Jest worker have the databases of one',
};

/** @type {import('jest').Config} */
export default {
  ...base,
  rootDir: '../..',
  testPathIgnorePatterns: ['/node_modules/', ...Object.keys(exceptions).map((name) => `/test/${name}\\.test\\.ts$`)],
  testMatch: ['<rootDir>/test/(api|attack|workers)/**/*.test.ts'],
  globalSetup: '<rootDir>/test/nodes/spread-setup.ts',
  globalTeardown: '<rootDir>/test/support/server/teardown.ts',
  // Each Jest worker has three servers.
  maxWorkers: 2,
};
