import { createSecretKey } from 'node:crypto';
import jwt from 'jsonwebtoken';
import { z } from 'zod';
import { ApiError } from '../../domain/errors.ts';

/** The lifetime of an access token. */
export const accessTokenSeconds = 15 * 60;

const issuer = 'school-management-service';
const audience = 'school-management-api';
/** Another audience, so that a stream token is not accepted as an access token. */
const streamAudience = 'school-management-stream';

/** Size of the cache of verified tokens; clients send the same token many times. */
const maxCached = 2_000;

const Claims = z.object({
  user_id: z.int().positive(),
  tenant_id: z.int().positive().optional(),
  is_platform_admin: z.literal(true).optional(),
  sid: z.int().positive(),
  impersonated_by: z.object({ id: z.int().positive(), email: z.string() }).optional(),
});

/** The expiry in seconds since 1970. The service issues no tokens without one. */
const Expiry = z.object({ exp: z.int().positive() });

/**
 * The claims of an access token: a user of a school or an operator, and the session. `impersonated_by` is the operator
 * who acts as the user.
 */
export type Claims = z.infer<typeof Claims>;

/** Signs and verifies access tokens. */
export interface Tokens {
  /** @param expiresAt  ISO 8601; for sessions that end before the usual lifetime of a token */
  sign(
    session: {
      session_id: number;
      user_id: number;
      tenant_id: number | null;
      impersonated_by?: Claims['impersonated_by'];
    },
    expiresAt?: string,
  ): string;
  /** @throws ApiError unauthenticated without a token, invalid_token for an invalid or expired one */
  verify(authorization: string | undefined): Claims;
  /** The session of a token that the service has issued, even if it has expired. Undefined for any other token. */
  sessionOf(authorization: string | undefined): number | undefined;
  /** Signs a token that only opens the stream of notifications, and is valid as long as an access token. */
  signStreamToken(claims: Claims): { token: string; expires_at: string };
  /** @throws ApiError invalid_token for an invalid or expired stream token */
  verifyStreamToken(token: string): Claims;
}

const bearerToken = (authorization: string) => /^Bearer +(\S+)$/i.exec(authorization)?.[1] ?? '';

/** @param secrets  the first one signs, all of them verify, so that secrets can be rotated */
export function tokens(secrets: readonly string[]): Tokens {
  // Key objects, because jsonwebtoken would try to parse a string as a public key at every request.
  const keys = secrets.map((secret) => createSecretKey(secret, 'utf8'));
  const [signing] = keys;
  if (!signing) throw new Error('At least one secret is required to sign tokens.');
  const cache = new Map<string, { claims: Claims; expiresAt: number }>();
  function addToCache(token: string, claims: Claims, expiresAt: number): Claims {
    const [oldest] = cache.keys();
    if (oldest !== undefined && cache.size >= maxCached) cache.delete(oldest);
    cache.set(token, { claims, expiresAt });
    return claims;
  }
  const issue = (claims: Claims, expiresIn: number, forAudience: string) =>
    jwt.sign(claims, signing, { algorithm: 'HS256', expiresIn, issuer, audience: forAudience });
  /** Returns the payload of a token, or undefined if no secret verifies it. */
  function payloadOf(token: string, ofAudience: string, ignoreExpiration = false): unknown {
    for (const key of keys) {
      try {
        return jwt.verify(token, key, { algorithms: ['HS256'], issuer, audience: ofAudience, ignoreExpiration });
      } catch {
        // Try the next key.
      }
    }
    return undefined;
  }
  return {
    sign({ session_id, user_id, tenant_id, impersonated_by }, expiresAt) {
      const claims: Claims = {
        user_id,
        sid: session_id,
        ...(tenant_id === null ? { is_platform_admin: true } : { tenant_id }),
        ...(impersonated_by ? { impersonated_by } : {}),
      };
      const seconds =
        expiresAt === undefined ? accessTokenSeconds : Math.ceil((Date.parse(expiresAt) - Date.now()) / 1000);
      return issue(claims, seconds, audience);
    },
    verify(authorization) {
      if (!authorization) throw new ApiError('unauthenticated', 'Send an access token: Authorization: Bearer <token>.');
      const token = bearerToken(authorization);
      const cached = cache.get(token);
      if (cached && cached.expiresAt > Date.now()) return cached.claims;
      cache.delete(token);
      const payload = payloadOf(token, audience);
      const claims = Claims.safeParse(payload).data;
      const expiry = Expiry.safeParse(payload).data;
      if (claims && expiry) return addToCache(token, claims, expiry.exp * 1000);
      throw new ApiError('invalid_token', 'The access token is invalid or has expired. Refresh it or log in again.');
    },
    sessionOf: (authorization) =>
      authorization === undefined
        ? undefined
        : Claims.safeParse(payloadOf(bearerToken(authorization), audience, true)).data?.sid,
    signStreamToken: (claims) => ({
      token: issue(claims, accessTokenSeconds, streamAudience),
      expires_at: new Date(Date.now() + accessTokenSeconds * 1000).toISOString(),
    }),
    verifyStreamToken(token) {
      const claims = Claims.safeParse(payloadOf(token, streamAudience)).data;
      if (!claims)
        throw new ApiError('invalid_token', 'The stream token is invalid or has expired. Request a new one.');
      return claims;
    },
  };
}
