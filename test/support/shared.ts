/**
 * What the files of tests share: the service and all it is made of, loaded once for each process that runs tests, as node
 * itself loads it, and not anew for each file in the sandbox that Jest makes for it. The environment of the tests hands it over.
 */
export { default as pg } from 'pg';
export { createOperator } from '../../src/database/operator.ts';
export { passwords } from '../../src/api/passwords.ts';
export { readConfig } from '../../src/config.ts';
export { resources } from '../../src/api/endpoints/index.ts';
export { migrate } from '../../src/database/migrate.ts';
export { reading } from '../../src/api/spreadsheets.ts';
export { startService } from '../../src/service.ts';
export { loadDemo } from '../../src/database/demo.ts';
export { withOwner } from '../../src/database/pool.ts';
export { client } from './client.ts';

/** Drives a browser: loaded where a test has one. */
export const playwright = () => import('playwright-core');
