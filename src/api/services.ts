import type { Logger } from 'pino';
import type { Analytics } from '../analytics/process.ts';
import type { Config } from '../config.ts';
import type { Call } from '../database/call.ts';
import type { Metrics } from '../metrics.ts';
import type { Passwords } from './passwords.ts';
import type { Streams } from './streams.ts';
import type { Tokens } from './tokens.ts';

/** What the facade is made of; one per process. */
export interface Services {
  config: Config;
  call: Call;
  tokens: Tokens;
  passwords: Passwords;
  streams: Streams;
  analytics: Analytics;
  logger: Logger;
  /** Hears of each request that was answered; undefined where nobody counts. */
  observeRequest: Metrics['observeRequest'] | undefined;
  /** What /api/health/ready says. */
  readiness: () => Promise<Readiness>;
}

/** Whether each part is fit to serve. */
export interface Readiness {
  database: boolean;
  migrations: boolean;
  worker: boolean;
  /** Schools whose schema is older than the functions. */
  tenants_behind: number | null;
}
