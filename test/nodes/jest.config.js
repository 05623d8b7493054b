import base from '../../jest.config.js';

/** @type {import('jest').Config} */
export default {
  ...base,
  rootDir: '../..',
  testPathIgnorePatterns: ['/node_modules/'],
  testMatch: ['<rootDir>/test/nodes/*.test.ts'],
  globalSetup: '<rootDir>/test/nodes/setup.ts',
  globalTeardown: '<rootDir>/test/nodes/teardown.ts',
};
