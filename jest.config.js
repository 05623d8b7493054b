// How the suite is organized: test/README.md.
/** @type {import('jest').Config} */
export default {
  testEnvironment: '<rootDir>/test/support/server/environment.mts',
  testMatch: ['<rootDir>/test/**/*.test.ts'],
  extensionsToTreatAsEsm: ['.ts'],
  // Only strips types: test files are ES modules, as the service is.
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      {
        jsc: { parser: { syntax: 'typescript' }, target: 'es2024', experimental: { keepImportAttributes: true } },
        module: { type: 'es6' },
      },
    ],
  },
  // One Postgres server per run.
  globalSetup: '<rootDir>/test/support/server/setup.ts',
  globalTeardown: '<rootDir>/test/support/server/teardown.ts',
  testTimeout: 60_000,
  // Three files at a time on two processors, because many tests wait for a process, a timer or the network.
  maxWorkers: 3,
  // Report connections and timers that a file leaves open at once.
  openHandlesTimeout: 0,
};
