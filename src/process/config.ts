import { createECDH, createPrivateKey, randomBytes } from 'node:crypto';
import { resolve } from 'node:path';
import { z } from 'zod';
import { defaultConnectionMb } from '../database/pool/school-pool.ts';
import { email, password } from '../http/schemas.ts';
import { samplers } from '../domain/tracing.ts';
import { browserPushHosts } from '../domain/push.ts';

// Error messages follow the name of the variable: `PORT must be …`.
const oneOf = <const T extends string[]>(...values: T) =>
  z.enum(values, { error: `must be one of ${values.join(', ')}` });
const flag = oneOf('true', 'false').transform((value) => value === 'true');
const count = (min: number, max: number) =>
  z
    .string()
    .refine((text) => /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max, {
      error: ({ input }) => `must be a whole number from ${String(min)} to ${String(max)}, not ${String(input)}`,
    })
    .transform(Number);
const postgresUrl = z.string().regex(/^postgres(ql)?:\/\//, 'must start with postgres://');
const httpUrl = z.url({ protocol: /^https?$/, error: 'must be a URL that starts with http:// or https://' });
/** Applies the rules of an API field. */
const apiField = <T>(schema: z.ZodType<T>, error: string) =>
  z
    .string()
    .refine((text) => schema.safeParse(text).success, error)
    .transform((text) => schema.parse(text));

/** Whether a string is a private RSA key in PEM format. */
function isRsaKey(pem: string): boolean {
  try {
    return createPrivateKey(pem).asymmetricKeyType === 'rsa';
  } catch {
    return false;
  }
}

/** The fields of a Google service account file that are used. */
const ServiceAccount = z.object({
  project_id: z.string().regex(/^[\w.:-]+$/),
  client_email: z.string().min(3),
  private_key: z.string().refine(isRsaKey),
  token_uri: httpUrl.default('https://oauth2.googleapis.com/token'),
});
const serviceAccountError = 'must be the JSON of a service account, with project_id, client_email and private_key';

/** Derives the VAPID public key from a private key. @returns undefined for an invalid key */
function vapidPublicKey(privateKey: string): string | undefined {
  const key = createECDH('prime256v1');
  try {
    key.setPrivateKey(privateKey, 'base64url');
  } catch {
    return undefined;
  }
  return key.getPublicKey('base64url');
}

const Environment = z.object({
  NODE_ENV: oneOf('development', 'test', 'production').default('development'),
  PORT: count(0, 65535).optional(),
  HOST: z.string().min(1).default('127.0.0.1'),
  METRICS_PORT: count(0, 65535).optional(),
  METRICS_HOST: z.string().min(1).default('127.0.0.1'),
  PUBLIC_URL: httpUrl.optional(),
  BASE_DOMAIN: z
    .string()
    .regex(/^[a-z0-9.-]+$/i, 'must be a domain name')
    .transform((name) => name.toLowerCase())
    .optional(),
  DATA_DIR: z
    .string()
    .min(1)
    .default('.data')
    .transform((path) => resolve(path)),
  DATABASE_URL: postgresUrl.optional(),
  API_DATABASE_URL: postgresUrl.optional(),
  WORKER_DATABASE_URL: postgresUrl.optional(),
  LISTEN_DATABASE_URL: z
    .string()
    .transform((text) => text.split(/\s+/))
    .pipe(z.array(postgresUrl))
    .optional(),
  WORKER_NODES: z
    .string()
    .regex(/^([a-z][a-z0-9-]*)(,[a-z][a-z0-9-]*)*$/, 'must be all, or names of nodes and home, separated by commas')
    .default('all')
    .transform((text) => (text === 'all' ? undefined : text.split(','))),
  SESSION_DATABASE_URL: postgresUrl.optional(),
  PREPARED_STATEMENTS: flag.default(true),
  DATABASE_POOL_SIZE: count(1, 200).default(10),
  DATABASE_CONNECTION_MB: count(1, 10_000).default(defaultConnectionMb),
  ANALYTICS_DATABASE_URL: postgresUrl.optional(),
  ANALYTICS_CONNECTIONS: count(1, 20).default(2),
  ANALYTICS_STATEMENT_TIMEOUT_MS: count(100, 600_000).default(5_000),
  ANALYTICS_REQUEST_TIMEOUT_MS: count(100, 600_000).default(10_000),
  MIGRATE_ON_START: flag.optional(),
  DEMO: flag.optional(),
  JWT_SECRETS: z
    .string()
    .transform((text) => text.split(',').map((secret) => secret.trim()))
    .pipe(z.array(z.string().min(32, 'must contain secrets of 32 or more characters each')).min(1))
    .optional(),
  OPERATORS_NEED_SECOND_FACTOR: flag.default(false),
  PLATFORM_ADMIN_EMAIL: apiField(email, 'must be an email address').optional(),
  PLATFORM_ADMIN_PASSWORD: apiField(password, 'must have 8 to 200 characters and no control characters').optional(),
  SMTP_URL: z
    .string()
    .regex(/^smtps?:\/\//, 'must start with smtp:// or smtps://')
    .optional(),
  EMAIL_FROM: z
    .string()
    .min(3, 'must be an email address, with or without a display name')
    .default('School management <no-reply@localhost>'),
  PASSWORD_PAGE_URL: httpUrl.optional(),
  APP_URL: httpUrl.optional(),
  FCM_CREDENTIALS: z
    .string()
    .transform((text, context) => {
      try {
        return JSON.parse(text) as unknown;
      } catch {
        context.addIssue({ code: 'custom', message: serviceAccountError });
        return z.NEVER;
      }
    })
    .refine((json) => ServiceAccount.safeParse(json).success, serviceAccountError)
    .transform((json) => ServiceAccount.parse(json))
    .optional(),
  FCM_URL: httpUrl.default('https://fcm.googleapis.com'),
  VAPID_PUBLIC_KEY: z.string().optional(),
  VAPID_PRIVATE_KEY: z
    .string()
    .refine(
      (key) => Buffer.from(key, 'base64url').length === 32 && vapidPublicKey(key) !== undefined,
      'must be a VAPID private key: 32 bytes in base64url',
    )
    .optional(),
  VAPID_SUBJECT: z
    .string()
    .regex(/^(mailto:\S+@\S+|https:\/\/\S+)$/, 'must start with mailto: or https://')
    .optional(),
  WEB_PUSH_HOSTS: z
    .string()
    .transform((text) => text.split(',').map((host) => host.trim().toLowerCase()))
    .pipe(
      z.array(
        z
          .string()
          .refine(
            (host) =>
              /^(\*\.)?([a-z0-9-]+\.)*[a-z0-9-]*[a-z][a-z0-9-]*$/.test(host) ||
              (/^https?:\/\//.test(host) && URL.parse(host)?.origin === host),
            'must be comma-separated hosts (push.example.org, *.example.org) or origins (https://10.0.0.1:8443)',
          ),
      ),
    )
    .default(browserPushHosts),
  WEBHOOK_PRIVATE_ORIGINS: z
    .string()
    .transform((text) => text.split(',').map((origin) => origin.trim().toLowerCase()))
    .pipe(
      z.array(
        z
          .string()
          .refine(
            (origin) => /^https?:\/\//.test(origin) && URL.parse(origin)?.origin === origin,
            'must be comma-separated origins (https://10.0.0.1:8443)',
          ),
      ),
    )
    .default([]),
  CORS_ORIGINS: z
    .string()
    .transform((text) => text.split(',').map((origin) => origin.trim()))
    .pipe(z.array(httpUrl))
    .optional(),
  TRUST_PROXY: count(0, 10).default(0),
  RATE_LIMIT_PER_MINUTE: count(0, 1_000_000).default(600),
  USER_RATE_LIMIT_PER_MINUTE: count(0, 1_000_000).default(1_200),
  SCHOOL_RATE_LIMIT_PER_MINUTE: count(0, 10_000_000).default(30_000),
  PUBLIC_RATE_LIMIT_PER_MINUTE: count(0, 1_000_000).default(120),
  API_KEY_MAX_DAYS: count(0, 3650).default(0),
  UPLOADS_AT_A_TIME: count(1, 1000).default(8),
  BODY_TIMEOUT_MS: count(100, 3_600_000).default(120_000),
  BODY_STALL_MS: count(50, 600_000).default(10_000),
  STREAMS_AT_A_TIME: count(1, 100_000).default(10_000),
  STREAM_HEARTBEAT_MS: count(50, 300_000).default(25_000),
  WORKER_CONCURRENCY: count(1, 100).default(4),
  WORKER_CRASH_CHECK_MS: count(50, 60_000).default(5_000),
  WEBHOOK_TIMEOUT_MS: count(100, 60_000).default(10_000),
  TENANT_RETENTION_DAYS: count(1, 3650).default(30),
  EXPORT_RETENTION_DAYS: count(1, 36_500).default(730),
  OUTBOX_RETENTION_DAYS: count(1, 3650).default(30),
  // The defaults of the retention of rows are in db/core/lifetimes.sql.
  SESSION_RETENTION_DAYS: count(1, 3650).optional(),
  AUDIT_RETENTION_DAYS: count(30, 36_500).optional(),
  // The analytics facts of the last 60 days are read from these rows.
  DELIVERY_RETENTION_DAYS: count(60, 3650).optional(),
  NOTIFICATION_RETENTION_DAYS: count(60, 3650).optional(),
  IDEMPOTENCY_KEY_RETENTION_HOURS: count(24, 8760).optional(),
  FAILED_JOB_RETENTION_DAYS: count(1, 3650).optional(),
  // The page Usage shows the last twelve months.
  USAGE_RETENTION_DAYS: count(400, 36_500).optional(),
  CLOSED_SCHOOL_WAIT_MS: count(0, 60_000).default(2_500),
  SLOW_STATEMENT_MS: count(0, 60_000).default(1_000),
  BUSY_SCHOOL_CALLS_PER_MINUTE: count(0, 10_000_000).default(1_000),
  OTEL_SDK_DISABLED: flag.default(false),
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl.optional(),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: httpUrl.optional(),
  OTEL_SERVICE_NAME: z.string().min(1).default('school-management-service'),
  OTEL_TRACES_SAMPLER: oneOf(...samplers).default('parentbased_always_on'),
  OTEL_TRACES_SAMPLER_ARG: z
    .string()
    .transform(Number)
    .refine((ratio) => ratio >= 0 && ratio <= 1, 'must be a number from 0 to 1')
    .default(1),
  LOG_LEVEL: oneOf('silent', 'error', 'warn', 'info', 'debug').default('info'),
});

/** The settings of one process, documented in `.env.example`. */
export type Config = ReturnType<typeof settings>;

/** Thrown when environment variables are invalid; `problems` has one line per invalid variable. */
export class ConfigError extends Error {
  readonly problems: string[];
  constructor(problems: string[]) {
    super(problems.join('\n'));
    this.problems = problems;
  }
}

function settings(env: z.output<typeof Environment>) {
  const isProduction = env.NODE_ENV === 'production';
  return {
    ...env,
    isProduction,
    /** The first secret signs, all verify. Without JWT_SECRETS a development process generates one. */
    jwtSecrets: env.JWT_SECRETS ?? [randomBytes(32).toString('hex')],
    /** Where spans go; undefined when traces are off. */
    tracesUrl: env.OTEL_SDK_DISABLED
      ? undefined
      : (env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ??
        (env.OTEL_EXPORTER_OTLP_ENDPOINT && `${env.OTEL_EXPORTER_OTLP_ENDPOINT.replace(/\/$/, '')}/v1/traces`)),
    migrateOnStart: env.MIGRATE_ON_START ?? !isProduction,
  };
}

/**
 * Parses the environment. Called once, at startup.
 * @throws ConfigError with one line per invalid or missing variable
 */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  const variables = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
  const parsed = Environment.safeParse(variables);
  const problems = parsed.success
    ? []
    : [...new Set(parsed.error.issues.map((issue) => `${String(issue.path[0])} ${issue.message}`))];
  if (variables['NODE_ENV'] === 'production') {
    for (const name of ['DATABASE_URL', 'JWT_SECRETS', 'PUBLIC_URL']) {
      if (!variables[name]) problems.push(`${name} is required in production`);
    }
    if (variables['DEMO'] === 'true')
      problems.push('DEMO must not be true in production, where the demo school is never loaded');
  }
  const { METRICS_PORT, PORT } = variables;
  if (METRICS_PORT !== undefined && Number(METRICS_PORT) === Number(PORT) && Number(PORT) !== 0)
    problems.push('METRICS_PORT must differ from PORT');
  if (Boolean(variables['PLATFORM_ADMIN_EMAIL']) !== Boolean(variables['PLATFORM_ADMIN_PASSWORD'])) {
    problems.push('PLATFORM_ADMIN_EMAIL and PLATFORM_ADMIN_PASSWORD must be set together');
  }
  const vapid = ['VAPID_PUBLIC_KEY', 'VAPID_PRIVATE_KEY', 'VAPID_SUBJECT'];
  if (new Set(vapid.map((name) => variables[name] === undefined)).size > 1)
    problems.push('VAPID_PUBLIC_KEY, VAPID_PRIVATE_KEY and VAPID_SUBJECT must be set together');
  else if (
    parsed.success &&
    parsed.data.VAPID_PRIVATE_KEY &&
    vapidPublicKey(parsed.data.VAPID_PRIVATE_KEY) !== parsed.data.VAPID_PUBLIC_KEY
  ) {
    problems.push('VAPID_PUBLIC_KEY does not match VAPID_PRIVATE_KEY');
  }
  if (variables['NODE_ENV'] === 'production' && parsed.data?.WEB_PUSH_HOSTS.some((host) => host.startsWith('http:'))) {
    problems.push('WEB_PUSH_HOSTS must not contain http:// origins in production');
  }
  if (
    variables['NODE_ENV'] === 'production' &&
    parsed.data?.WEBHOOK_PRIVATE_ORIGINS.some((origin) => origin.startsWith('http:'))
  ) {
    problems.push('WEBHOOK_PRIVATE_ORIGINS must not contain http:// origins in production');
  }
  if (!parsed.success || problems.length > 0) throw new ConfigError(problems);
  return settings(parsed.data);
}
