import base from '../../jest.config.js';

/** @type {import('jest').Config} */
export default {
  ...base,
  rootDir: '../..',
  testPathIgnorePatterns: ['/node_modules/'],
  testMatch: ['<rootDir>/test/nodes/*.test.ts'],
  globalSetup: '<rootDir>/test/nodes/setup.ts',
  globalTeardown: '<rootDir>/test/support/server/teardown.ts',
  // Each Jest worker has three servers.
  maxWorkers: 2,
  // A move starts two processes for each table, servers and programs are started and stopped, and a worker looks up the
  // nodes every 15 seconds.
  testTimeout: 150_000,
  // A file that fails while it loads leaves its service open, which would keep the run from ending.
  forceExit: true,
};
