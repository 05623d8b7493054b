import { z } from 'zod';
import { type Exchange, type Handler, resource } from '../http/endpoint.ts';
import { ApiError } from '../domain/errors.ts';
import { toApiError } from '../http/errors.ts';
import { clearRefreshCookie, requireSameOrigin, setRefreshCookie, tokenOfCookie } from '../http/refresh-cookie.ts';
import { email, id, optionalText, password, pictureUrl, text, timestamp, timestamps } from '../http/schemas.ts';

const school = {
  tenant_id: id.nullish().meta({ description: 'The school by id, or by subdomain. Null is the same as absent.' }),
  subdomain: optionalText(63).meta({
    description: 'Alternatives: the X-Tenant-ID header or the host name.',
    examples: ['demo'],
  }),
  is_platform: z.boolean().nullish().meta({ description: 'True for operators, who specify no school.' }),
};

const Login = z
  .strictObject({
    email,
    password: z.string().min(1).max(200),
    ...school,
    refresh_cookie: z.boolean().optional().meta({
      description:
        'For pages of this origin: sends the refresh token as a cookie that scripts cannot read, instead of a header.',
    }),
  })
  .meta({ id: 'Login' });

const UserContext = z
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
  })
  .meta({ id: 'LoginAnswer', description: 'The refresh token is sent in the header X-Refresh-Token, or as a cookie.' });

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
  .strictObject({ first_name: text(100), last_name: text(100), phone: optionalText(50) })
  .partial()
  .meta({ id: 'ProfileChange' });

const token = text(200).meta({ description: 'From the link in the email.' });
const Message = z.object({ message: z.string() }).meta({ id: 'Message' });
const Identified = z.object({ id }).meta({ id: 'Identified' });
const Verified = z.object({ id, email_verified: z.literal(true) }).meta({ id: 'Verified' });

interface Credentials {
  user_id: number | null;
  password_hash: string | null;
  retry_after?: number;
}

/** Verifies a password. @throws ApiError rate_limited after ten failures, invalid_credentials */
async function verified(
  { call, services }: Exchange,
  operation: string,
  params: object,
  password: string,
): Promise<Credentials> {
  const credentials = JSON.parse(await call(operation, params)) as Credentials;
  if (credentials.retry_after !== undefined) {
    throw new ApiError('rate_limited', 'Too many failed logins. Try again later.', {
      retryAfter: credentials.retry_after,
    });
  }
  if (!(await services.passwords.verify(credentials.password_hash, password))) {
    throw new ApiError('invalid_credentials', 'The email or the password is wrong.');
  }
  return credentials;
}

const login: Handler = async (exchange) => {
  const { password, refresh_cookie, ...rest } = exchange.params as z.output<typeof Login>;
  const credentials = await verified(exchange, 'auth_credentials', rest, password);
  const { session_id, refresh_token, tenant_id, user, ...answer } = JSON.parse(
    await exchange.call('auth_session_open', {
      ...rest,
      user_id: credentials.user_id,
      password_hash: credentials.password_hash,
    }),
  ) as {
    session_id: number;
    refresh_token: string;
    tenant_id: number | null;
    user: { profile_picture_id: number | null };
  };
  const { profile_picture_id, ...person } = user;
  // Only now is it known which school the user logs in to.
  const profile_picture_url =
    profile_picture_id === null ? null : exchange.services.pictures.address(tenant_id ?? 0, profile_picture_id);
  if (refresh_cookie) setRefreshCookie(exchange, refresh_token);
  else exchange.res.set('X-Refresh-Token', refresh_token);
  const access_token = exchange.services.tokens.sign({ session_id, user_id: credentials.user_id ?? 0, tenant_id });
  return JSON.stringify({ access_token, user: { ...person, profile_picture_url }, ...answer });
};

/** Returns the next token in the same way as the current one was sent: in the header or as a cookie. */
const refresh: Handler = async (exchange) => {
  const { req, res, call, services } = exchange;
  const header = req.get('x-refresh-token');
  const cookie = header ? undefined : tokenOfCookie(exchange);
  const presented = header ?? cookie;
  if (!presented)
    throw new ApiError(
      'unauthenticated',
      'Send the refresh token in the header X-Refresh-Token, or as the cookie of a login with refresh_cookie.',
    );
  if (cookie) requireSameOrigin(exchange);
  try {
    const answer = JSON.parse(await call('auth_refresh', { refresh_token: presented })) as {
      session_id: number;
      user_id: number;
      tenant_id: number | null;
      refresh_token: string;
      refused?: string;
    };
    if (answer.refused) throw new ApiError('invalid_token', answer.refused);
    if (cookie) setRefreshCookie(exchange, answer.refresh_token);
    else res.set('X-Refresh-Token', answer.refresh_token);
    return JSON.stringify({ access_token: services.tokens.sign(answer) });
  } catch (error) {
    if (cookie && toApiError(error).error === 'invalid_token') clearRefreshCookie(exchange);
    throw error;
  }
};

