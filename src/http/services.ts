import type { Request } from 'express';
import type { Logger } from 'pino';
import type { FairAnalytics } from '../analytics/process.ts';
import type { AnonymousCallers } from '../database/anonymous-callers.ts';
import type { Call } from '../database/call.ts';
import type { Tracing } from '../domain/tracing.ts';
import type { PushHost } from '../domain/push.ts';
import type { ApiKeys } from './credentials/api-keys.ts';
import type { FairPasswords } from './credentials/fair-passwords.ts';
import type { PictureAddresses } from './credentials/picture-addresses.ts';
import type { SecondFactors } from './credentials/second-factors.ts';
import type { SignedTokens } from './credentials/signed-tokens.ts';
import type { Streams } from './streams/streams.ts';
import type { Tokens } from './credentials/tokens.ts';

/** The settings that the facade, the endpoints and the pages read. */
export interface HttpSettings {
  /** The longest lifetime of an API key; 0 for no limit. */
  API_KEY_MAX_DAYS: number;
  APP_URL?: string | undefined;
  BASE_DOMAIN?: string | undefined;
  /** A body that makes no progress for this long ends with `request_timeout`, and so does one that takes this long. */
  BODY_STALL_MS: number;
  BODY_TIMEOUT_MS: number;
  CORS_ORIGINS?: string[] | undefined;
  NODE_ENV: 'development' | 'test' | 'production';
  /** Whether operators need a second factor to log in. Schools decide for their staff. */
  OPERATORS_NEED_SECOND_FACTOR: boolean;
  PUBLIC_RATE_LIMIT_PER_MINUTE: number;
  PUBLIC_URL?: string | undefined;
  RATE_LIMIT_PER_MINUTE: number;
  SCHOOL_RATE_LIMIT_PER_MINUTE: number;
  /** Number of reverse proxies in front of the service. */
  TRUST_PROXY: number;
  /** The most bodies over 64 kB that are received and processed at a time. */
  UPLOADS_AT_A_TIME: number;
  USER_RATE_LIMIT_PER_MINUTE: number;
  VAPID_PUBLIC_KEY?: string | undefined;
  WEB_PUSH_HOSTS: readonly PushHost[];
  WEBHOOK_PRIVATE_ORIGINS: readonly string[];
}

/** The dependencies of the facade; one instance per process. */
export interface Services {
  config: HttpSettings;
  /** Times of timetable generation. */
  timing: { leaseRenewMs: number; timetableQueueWaitMs: number };
  call: Call;
  /** @throws ApiError `unavailable` if the database has too many waiting requests of the caller's school */
  refuseOverload: (req: Request) => void;
  tokens: Tokens;
  apiKeys: ApiKeys;
  pictures: PictureAddresses;
  /** The owner of a refresh token is its session, that of a device token an account: `<school or 0>-<user>`. */
  refreshTokens: SignedTokens;
  deviceTokens: SignedTokens;
  anonymousCallers: AnonymousCallers;
  secondFactors: SecondFactors;
  passwords: FairPasswords;
  streams: Streams;
  analytics: FairAnalytics;
  logger: Logger;
  /** Sends a span for each request; undefined when traces are off. */
  tracing?: Tracing | undefined;
  /** Records each finished request; undefined when metrics are off. */
  observeRequest: ((method: string, pattern: string, status: number, seconds: number) => void) | undefined;
  /** Counts a finished request of a school for its usage. */
  countRequest: (school: number) => void;
  /** The checks of /api/health/ready. */
  readiness: () => Promise<Readiness>;
}

/** The state of each part of the service; docs/operations/running.md describes which parts `ready` requires. */
export interface Readiness {
  database: boolean;
  migrations: boolean;
  worker: boolean;
  /** Number of schools whose schema is older than the functions. */
  tenants_behind: number | null;
  /** Whether the last write of this process did not fail because the database cannot write. */
  writes: boolean;
}
