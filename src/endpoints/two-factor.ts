import { z } from 'zod';
import { ApiError } from '../domain/errors.ts';
import { withCoercion } from '../http/coercion.ts';
import { type Exchange, type Handler, json, resource } from '../http/endpoint.ts';
import {
  checkLogin,
  checkRegistration,
  registrationOptions,
  type StoredPasskey,
} from '../http/credentials/passkeys.ts';
import { currentPassword, Deleted, id, nameText, text, timestamp } from '../http/schemas.ts';
import {
  LoginAnswer,
  type OpenedSession,
  refreshCookieField,
  secondFactorSettings,
  sendSession,
  storedDeviceToken,
  verified,
} from './parts/login.ts';

const challenge = text(200).meta({ description: '`challenge.token` of the answer second_factor_required.' });
const withoutSpaces = (value: unknown) => (typeof value === 'string' ? value.replace(/\s+/g, '') : value);
const code = withCoercion(
  z
    .string()
    .regex(/^\d{6}$/, 'must have six digits')
    .meta({
      description: 'The six digits that the authenticator app shows. Spaces are ignored.',
      examples: ['492039'],
    }),
  withoutSpaces,
);
const recoveryCode = withCoercion(
  text(50).meta({ description: 'One of the recovery codes. Each works once. Spaces are ignored.' }),
  withoutSpaces,
);
const ownPassword = currentPassword.meta({ description: 'Your current password.' });
/** What browsers return. The library checks it. */
const browserAnswer = z
  .looseObject({ id: text(2000) })
  .meta({ description: 'The JSON of the PublicKeyCredential that the browser returns.' });

export const TotpSetup = z
  .object({
    secret: z.string().meta({ description: 'For apps without a camera, in base32.' }),
    otpauth_uri: z.string().meta({ description: 'The content of the QR code that the app scans.' }),
  })
  .meta({ id: 'TotpSetup' });
export const RecoveryCodes = z
  .object({
    recovery_codes: z
      .array(z.string())
      .meta({ description: 'Ten codes. Only this answer has them. Each replaces the code of the app once.' }),
  })
  .meta({ id: 'RecoveryCodes' });
const Passkey = z
  .object({ id, name: z.string(), last_used_at: timestamp.nullable(), created_at: timestamp })
  .meta({ id: 'Passkey' });
export const TwoFactor = z
  .object({
    is_enabled: z.boolean(),
    is_required: z.boolean().meta({ description: 'Whether the school, or the platform for operators, requires it.' }),
    enabled_at: timestamp.nullable(),
    recovery_codes_left: z.int(),
    passkeys: z.array(Passkey).meta({ description: 'Only operators have passkeys.' }),
  })
  .meta({ id: 'TwoFactor' });

const LoginVerify = z
  .strictObject({
    challenge,
    code: code.optional(),
    recovery_code: recoveryCode.optional(),
    passkey: browserAnswer.optional(),
    remember_device: z.boolean().optional().meta({
      description:
        'Logins from this device need no second factor for 30 days. The client must send the token of the device.',
    }),
    ...refreshCookieField,
  })
  .meta({ id: 'LoginVerify' });

/** What counting an attempt returns. */
interface Attempt {
  secret: string | null;
  passkey: StoredPasskey | null;
  retry_after?: number;
}

const wrongCode = () => new ApiError('invalid_code', 'The code is wrong or was already used.');

/** Counts an attempt. @throws ApiError rate_limited after ten failures */
async function countAttempt<T extends Attempt>({ call }: Exchange, operation: string, params: object): Promise<T> {
  const attempt = JSON.parse(await call(operation, params)) as T;
  if (attempt.retry_after !== undefined) {
    throw new ApiError('rate_limited', 'Too many wrong codes. Try again later.', { retryAfter: attempt.retry_after });
  }
  return attempt;
}

/** Checks the code of an app. @throws ApiError invalid_code */
function checkCode({ services }: Exchange, secret: string | null, given: string): { secret: string; step: number } {
  const step = secret === null ? undefined : services.secondFactors.stepOf(secret, given);
  if (secret === null || step === undefined) throw wrongCode();
  return { secret, step };
}

/** @throws ApiError validation_error unless exactly one of these fields was sent */
function requireOne(params: Record<string, unknown>, names: string[]): void {
  if (names.filter((name) => params[name] !== undefined).length === 1) return;
  const message = `Send one of ${names.join(', ')}.`;
  throw new ApiError('validation_error', message, { details: names.map((path) => ({ path, message })) });
}

