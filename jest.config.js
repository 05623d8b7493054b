// How the suite is organized: test/README.md.

/** Tests that start programs, Postgres servers or browsers. `npm run test:programs` runs them. */
const programs = ['<rootDir>/test/(programs|console|chaos)/'];
/** If files are named (`npm test -- test/console`), they run even if they start programs. */
const areFilesNamed = process.argv.slice(2).some((argument) => argument.startsWith('test'));

/** @type {import('jest').Config} */
export default {
  testEnvironment: '<rootDir>/test/support/server/environment.mts',
  // Jest reads the names of all files below its roots at the start; a benchmark's database has a million.
  roots: ['<rootDir>/test'],
  // Not in TMPDIR, which is another one in each run.
  cacheDirectory: '<rootDir>/node_modules/.cache/jest',
  // Jest indexes all files below its roots.
  modulePathIgnorePatterns: ['<rootDir>/test/conformance/node_modules'],
  testMatch: ['<rootDir>/test/**/*.test.ts'],
  // Several servers are needed for test/nodes: npm run test:nodes.
  testPathIgnorePatterns: ['<rootDir>/test/nodes/', ...(areFilesNamed ? [] : programs)],
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
  // A test that waits in vain fails earlier, and says what it waited for (support/client/until.ts).
  testTimeout: 180_000,
  // Three files at a time on two processors, because many tests wait for a process, a timer or the network.
  maxWorkers: 3,
  // A larger process starts anew: collecting its garbage would block it for longer than Jest waits for its end.
  workerIdleMemoryLimit: '600MB',
  // Report connections and timers that a file leaves open at once.
  openHandlesTimeout: 0,
};
