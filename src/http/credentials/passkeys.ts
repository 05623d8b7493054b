import type {
  AuthenticationResponseJSON,
  AuthenticatorTransport,
  RegistrationResponseJSON,
} from '@simplewebauthn/server';
import { ApiError } from '../../domain/errors.ts';
import type { Exchange } from '../endpoint.ts';

/** Loaded when an operator uses a passkey: most processes never need it, and it costs memory. */
const webauthn = () => import('@simplewebauthn/server');

/** The ways to reach an authenticator that WebAuthn defines. */
const transports: AuthenticatorTransport[] = ['ble', 'hybrid', 'internal', 'nfc', 'usb'];

type Connection = Pick<Exchange, 'req' | 'services'>;

/** A passkey as browsers name it. */
export interface PasskeyName {
  id: string;
  transports: AuthenticatorTransport[];
}

/** A passkey as the database stores it. */
export interface StoredPasskey extends PasskeyName {
  public_key: string;
  counter: number;
}

/**
 * The site that passkeys belong to. In development the host of the request, because PUBLIC_URL may be an IP address,
 * which cannot have passkeys.
 */
function relyingParty({ req, services: { config } }: Connection): { origin: string; id: string } {
  const isFixed = config.NODE_ENV === 'production' && config.PUBLIC_URL !== undefined;
  const { origin, hostname } = new URL(
    isFixed && config.PUBLIC_URL ? config.PUBLIC_URL : `${req.protocol}://${req.host}`,
  );
  return { origin, id: hostname };
}

/** The options of `navigator.credentials.get`. The challenge is the token of the login, which works once. */
export const loginOptions = (connection: Connection, token: string, passkeys: PasskeyName[]) => ({
  challenge: token,
  rpId: relyingParty(connection).id,
  allowCredentials: passkeys.map(({ id, transports }) => ({ id, transports, type: 'public-key' as const })),
  userVerification: 'preferred' as const,
  timeout: 60_000,
});

/** The options of `navigator.credentials.create`. */
export async function registrationOptions(
  connection: Connection,
  user: { challenge: string; user_id: number; email: string; name: string; passkeys: PasskeyName[] },
) {
  const { generateRegistrationOptions } = await webauthn();
  const options = await generateRegistrationOptions({
    rpName: 'School management',
    rpID: relyingParty(connection).id,
    userName: user.email,
    userDisplayName: user.name,
    userID: new TextEncoder().encode(`operator ${String(user.user_id)}`),
    attestationType: 'none',
    excludeCredentials: user.passkeys,
    authenticatorSelection: { residentKey: 'discouraged', userVerification: 'preferred' },
  });
  // The library would encode it as bytes of text. The token is base64url already, and comes back as it is.
  return { ...options, challenge: user.challenge };
}

/** A malformed or wrong answer of a browser. The library throws for both. */
const refused = (cause: unknown) => new ApiError('invalid_code', 'The passkey was not accepted.', { cause });

/** @returns the new counter. @throws ApiError invalid_code */
export async function checkLogin(
  connection: Connection,
  token: string,
  passkey: StoredPasskey,
  response: unknown,
): Promise<number> {
  const { origin, id } = relyingParty(connection);
  const { verifyAuthenticationResponse } = await webauthn();
  const { verified, authenticationInfo } = await verifyAuthenticationResponse({
    response: response as AuthenticationResponseJSON,
    expectedChallenge: token,
    expectedOrigin: origin,
    expectedRPID: id,
    requireUserVerification: false,
    credential: {
      id: passkey.id,
      publicKey: new Uint8Array(Buffer.from(passkey.public_key, 'base64url')),
      counter: passkey.counter,
      transports: passkey.transports,
    },
  }).catch((cause: unknown) => {
    throw refused(cause);
  });
  if (!verified) throw refused(undefined);
  return authenticationInfo.newCounter;
}

/** Checks the answer of a browser to `registrationOptions`. @throws ApiError invalid_code */
export async function checkRegistration(connection: Connection, response: unknown) {
  const { origin, id } = relyingParty(connection);
  const { verifyRegistrationResponse } = await webauthn();
  let challenge = '';
  const { verified, registrationInfo } = await verifyRegistrationResponse({
    response: response as RegistrationResponseJSON,
    // The database looks it up, and uses it once.
    expectedChallenge: (given) => {
      challenge = given;
      return true;
    },
    expectedOrigin: origin,
    expectedRPID: id,
    requireUserVerification: false,
  }).catch((cause: unknown) => {
    throw refused(cause);
  });
  if (!verified) throw refused(undefined);
  const { credential } = registrationInfo;
  return {
    challenge,
    credential_id: credential.id,
    public_key: Buffer.from(credential.publicKey).toString('base64url'),
    counter: credential.counter,
    // The library passes on what the client sends.
    transports: transports.filter((each) => credential.transports?.includes(each)),
  };
}
