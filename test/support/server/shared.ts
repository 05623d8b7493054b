/**
 * What the files of tests share: the service and all it is made of, loaded once for each process that runs tests, as node
 * itself loads it, and not anew for each file in the sandbox that Jest makes for it. The environment of the tests hands it over.
 */
export { default as pg } from 'pg';
export { createOperator } from '../../../src/database/operator.ts';
export { passwords } from '../../../src/domain/passwords.ts';
export { readConfig } from '../../../src/process/config.ts';
export { resources } from '../../../src/endpoints/index.ts';
export { migrate } from '../../../src/database/migrate.ts';
export { readOptions } from '../../../src/documents/spreadsheets.ts';
export { startService } from '../../../src/process/service.ts';
export { loadDemo } from '../../../src/process/demo.ts';
export { withOwner } from '../../../src/database/pool.ts';
export { client } from '../client/client.ts';

/** Drives a browser: loaded where a test has one. */
export const playwright = () => import('playwright-core');
