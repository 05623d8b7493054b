import { z } from 'zod';
import { generateApiKey } from '../../http/credentials/api-keys.ts';
import type { Endpoint, Handler } from '../../http/endpoint.ts';
import { id, moment, nameText, timestamp, timestamps } from '../../http/schemas.ts';

// What the API keys of schools and those of the platform have in common.

/** The fields of a request. */
export const keyFields = {
  name: nameText(100).meta({ description: 'What the key is for.', examples: ['Payroll'] }),
  expires_at: moment.nullish().meta({
    description: 'When the key stops working; null for never. The service may require an expiry.',
    examples: ['2099-12-31T00:00:00Z'],
  }),
};

/** The fields of a stored key. */
export const keyAnswer = {
  id,
  name: z.string(),
  prefix: z.string().meta({ description: 'The beginning of the key.', examples: ['sk_3_x7Bq'] }),
  user_id: id.meta({ description: 'The user who made the key, and for whom it acts.' }),
  user_email: z.string(),
  expires_at: timestamp.nullable(),
  last_used_at: timestamp.nullable().meta({ description: 'The last request that succeeded, to the minute.' }),
  ...timestamps,
};

/** The key itself, in the response to its creation. */
export const newKey = z
  .string()
  .nullable()
  .meta({
    description:
      'Send it as `Authorization: Bearer <key>`. It is shown only in this response; null in the response to a ' +
      'repeated Idempotency-Key.',
    examples: ['sk_3_x7BqYy0Ew3Wm5sWq1mP8kq4dG2nT6rZ9vL0aBcDeFgH1f0a9c2b'],
  });

/** Makes a key. The database receives only its hash, as for calendar feeds. */
export const createKey =
  (operation: string): Handler =>
  async ({ req, params, call }) => {
    // An API key has no claims. The operations refuse keys, and those of schools refuse operators.
    const { key, ...stored } = generateApiKey(req.claims?.tenant_id ?? 'platform');
    const { key_hash, ...answer } = JSON.parse(await call(operation, { ...params, ...stored })) as {
      key_hash: string;
    };
    return JSON.stringify({ ...answer, key: key_hash === stored.key_hash ? key : null });
  };

export const addMaxDays: NonNullable<Endpoint['resolve']> = (params, { config }) =>
  config.API_KEY_MAX_DAYS > 0 ? { ...params, max_days: config.API_KEY_MAX_DAYS } : params;