const verifyLogin: Handler = async (exchange) => {
  const params = exchange.params as z.output<typeof LoginVerify>;
  const { challenge: token, code: given, recovery_code, passkey, remember_device, refresh_cookie } = params;
  requireOne(params, ['code', 'recovery_code', 'passkey']);
  const attempt = await countAttempt<Attempt & { is_enrollment: boolean }>(exchange, 'auth_second_factor', {
    token,
    device_token: storedDeviceToken(exchange),
    ...(passkey ? { credential_id: passkey.id } : {}),
  });
  const checked = async () => {
    if (given !== undefined) return checkCode(exchange, attempt.secret, given);
    if (attempt.is_enrollment) throw wrongCode();
    if (recovery_code !== undefined) return { recovery_code };
    if (!attempt.passkey) throw wrongCode();
    const counter = await checkLogin(exchange, token, attempt.passkey, passkey);
    return { credential_id: attempt.passkey.id, counter };
  };
  const opened = JSON.parse(
    await exchange.call('auth_second_factor_open', {
      token,
      ...(await checked()),
      remember_device: remember_device ?? false,
      device_token: storedDeviceToken(exchange),
    }),
  ) as OpenedSession;
  exchange.res.set('Cache-Control', 'no-store');
  return JSON.stringify(sendSession(exchange, opened, refresh_cookie));
};

/** Makes the secret of a new app. @param operation  stores it, and returns the names that the app shows */
async function setUpApp({ call, services, res }: Exchange, operation: string, params: object): Promise<string> {
  const { encrypted, secret } = services.secondFactors.create();
  const { issuer, email: label } = JSON.parse(await call(operation, { ...params, secret: encrypted })) as {
    issuer: string;
    email: string;
  };
  res.set('Cache-Control', 'no-store');
  return JSON.stringify({ secret, otpauth_uri: services.secondFactors.uri(secret, issuer, label) });
}

const enroll: Handler = (exchange) =>
  setUpApp(exchange, 'auth_second_factor_enroll', { token: exchange.params['challenge'] });

/** Verifies the password of the current user. @returns the proof for the operation */
async function passwordProof(exchange: Exchange): Promise<{ password_hash: string | null }> {
  const { password_hash } = await verified(exchange, 'auth_own_credentials', {}, exchange.params['password'] as string);
  return { password_hash };
}

const beginTotp: Handler = async (exchange) => setUpApp(exchange, 'auth_totp_begin', await passwordProof(exchange));

const confirmTotp: Handler = async (exchange) => {
  const { secret } = await countAttempt(exchange, 'auth_two_factor_attempt', { is_new: true });
  exchange.res.set('Cache-Control', 'no-store');
  return exchange.call('auth_totp_confirm', checkCode(exchange, secret, exchange.params['code'] as string));
};

const createRecoveryCodes: Handler = async (exchange) => {
  const proof = await passwordProof(exchange);
  exchange.res.set('Cache-Control', 'no-store');
  return exchange.call('auth_recovery_codes_create', proof);
};

const remove: Handler = async (exchange) => {
  const { params } = exchange;
  await exchange.admit();
  requireOne(params, ['password', 'code', 'recovery_code']);
  const proof = async () => {
    if (params['password'] !== undefined) return passwordProof(exchange);
    const { secret } = await countAttempt(exchange, 'auth_two_factor_attempt', { is_new: false });
    if (params['code'] !== undefined) return checkCode(exchange, secret, params['code'] as string);
    return { recovery_code: params['recovery_code'] };
  };
  return exchange.call('auth_two_factor_delete', { ...(await proof()), ...secondFactorSettings(exchange) });
};

const beginPasskey: Handler = async (exchange) => {
  const user = JSON.parse(await exchange.call('auth_passkeys_begin', await passwordProof(exchange))) as Parameters<
    typeof registrationOptions
  >[1];
  exchange.res.set('Cache-Control', 'no-store');
  return JSON.stringify(await registrationOptions(exchange, user));
};

const createPasskey: Handler = async (exchange) => {
  await exchange.admit();
  const passkey = await checkRegistration(exchange, exchange.params['response']);
  return exchange.call('auth_passkeys_create', { ...passkey, name: exchange.params['name'] });
};

