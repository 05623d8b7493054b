import { z } from 'zod';
import { type Exchange, file, type Handler, json, page, resource } from '../http/endpoint.ts';
import { cleanPicture } from '../documents/picture.ts';
import { ApiError } from '../domain/errors.ts';
import { toApiError } from '../http/errors.ts';
import { refreshCookie, refreshTokenOf, requireSameOrigin } from '../http/credentials/cookies.ts';
import {
  currentPassword,
  Deleted,
  email,
  id,
  lastName,
  nameText,
  optionalNameText,
  password,
  phone,
  text,
  timestamp,
  timestamps,
} from '../http/schemas.ts';
import {
  type Credentials,
  LoginAnswer,
  type OpenedSession,
  refreshCookieField,
  secondFactorRequired,
  secondFactorSettings,
  sendSession,
  storedDeviceToken,
  type StoredChallenge,
  UserContext,
  verified,
} from './parts/login.ts';
import { Session } from './parts/session.ts';

const school = {
  tenant_id: id.nullish().meta({ description: 'The school by id, or by subdomain. Null is the same as absent.' }),
  subdomain: optionalNameText(63).meta({
    description: 'Alternatives: the X-Tenant-ID header or the host name.',
    examples: ['demo'],
  }),
  is_platform: z.boolean().nullish().meta({ description: 'True for operators, who specify no school.' }),
};

const Login = z
  .strictObject({
    email,
    password: currentPassword,
    ...school,
    ...refreshCookieField,
  })
  .meta({ id: 'Login' });

export const Profile = UserContext.extend({
  phone: z.string().nullable(),
  email_verified: z.boolean(),
  last_login_at: timestamp.nullable(),
  is_platform_admin: z.boolean().meta({ description: 'True for an operator.' }),
  tenant: z
    .object({ id, name: z.string(), subdomain: z.string(), time_zone: z.string(), is_setup_complete: z.boolean() })
    .nullable()
    .meta({ description: 'The school; null for an operator.' }),
  impersonated_by: z
    .object({ id, email: z.string() })
    .nullable()
    .meta({ description: 'The operator who impersonates this user in this session; otherwise null.' }),
  roles: z.array(z.string()),
  permissions: z.array(z.string()),
  ...timestamps,
}).meta({ id: 'Profile' });

const ProfileChange = z
  .strictObject({ first_name: nameText(100), last_name: lastName, phone })
  .partial()
  .meta({ id: 'ProfileChange' });

const token = text(200).meta({ description: 'From the link in the email.' });
const Message = z.object({ message: z.string() }).meta({ id: 'Message' });
export const Identified = z.object({ id }).meta({ id: 'Identified' });
const Verified = z.object({ id, email_verified: z.literal(true) }).meta({ id: 'Verified' });

const login: Handler = async (exchange) => {
  const { password, refresh_cookie, ...body } = exchange.params as z.output<typeof Login>;
  const rest = { ...body, device_token: storedDeviceToken(exchange) };
  const { user_id, password_hash, prepared_hash } = await verified(exchange, 'auth_credentials', rest, password);
  const answer = JSON.parse(
    await exchange.call('auth_session_open', {
      ...rest,
      ...secondFactorSettings(exchange),
      user_id,
      password_hash,
      prepared_hash,
    }),
  ) as OpenedSession | { challenge: StoredChallenge };
  if ('challenge' in answer) throw secondFactorRequired(exchange, answer.challenge);
  return JSON.stringify(sendSession(exchange, answer, refresh_cookie));
};

