import { createSecretKey } from 'node:crypto';
import jwt from 'jsonwebtoken';
import { z } from 'zod';
import { ApiError } from './errors.ts';

/** How long an access token is valid, in seconds. */
export const accessTokenSeconds = 15 * 60;

const issuer = 'school-management-service';
const audience = 'school-management-api';

const Claims = z.object({
  user_id: z.int().positive(),
  tenant_id: z.int().positive().optional(),
  is_platform_admin: z.literal(true).optional(),
  sid: z.int().positive(),
});

/** What an access token says: a user of a school, or an operator, and their session. */
export type Claims = z.infer<typeof Claims>;

/** Signing and verifying access tokens. */
export interface Tokens {
  sign(session: { session_id: number; user_id: number; tenant_id: number | null }): string;
  /** @throws ApiError unauthenticated without a token, invalid_token for one that is not ours or has expired */
  verify(authorization: string | undefined): Claims;
}

/** @param secrets  the first signs, each verifies, so that keys can rotate */
export function tokens(secrets: readonly string[]): Tokens {
  // As key objects, made once: of a string jsonwebtoken would try to make a public key at every request.
  const keys = secrets.map((secret) => createSecretKey(secret, 'utf8'));
  const [signing] = keys;
  if (!signing) throw new Error('There is no secret to sign tokens with.');
  return {
    sign({ session_id, user_id, tenant_id }) {
      const claims: Claims = { user_id, sid: session_id, ...(tenant_id === null ? { is_platform_admin: true } : { tenant_id }) };
      return jwt.sign(claims, signing, { algorithm: 'HS256', expiresIn: accessTokenSeconds, issuer, audience });
    },
    verify(authorization) {
      if (!authorization) throw new ApiError('unauthenticated', 'Send an access token: Authorization: Bearer <token>.');
      const token = /^Bearer +(\S+)$/i.exec(authorization)?.[1] ?? '';
      for (const key of keys) {
        try {
          return Claims.parse(jwt.verify(token, key, { algorithms: ['HS256'], issuer, audience }));
        } catch {
          // The next key may fit.
        }
      }
      throw new ApiError('invalid_token', 'The access token is not valid or has expired. Refresh it or log in again.');
    },
  };
}
