/** @type {import('jest').Config} */
export default {
  testEnvironment: '<rootDir>/test/support/server/environment.mts',
  testMatch: ['<rootDir>/test/**/*.test.ts'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      {
        jsc: { parser: { syntax: 'typescript' }, target: 'es2024', experimental: { keepImportAttributes: true } },
        module: { type: 'es6' },
      },
    ],
  },
  globalSetup: '<rootDir>/test/support/server/setup.ts',
  globalTeardown: '<rootDir>/test/support/server/teardown.ts',
  testTimeout: 60_000,
  maxWorkers: 2,
  openHandlesTimeout: 0,
};