/** Returns the next token in the same way as the current one was sent: in the header or as a cookie. */
const refresh: Handler = async (exchange) => {
  const { res, call, services } = exchange;
  const { token: presented, isCookie } = refreshTokenOf(exchange);
  if (!presented)
    throw new ApiError(
      'unauthenticated',
      'Send the refresh token in the header X-Refresh-Token, or as the cookie of a login with refresh_cookie.',
    );
  if (isCookie) requireSameOrigin(exchange);
  try {
    const answer = JSON.parse(
      await call('auth_refresh', {
        ...secondFactorSettings(exchange),
        refresh_token: services.refreshTokens.read(presented).token,
      }),
    ) as {
      session_id: number;
      user_id: number;
      tenant_id: number | null;
      refresh_token: string;
      refused?: string;
    };
    if (answer.refused) throw new ApiError('invalid_token', answer.refused);
    const successor = services.refreshTokens.sign(answer.refresh_token, String(answer.session_id));
    if (isCookie) refreshCookie.set(exchange, successor);
    else res.set('X-Refresh-Token', successor);
    return JSON.stringify({ access_token: services.tokens.sign(answer) });
  } catch (error) {
    if (isCookie && toApiError(error).error === 'invalid_token') refreshCookie.clear(exchange);
    throw error;
  }
};

/** The cookie belongs to the operator's console session, which continues after an impersonation ends. */
const logout: Handler = async (exchange) => {
  const answer = await exchange.call('auth_logout', {});
  if (refreshCookie.read(exchange) && !exchange.req.claims?.impersonated_by) refreshCookie.clear(exchange);
  return answer;
};

/** @throws ApiError validation_error if the new password is the current one */
async function requireNewPassword(exchange: Exchange, passwordHash: string | null, next: string): Promise<void> {
  if (passwordHash === null || !(await exchange.services.passwords.verify(exchange, passwordHash, next))) return;
  throw new ApiError('validation_error', 'The new password must differ from the current one.', {
    details: [{ path: 'password', message: 'must differ from the current password' }],
  });
}

const changePassword: Handler = async (exchange) => {
  const {
    current_password,
    password: next,
    ...options
  } = exchange.params as { current_password: string; password: string; end_calendar_feeds?: boolean };
  const credentials = await verified(exchange, 'auth_own_credentials', {}, current_password);
  await requireNewPassword(exchange, credentials.password_hash, next);
  const password_hash = await exchange.services.passwords.hash(exchange, next);
  return exchange.call('auth_password_change', {
    ...options,
    password_hash,
    current_password_hash: credentials.password_hash,
  });
};

const resetPassword: Handler = async (exchange) => {
  const { token, password: next } = exchange.params as { token: string; password: string };
  const { password_hash } = JSON.parse(await exchange.call('auth_reset_credentials', { token })) as Credentials;
  await requireNewPassword(exchange, password_hash, next);
  return exchange.call('auth_password_reset', {
    token,
    password_hash: await exchange.services.passwords.hash(exchange, next),
  });
};

