import { createSecretKey } from 'node:crypto';
import jwt from 'jsonwebtoken';
import { z } from 'zod';
import { ApiError } from '../domain/errors.ts';

/** How long an access token is valid, in seconds. */
export const accessTokenSeconds = 15 * 60;

const issuer = 'school-management-service';
const audience = 'school-management-api';

/** A client sends one token many times: so many of the latest are kept with what they said, until they expire. */
const maxRemembered = 2_000;

const Claims = z.object({
  user_id: z.int().positive(),
  tenant_id: z.int().positive().optional(),
  is_platform_admin: z.literal(true).optional(),
  sid: z.int().positive(),
  impersonated_by: z.object({ id: z.int().positive(), email: z.string() }).optional(),
});

/** When a token ends, in seconds since 1970: a token without an end is none of ours. */
const Expiry = z.object({ exp: z.int().positive() });

/** What an access token says: a user of a school, or an operator, and their session; with impersonated_by an operator who acts for the user. */
export type Claims = z.infer<typeof Claims>;

/** Signing and verifying access tokens. */
export interface Tokens {
  /** @param expiresAt  when the session ends, where that is before a token does; ISO 8601 */
  sign(
    session: {
      session_id: number;
      user_id: number;
      tenant_id: number | null;
      impersonated_by?: Claims['impersonated_by'];
    },
    expiresAt?: string,
  ): string;
  /** @throws ApiError unauthenticated without a token, invalid_token for one that is not ours or has expired */
  verify(authorization: string | undefined): Claims;
}

/** @param secrets  the first signs, each verifies, so that keys can rotate */
export function tokens(secrets: readonly string[]): Tokens {
  // As key objects, made once: of a string jsonwebtoken would try to make a public key at every request.
  const keys = secrets.map((secret) => createSecretKey(secret, 'utf8'));
  const [signing] = keys;
  if (!signing) throw new Error('There is no secret to sign tokens with.');
  const remembered = new Map<string, { claims: Claims; expiresAt: number }>();
  function remember(token: string, claims: Claims, expiresAt: number): Claims {
    const [oldest] = remembered.keys();
    if (oldest !== undefined && remembered.size >= maxRemembered) remembered.delete(oldest);
    remembered.set(token, { claims, expiresAt });
    return claims;
  }
  return {
    sign({ session_id, user_id, tenant_id, impersonated_by }, expiresAt) {
      const claims: Claims = {
        ...{ user_id, sid: session_id },
        ...(tenant_id === null ? { is_platform_admin: true } : { tenant_id }),
        ...(impersonated_by ? { impersonated_by } : {}),
      };
      const seconds =
        expiresAt === undefined ? accessTokenSeconds : Math.ceil((Date.parse(expiresAt) - Date.now()) / 1000);
      return jwt.sign(claims, signing, { algorithm: 'HS256', expiresIn: seconds, issuer, audience });
    },
    verify(authorization) {
      if (!authorization) throw new ApiError('unauthenticated', 'Send an access token: Authorization: Bearer <token>.');
      const token = /^Bearer +(\S+)$/i.exec(authorization)?.[1] ?? '';
      const known = remembered.get(token);
      if (known && known.expiresAt > Date.now()) return known.claims;
      remembered.delete(token);
      for (const key of keys) {
        try {
          const payload = jwt.verify(token, key, { algorithms: ['HS256'], issuer, audience });
          return remember(token, Claims.parse(payload), Expiry.parse(payload).exp * 1000);
        } catch {
          // The next key may fit.
        }
      }
      throw new ApiError('invalid_token', 'The access token is not valid or has expired. Refresh it or log in again.');
    },
  };
}