export const twoFactor = resource('/auth', 'Two-factor login', 'Codes, recovery codes and passkeys at the login.', {
  'POST /login/verify': {
    operation: 'auth_second_factor',
    operationId: 'auth_login_verify',
    summary: 'Complete a login with the second factor',
    description:
      'Send one of `code`, `recovery_code` and `passkey`. A wrong code keeps the challenge. After ten wrong codes ' +
      'in 15 ' +
      'minutes, or 30 in a day, the account accepts no more for a while, whichever challenge they were sent with. ' +
      'After `POST /api/auth/login/enroll` the first code of the app turns the second factor on, and the answer has ' +
      '`recovery_codes`.',
    body: LoginVerify,
    response: json(
      LoginAnswer.extend({ recovery_codes: z.array(z.string()).nullable() }).meta({
        id: 'LoginVerifyAnswer',
        description: '`recovery_codes` are null except after an enrollment.',
      }),
      { handler: verifyLogin, issuesRefreshToken: true, knowsDevices: true },
    ),
  },
  'POST /login/enroll': {
    operation: 'auth_second_factor_enroll',
    operationId: 'auth_login_enroll',
    summary: 'Set up the authenticator app that a login requires',
    description: 'For a challenge with `is_enrollment`. It allows nothing else. Then send a code of the app to verify.',
    body: z.strictObject({ challenge }).meta({ id: 'LoginEnroll' }),
    response: json(TotpSetup, { handler: enroll }),
  },
  'GET /two-factor': {
    operation: 'auth_two_factor',
    summary: 'Get your second factor',
    resolve: (params, { config }) => ({ ...params, is_required_for_operators: config.OPERATORS_NEED_SECOND_FACTOR }),
    response: json(TwoFactor),
  },
  'POST /two-factor/totp': {
    operation: 'auth_totp_begin',
    summary: 'Set up an authenticator app',
    description: 'Nothing changes until a code of the app is confirmed. A second app replaces the first one.',
    body: z.strictObject({ password: ownPassword }).meta({ id: 'TotpBegin' }),
    response: json(TotpSetup, { handler: beginTotp }),
  },
  'POST /two-factor/totp/confirm': {
    operation: 'auth_totp_confirm',
    summary: 'Confirm the authenticator app',
    description:
      'From now on logins need a code. Replaces the recovery codes and ends your other sessions. Remembered devices ' +
      'need the second factor again.',
    body: z.strictObject({ code }).meta({ id: 'TotpConfirm' }),
    response: json(RecoveryCodes, { handler: confirmTotp }),
  },
  'POST /two-factor/recovery-codes': {
    operation: 'auth_recovery_codes_create',
    summary: 'Create new recovery codes',
    description: 'The old ones stop working.',
    body: z.strictObject({ password: ownPassword }).meta({ id: 'RecoveryCodesCreate' }),
    response: json(RecoveryCodes, { handler: createRecoveryCodes }),
  },
  'DELETE /two-factor': {
    operation: 'auth_two_factor_delete',
    summary: 'Turn your second factor off',
    description:
      'Send one of `password`, `code` and `recovery_code`. Removes the app, the recovery codes and the passkeys. ' +
      '409 invalid_state if your account needs a second factor.',
    body: z
      .strictObject({
        password: ownPassword.optional(),
        code: code.optional(),
        recovery_code: recoveryCode.optional(),
      })
      .meta({ id: 'TwoFactorDelete' }),
    response: json(Deleted, { handler: remove }),
  },
  'POST /two-factor/passkeys/options': {
    operation: 'auth_passkeys_begin',
    summary: 'Begin to add a passkey',
    description: 'For operators with an authenticator app. Returns the options of `navigator.credentials.create`.',
    body: z.strictObject({ password: ownPassword }).meta({ id: 'PasskeyBegin' }),
    response: json(z.looseObject({ challenge: z.string() }).meta({ id: 'PasskeyOptions' }), { handler: beginPasskey }),
  },
  'POST /two-factor/passkeys': {
    operation: 'auth_passkeys_create',
    summary: 'Add a passkey',
    body: z.strictObject({ name: nameText(100), response: browserAnswer }).meta({ id: 'PasskeyInput' }),
    response: json(Passkey, { handler: createPasskey }),
  },
  'DELETE /two-factor/passkeys/:id': {
    operation: 'auth_passkeys_delete',
    summary: 'Delete a passkey',
    response: json(Deleted),
  },
});
