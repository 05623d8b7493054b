import { z } from 'zod';
import { ApiError } from '../../domain/errors.ts';
import { deviceCookie, deviceTokenOf, refreshCookie } from '../../http/credentials/cookies.ts';
import type { Exchange } from '../../http/endpoint.ts';
import { loginOptions, type PasskeyName } from '../../http/credentials/passkeys.ts';
import { id, pictureUrl, schoolDay } from '../../http/schemas.ts';

/** A field of the requests that open a session. */
export const refreshCookieField = {
  refresh_cookie: z.boolean().optional().meta({
    description:
      'For pages of this origin: sends the refresh token as a cookie that scripts cannot read, instead of a header.',
  }),
};

export const UserContext = z
  .object({
    id,
    email: z.string(),
    first_name: z.string(),
    last_name: z.string(),
    profile_picture_url: pictureUrl,
  })
  .meta({ id: 'UserContext' });

export const LoginAnswer = z
  .object({
    access_token: z.string(),
    user: UserContext,
    permissions: z.array(z.string()),
    enabled_features: z.array(z.string()),
    ...schoolDay,
  })
  .meta({ id: 'LoginAnswer', description: 'The refresh token is sent in the header X-Refresh-Token, or as a cookie.' });

/** What `auth_credentials` and `auth_own_credentials` return. */
export interface Credentials {
  user_id: number | null;
  password_hash: string | null;
  retry_after?: number;
}

/** Verified credentials. If the stored hash is of the password as typed, also the hash of its prepared form. */
interface VerifiedCredentials extends Credentials {
  prepared_hash?: string;
}

/** Verifies a password. @throws ApiError rate_limited after ten failures, invalid_credentials */
export async function verified(
  exchange: Exchange,
  operation: string,
  params: object,
  password: string,
): Promise<VerifiedCredentials> {
  const { call, services } = exchange;
  const credentials = JSON.parse(await call(operation, params)) as Credentials;
  if (credentials.retry_after !== undefined) {
    throw new ApiError('rate_limited', 'Too many failed logins. Try again later.', {
      retryAfter: credentials.retry_after,
    });
  }
  const match = await services.passwords.verify(exchange, credentials.password_hash, password);
  if (!match) throw new ApiError('invalid_credentials', 'The email or the password is wrong.');
  if (match === 'prepared') return credentials;
  return { ...credentials, prepared_hash: await services.passwords.hash(exchange, password) };
}

/** What `api.session_answer` returns. */
export interface OpenedSession {
  session_id: number;
  refresh_token: string;
  device_token: string;
  tenant_id: number | null;
  user: { id: number; profile_picture_id: number | null };
}

/** The token of the device that logs in, as the database knows it, if the client sends one. */
export function storedDeviceToken(exchange: Exchange): string | undefined {
  const device = deviceTokenOf(exchange);
  return device && exchange.services.deviceTokens.read(device).token.slice(0, 100);
}

/** The settings of this process that the SQL functions of logins need. */
export const secondFactorSettings = ({ services }: Exchange) => ({
  is_required_for_operators: services.config.OPERATORS_NEED_SECOND_FACTOR,
});

/** Sends the tokens of an opened session, in headers or cookies. @returns the answer of a login */
export function sendSession(exchange: Exchange, opened: OpenedSession, isCookie: boolean | undefined): object {
  const { session_id, refresh_token, device_token, tenant_id, user, ...answer } = opened;
  const { profile_picture_id, ...person } = user;
  // Only now is it known which school the user logs in to.
  const profile_picture_url =
    profile_picture_id === null ? null : exchange.services.pictures.address(tenant_id ?? 0, profile_picture_id);
  const { deviceTokens, refreshTokens, tokens } = exchange.services;
  const refreshToken = refreshTokens.sign(refresh_token, String(session_id));
  const deviceToken = deviceTokens.sign(device_token, `${String(tenant_id ?? 0)}-${String(user.id)}`);
  if (isCookie) {
    refreshCookie.set(exchange, refreshToken);
    deviceCookie.set(exchange, deviceToken);
  } else exchange.res.set({ 'X-Refresh-Token': refreshToken, 'X-Known-Device': deviceToken });
  const access_token = tokens.sign({ session_id, user_id: user.id, tenant_id });
  return { access_token, user: { ...person, profile_picture_url }, ...answer };
}

/** What `core.login_challenge` returns. */
export interface StoredChallenge {
  token: string;
  expires_at: string;
  is_enrollment: boolean;
  methods: string[];
  passkeys: PasskeyName[];
}

/** The error that answers a right password if the login needs a second factor. */
export function secondFactorRequired(exchange: Exchange, { passkeys, ...challenge }: StoredChallenge): ApiError {
  return new ApiError(
    'second_factor_required',
    challenge.is_enrollment
      ? 'Your account needs a second factor. Set up an authenticator app to log in.'
      : 'Enter the code of your authenticator app to log in.',
    {
      challenge: {
        ...challenge,
        passkey: passkeys.length > 0 ? loginOptions(exchange, challenge.token, passkeys) : null,
      },
    },
  );
}
