/**
 * The modules of the service that tests use, available to them as the global `shared` (see environment.mts). Node loads
 * them once per test process. An import in a test file would load them again for each file.
 */
export { default as pg } from 'pg';
export { addNode } from '../../../src/servers/nodes/join.ts';
export { createForwarder } from '../../../src/servers/forwarder.ts';
export { createOperator } from '../../../src/database/operator.ts';
export { passwords } from '../../../src/domain/passwords.ts';
export { ConfigError, readConfig } from '../../../src/process/config.ts';
export { resources } from '../../../src/endpoints/index.ts';
export { migrate } from '../../../src/database/migrate/migrate.ts';
export { readOptions } from '../../../src/documents/spreadsheets.ts';
export { jobLimit } from '../../../workers/tasks/deliver_webhooks.ts';
export { startService } from '../../../src/process/service.ts';
export { loadDemo } from '../../../src/process/demo.ts';
export { withOptions, withOwner } from '../../../src/database/pool/pool.ts';
export { pino } from 'pino';
export { client } from '../client/client.ts';
export { observed } from '../client/observed.ts';
export { closeIdleConnections } from '../client/connections.ts';

/** Drives a browser. Loaded on demand, since few files need it. */
export const playwright = () => import('playwright-core');
