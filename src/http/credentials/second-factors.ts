import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from 'node:crypto';
import { Secret, TOTP } from 'otpauth';
import { ApiError } from '../../domain/errors.ts';

/** What all authenticator apps support: six digits that change every 30 seconds. */
const format = { algorithm: 'SHA1', digits: 6, period: 30 } as const;
/** Accept the code before and after the current one, because clocks differ and typing takes time. */
const window = 1;

const cipher = 'aes-256-gcm';

interface Key {
  id: string;
  bytes: Buffer;
}

/** Makes, encrypts and checks the secrets of authenticator apps (TOTP, RFC 6238). */
export interface SecondFactors {
  /** The first part of secrets that are encrypted with the current key. */
  keyId: string;
  /** A new secret: encrypted for the database, and in base32 for the user. */
  create(): { encrypted: string; secret: string };
  /** The address that an authenticator app reads from a QR code. */
  uri(secret: string, issuer: string, email: string): string;
  /**
   * The time step of a code, or undefined for a wrong one. Compares in constant time.
   * @throws ApiError unavailable if no key decrypts the secret
   */
  stepOf(encrypted: string, code: string): number | undefined;
  /** The same secret, encrypted with the current key; undefined if no key decrypts it. */
  reencrypt(encrypted: string): string | undefined;
}

const totp = (secret: string) => new TOTP({ ...format, secret: Secret.fromBase32(secret) });

/** `<key>.<iv>.<ciphertext>.<tag>`, in base64url. */
function encrypt(secret: string, key: Key): string {
  const iv = randomBytes(12);
  const stream = createCipheriv(cipher, key.bytes, iv);
  const content = Buffer.concat([stream.update(secret, 'utf8'), stream.final()]);
  return [key.id, ...[iv, content, stream.getAuthTag()].map((part) => part.toString('base64url'))].join('.');
}

/** @returns undefined if no key decrypts the secret, or if it was damaged */
function decrypt(encrypted: string, keys: readonly Key[]): string | undefined {
  const [id, ...parts] = encrypted.split('.');
  const key = keys.find((each) => each.id === id);
  const [iv, content, tag] = parts.map((part) => Buffer.from(part, 'base64url'));
  if (!key || !iv || !content || !tag) return undefined;
  try {
    const stream = createDecipheriv(cipher, key.bytes, iv, { authTagLength: 16 });
    stream.setAuthTag(tag);
    return Buffer.concat([stream.update(content), stream.final()]).toString('utf8');
  } catch {
    return undefined;
  }
}

/**
 * @param secrets  the first one encrypts, all of them decrypt, so that secrets can be rotated
 * @param now  in milliseconds since 1970
 */
export function secondFactors(secrets: readonly string[], now: () => number = Date.now): SecondFactors {
  const keys = secrets.map((secret): Key => {
    const bytes = Buffer.from(hkdfSync('sha256', secret, '', 'second factors', 32));
    return { bytes, id: createHash('sha256').update(bytes).digest('base64url').slice(0, 8) };
  });
  const [current] = keys;
  if (!current) throw new Error('At least one secret is required to encrypt second factors.');
  return {
    keyId: current.id,
    create() {
      const secret = new Secret({ size: 20 }).base32;
      return { encrypted: encrypt(secret, current), secret };
    },
    uri: (secret, issuer, email) =>
      new TOTP({ ...format, secret: Secret.fromBase32(secret), issuer, label: email }).toString(),
    stepOf(encrypted, code) {
      const secret = decrypt(encrypted, keys);
      if (secret === undefined) {
        throw new ApiError('unavailable', 'Codes of the app cannot be checked now. Use a recovery code.', {
          retryAfter: 60,
          cause: new Error('No secret in JWT_SECRETS decrypts a second factor, or it was damaged.'),
        });
      }
      const timestamp = now();
      const delta = totp(secret).validate({ token: code, timestamp, window });
      return delta === null ? undefined : Math.floor(timestamp / 1000 / format.period) + delta;
    },
    reencrypt(encrypted) {
      const secret = decrypt(encrypted, keys);
      return secret === undefined ? undefined : encrypt(secret, current);
    },
  };
}
