import type { Logger } from 'pino';
import type { Analytics } from '../analytics/process.ts';
import type { Call } from '../database/call.ts';
import type { PushHost } from '../domain/push.ts';
import type { Passwords } from '../domain/passwords.ts';
import type { Streams } from './streams.ts';
import type { Tokens } from './tokens.ts';

/** The settings that the HTTP mechanism, the endpoints and the served pages read. */
export interface HttpSettings {
  APP_URL?: string | undefined;
  BASE_DOMAIN?: string | undefined;
  CORS_ORIGINS?: string[] | undefined;
  PUBLIC_RATE_LIMIT_PER_MINUTE: number;
  PUBLIC_URL?: string | undefined;
  RATE_LIMIT_PER_MINUTE: number;
  /** How many proxies stand in front. */
  TRUST_PROXY: number;
  VAPID_PUBLIC_KEY?: string | undefined;
  WEB_PUSH_HOSTS: readonly PushHost[];
}

/** What the facade is made of; one per process. */
export interface Services {
  config: HttpSettings;
  call: Call;
  tokens: Tokens;
  passwords: Passwords;
  streams: Streams;
  analytics: Analytics;
  logger: Logger;
  /** Hears of each request that was answered; undefined where nobody counts. */
  observeRequest: ((method: string, pattern: string, status: number, seconds: number) => void) | undefined;
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
