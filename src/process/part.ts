import { join } from 'node:path';
import type { Logger } from 'pino';
import { type Analytics, analyticsProcess } from '../analytics/process.ts';
import type { Tracing } from '../domain/tracing.ts';
import type { Config } from './config.ts';
import type { Metrics } from './metrics.ts';
import type { Timing } from './timing.ts';

/** The analytics process of the API or the worker. It starts when it is needed. */
export const startAnalytics = (config: Config, ownerUrl: string, logger: Logger): Analytics =>
  analyticsProcess({
    url: config.ANALYTICS_DATABASE_URL ?? ownerUrl,
    isOwnLogIn: config.ANALYTICS_DATABASE_URL !== undefined,
    connections: config.ANALYTICS_CONNECTIONS,
    timeouts: {
      statementTimeoutMs: config.ANALYTICS_STATEMENT_TIMEOUT_MS,
      requestTimeoutMs: config.ANALYTICS_REQUEST_TIMEOUT_MS,
    },
    logger,
    compileCache: join(config.DATA_DIR, 'compile-cache'),
  });

/** What every part of the service needs. */
export interface PartOptions {
  config: Config;
  timing: Timing;
  logger: Logger;
  metrics: Metrics | undefined;
  tracing: Tracing | undefined;
}
