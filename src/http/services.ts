import type { Logger } from 'pino';
import type { Analytics } from '../analytics/process.ts';
import type { Call } from '../database/call.ts';
import type { PushHost } from '../domain/push.ts';
import type { Passwords } from '../domain/passwords.ts';
import type { PictureAddresses } from './picture-addresses.ts';
import type { Streams } from './streams.ts';
import type { Tokens } from './tokens.ts';

/** The settings that the facade, the endpoints and the pages read. */
export interface HttpSettings {
  APP_URL?: string | undefined;
  BASE_DOMAIN?: string | undefined;
  CORS_ORIGINS?: string[] | undefined;
  LEASE_RENEW_MS: number;
  PUBLIC_RATE_LIMIT_PER_MINUTE: number;
  PUBLIC_URL?: string | undefined;
  RATE_LIMIT_PER_MINUTE: number;
  TIMETABLE_QUEUE_WAIT_MS: number;
  /** Number of reverse proxies in front of the service. */
  TRUST_PROXY: number;
  VAPID_PUBLIC_KEY?: string | undefined;
  WEB_PUSH_HOSTS: readonly PushHost[];
}

/** The dependencies of the facade; one instance per process. */
export interface Services {
  config: HttpSettings;
  call: Call;
  tokens: Tokens;
  pictures: PictureAddresses;
  passwords: Passwords;
  streams: Streams;
  analytics: Analytics;
  logger: Logger;
  /** Records each finished request; undefined when metrics are off. */
  observeRequest: ((method: string, pattern: string, status: number, seconds: number) => void) | undefined;
  /** The checks of /api/health/ready. */
  readiness: () => Promise<Readiness>;
}

/** The state of each part of the service; docs/operations.md describes which parts `ready` requires. */
export interface Readiness {
  database: boolean;
  migrations: boolean;
  worker: boolean;
  /** Number of schools whose schema is older than the functions. */
  tenants_behind: number | null;
}