/** The cookie belongs to the operator's console session, which continues after an impersonation ends. */
const logout: Handler = async (exchange) => {
  const answer = await exchange.call('auth_logout', {});
  if (tokenOfCookie(exchange) && !exchange.req.claims?.impersonated_by) clearRefreshCookie(exchange);
  return answer;
};

const changePassword: Handler = async (exchange) => {
  const { current_password, password: next } = exchange.params as { current_password: string; password: string };
  const credentials = await verified(exchange, 'auth_own_credentials', {}, current_password);
  const password_hash = await exchange.services.passwords.hash(next);
  return exchange.call('auth_password_change', { password_hash, current_password_hash: credentials.password_hash });
};

export const auth = resource('/auth', 'Auth', 'Login, sessions, and your own profile and password.', {
  'POST /login': {
    operation: 'auth_credentials',
    operationId: 'auth_login',
    summary: 'Log in',
    description:
      'Requires email, password, and the school as tenant_id or subdomain; operators send is_platform instead. ' +
      'The refresh token is sent in the header X-Refresh-Token. With refresh_cookie it is sent as the cookie ' +
      '`refresh_token` (`__Host-refresh_token` with https), HttpOnly and SameSite=Strict.',
    body: Login,
    answer: LoginAnswer,
    issuesRefreshToken: true,
    handler: login,
  },
  'POST /logout': {
    operation: 'auth_logout',
    summary: 'Log out',
    description: 'Revokes the access token and the refresh token at once, and deletes the refresh cookie.',
    answer: Identified,
    handler: logout,
  },
  'POST /refresh': {
    operation: 'auth_refresh',
    summary: 'Exchange the refresh token for a new access token',
    description:
      'Send the refresh token in the header X-Refresh-Token, or as the cookie of a login with refresh_cookie. ' +
      'The cookie is accepted only from pages of this origin (otherwise 403). ' +
      'The response has a successor of the refresh token in the same form. A client may keep using its first token, ' +
      'which lasts as long as the session, or switch to the successor each time. The first use of a successor retires ' +
      'the token before it: using that one again ends the session, because the token may have been stolen.',
    answer: z.object({ access_token: z.string() }).meta({ id: 'RefreshAnswer' }),
    issuesRefreshToken: true,
    handler: refresh,
  },
  'GET /profile': { operation: 'auth_profile', summary: 'Get your own profile', answer: Profile },
  'PUT /profile': {
    operation: 'auth_profile_update',
    summary: 'Update your own profile',
    body: ProfileChange,
    answer: Profile,
  },
  'GET /profile/picture': {
    operation: 'auth_profile_picture',
    summary: 'Get your own picture',
    query: z.strictObject({
      v: z.string().max(50).optional().meta({ description: 'Version of the picture, for caches.' }),
    }),
    bytes: ['image/jpeg', 'image/png'],
  },
  'POST /profile/picture': {
    operation: 'auth_profile_picture_set',
    summary: 'Set your own picture',
    description:
      'JPEG or PNG, at most 5 MB, in the field `picture`, or `file`, `profile_picture`, `image`, `photo`, `avatar`.',
    upload: {
      fields: ['picture', 'file', 'profile_picture', 'image', 'photo', 'avatar'],
      maxBytes: 5 * 1024 * 1024,
      types: ['image/jpeg', 'image/png'],
    },
    answer: Profile,
  },
  'POST /password/change': {
    operation: 'auth_password_change',
    summary: 'Change your own password',
    description: 'Ends your other sessions.',
    body: z.strictObject({ current_password: z.string().min(1).max(200), password }).meta({ id: 'PasswordChange' }),
    answer: Identified,
    handler: changePassword,
  },
  'POST /password/forgot': {
    operation: 'auth_password_forgot',
    summary: 'Request an email to reset the password',
    description: 'The response is the same for known and unknown addresses.',
    body: z.strictObject({ email, ...school }).meta({ id: 'PasswordForgot' }),
    answer: Message,
  },
  'POST /password/reset': {
    operation: 'auth_password_reset',
    summary: 'Set a new password with the token from the email',
    body: z.strictObject({ token, password }).meta({ id: 'PasswordReset' }),
    hashes: 'password',
    answer: Identified,
  },
  'GET /email/verify': {
    operation: 'auth_email_verify',
    operationId: 'auth_email_verify_link',
    summary: 'Verify an email address by link',
    query: z.strictObject({ token }),
    answer: Verified,
  },
  'POST /email/verify': {
    operation: 'auth_email_verify',
    summary: 'Verify an email address',
    body: z.strictObject({ token }).meta({ id: 'EmailVerify' }),
    answer: Verified,
  },
  'GET /enabled-features': {
    operation: 'auth_enabled_features',
    summary: 'List the features enabled for the school',
    answer: z.array(z.string()),
  },
});
