import { randomBytes } from 'node:crypto';
import { resolve } from 'node:path';
import { z } from 'zod';
import { email, password } from './api/schemas.ts';

// The errors go on from the name of the variable: `PORT must be …`.
const oneOf = <const T extends string[]>(...values: T) => z.enum(values, { error: `must be one of ${values.join(', ')}` });
const flag = oneOf('true', 'false').transform((value) => value === 'true');
const count = (min: number, max: number) =>
  z
    .string()
    .refine((text) => /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max, {
      error: ({ input }) => `must be a whole number from ${String(min)} to ${String(max)}, not ${String(input)}`,
    })
    .transform(Number);
const postgresUrl = z.string().regex(/^postgres(ql)?:\/\//, 'must begin with postgres://');
const httpUrl = z.url({ protocol: /^https?$/, error: 'must be an http:// or https:// address' });
/** What a field of the API takes. */
const asInApi = <T>(schema: z.ZodType<T>, error: string) =>
  z
    .string()
    .refine((text) => schema.safeParse(text).success, error)
    .transform((text) => schema.parse(text));

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
  LISTEN_DATABASE_URL: postgresUrl.optional(),
  DATABASE_POOL_SIZE: count(1, 200).default(10),
  MIGRATE_ON_START: flag.optional(),
  DEMO: flag.optional(),
  JWT_SECRETS: z
    .string()
    .transform((text) => text.split(',').map((secret) => secret.trim()))
    .pipe(z.array(z.string().min(32, 'must have 32 characters or more in each secret')).min(1))
    .optional(),
  PLATFORM_ADMIN_EMAIL: asInApi(email, 'must be an e-mail address').optional(),
  PLATFORM_ADMIN_PASSWORD: asInApi(password, 'must have 8 to 200 characters, and no control characters').optional(),
  SMTP_URL: z
    .string()
    .regex(/^smtps?:\/\//, 'must begin with smtp:// or smtps://')
    .optional(),
  EMAIL_FROM: z.string().min(3, 'must be an e-mail address, with a name or without').default('School management <no-reply@localhost>'),
  PASSWORD_PAGE_URL: httpUrl.optional(),
  CORS_ORIGINS: z
    .string()
    .transform((text) => text.split(',').map((origin) => origin.trim()))
    .pipe(z.array(httpUrl))
    .optional(),
  TRUST_PROXY: count(0, 10).default(0),
  RATE_LIMIT_PER_MINUTE: count(0, 1_000_000).default(600),
  PUBLIC_RATE_LIMIT_PER_MINUTE: count(0, 1_000_000).default(120),
  STREAM_HEARTBEAT_MS: count(50, 300_000).default(25_000),
  WORKER_CONCURRENCY: count(1, 100).default(4),
  TENANT_RETENTION_DAYS: count(1, 3650).default(30),
  LOG_LEVEL: oneOf('silent', 'error', 'warn', 'info', 'debug').default('info'),
});

/** The settings of one process, see `.env.example`. */
export type Config = ReturnType<typeof settings>;

/** Thrown for an unusable environment; `problems` has one readable line per variable at fault. */
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
    /** Signs with the first, verifies with all. Without JWT_SECRETS a development process makes one up. */
    jwtSecrets: env.JWT_SECRETS ?? [randomBytes(32).toString('hex')],
    migrateOnStart: env.MIGRATE_ON_START ?? !isProduction,
  };
}

/**
 * Parses the environment, once, at the start.
 * @throws ConfigError with one line per variable that is wrong or missing
 */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
  const parsed = Environment.safeParse(given);
  const problems = parsed.success ? [] : [...new Set(parsed.error.issues.map((issue) => `${String(issue.path[0])} ${issue.message}`))];
  if (given['NODE_ENV'] === 'production') {
    for (const name of ['DATABASE_URL', 'JWT_SECRETS', 'PUBLIC_URL']) {
      if (!given[name]) problems.push(`${name} is needed in production`);
    }
    if (given['DEMO'] === 'true') problems.push('DEMO must not be true in production: a production service never loads the demo school');
  }
  const { METRICS_PORT, PORT } = given;
  if (METRICS_PORT !== undefined && Number(METRICS_PORT) === Number(PORT) && Number(PORT) !== 0) problems.push('METRICS_PORT must be another port than PORT');
  if (Boolean(given['PLATFORM_ADMIN_EMAIL']) !== Boolean(given['PLATFORM_ADMIN_PASSWORD'])) {
    problems.push('PLATFORM_ADMIN_EMAIL goes together with PLATFORM_ADMIN_PASSWORD');
  }
  if (!parsed.success || problems.length > 0) throw new ConfigError(problems);
  return settings(parsed.data);
}