export const auth = resource('/auth', 'Auth', 'Login, sessions, and your own profile and password.', {
  'POST /login': {
    operation: 'auth_credentials',
    operationId: 'auth_login',
    summary: 'Log in',
    description:
      'Name the school by tenant_id or subdomain; operators send is_platform instead. ' +
      'The refresh token is sent in the header X-Refresh-Token. With refresh_cookie it is sent as the cookie ' +
      '`refresh_token` (`__Host-refresh_token` with https), HttpOnly and SameSite=Strict. ' +
      'The header X-Known-Device, or the cookie `known_device`, has a token of the device in the same way. Send it ' +
      'with ' +
      'the next login, so that strangers cannot lock you out and you get no email about a new device. ' +
      'Answers 403 forbidden to the right password of a teacher or student whose record is inactive. ' +
      'Answers 401 second_factor_required if the account needs a second factor and the device is not remembered.',
    body: Login,
    response: json(LoginAnswer, { handler: login, issuesRefreshToken: true, knowsDevices: true }),
  },
  'POST /logout': {
    operation: 'auth_logout',
    summary: 'Log out',
    description: 'Revokes the access token and the refresh token at once, and deletes the refresh cookie.',
    response: json(Identified, { handler: logout }),
  },
  'POST /refresh': {
    operation: 'auth_refresh',
    summary: 'Exchange the refresh token for a new access token',
    description:
      'Send the refresh token in the header X-Refresh-Token, or as the cookie of a login with refresh_cookie. ' +
      'The cookie is accepted only from pages of this origin (otherwise 403). ' +
      'The response has a successor of the refresh token in the same form. A client may keep its first token as long ' +
      'as the session lasts, or switch to the successor each time. The first use of a successor retires the token ' +
      'before it: using that one again ends the session.',
    response: json(z.object({ access_token: z.string() }).meta({ id: 'RefreshAnswer' }), {
      handler: refresh,
      issuesRefreshToken: true,
    }),
  },
  'GET /sessions': {
    operation: 'auth_sessions_list',
    summary: 'List your own sessions',
    description: 'The one that was used last comes first. At most 20; impersonations are not listed.',
    response: page(Session),
  },
  'DELETE /sessions/:id': {
    operation: 'auth_sessions_delete',
    summary: 'End one of your own sessions',
    description: 'Its access token and refresh token stop working at once, and its device is no longer known.',
    response: json(Deleted),
  },
  'GET /profile': { operation: 'auth_profile', summary: 'Get your own profile', response: json(Profile) },
  'PUT /profile': {
    operation: 'auth_profile_update',
    summary: 'Update your own profile',
    body: ProfileChange,
    response: json(Profile),
  },
  'GET /profile/picture': {
    operation: 'auth_profile_picture',
    summary: 'Get your own picture',
    query: z.strictObject({
      v: z.string().max(50).optional().meta({ description: 'Version of the picture, for caches.' }),
    }),
    response: file(['image/jpeg', 'image/png']),
  },
  'POST /profile/picture': {
    operation: 'auth_profile_picture_set',
    summary: 'Set your own picture',
    description:
      'JPEG or PNG, at most 5 MB, in the field `picture`, or `file`, `profile_picture`, `image`, `photo`, `avatar`. ' +
      'It is stored upright, without metadata such as the place, and reduced to 2,000 pixels on each side. ' +
      '400 if it is damaged or has more than 50 million pixels.',
    upload: {
      fields: ['picture', 'file', 'profile_picture', 'image', 'photo', 'avatar'],
      maxBytes: 5 * 1024 * 1024,
      types: ['image/jpeg', 'image/png'],
      label: 'picture',
      picture: cleanPicture,
    },
    response: json(Profile),
  },
  'POST /password/change': {
    operation: 'auth_password_change',
    summary: 'Change your own password',
    description:
      'Ends your other sessions. `end_calendar_feeds` also ends your calendar feeds, whose addresses need no ' +
      'password. The new password must differ from the current one.',
    body: z
      .strictObject({
        current_password: currentPassword,
        password,
        end_calendar_feeds: z.boolean().optional(),
      })
      .meta({ id: 'PasswordChange' }),
    response: json(Identified, { handler: changePassword }),
  },
  'POST /password/forgot': {
    operation: 'auth_password_forgot',
    summary: 'Request an email to reset the password',
    description: 'The response is the same for known and unknown addresses.',
    body: z.strictObject({ email, ...school }).meta({ id: 'PasswordForgot' }),
    countsSuccesses: true,
    response: json(Message),
  },
  'POST /password/reset': {
    operation: 'auth_password_reset',
    summary: 'Set a new password with the token from the email',
    description:
      'Ends all your sessions and calendar feeds. The new password must differ from the current one; a refusal keeps ' +
      'the token.',
    body: z.strictObject({ token, password }).meta({ id: 'PasswordReset' }),
    response: json(Identified, { handler: resetPassword }),
  },
  'GET /email/verify': {
    operation: 'auth_email_verify',
    operationId: 'auth_email_verify_link',
    summary: 'Verify an email address by link',
    query: z.strictObject({ token }),
    response: json(Verified),
  },
  'POST /email/verify': {
    operation: 'auth_email_verify',
    summary: 'Verify an email address',
    body: z.strictObject({ token }).meta({ id: 'EmailVerify' }),
    response: json(Verified),
  },
  'GET /enabled-features': {
    operation: 'auth_enabled_features',
    summary: 'List the features enabled for the school',
    response: json(z.array(z.string().meta({ examples: ['transport'] }))),
  },
});
