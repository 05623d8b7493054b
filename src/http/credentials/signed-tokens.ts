import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';

/** The first 16 of the 32 bytes of HMAC-SHA-256, in base64url. */
const signatureLength = 22;

/**
 * Tokens of the database as clients have them: `<token>.<owner>.<signature>`. Only the database decides whether a token
 * is valid. The signature decides which rate limit applies, before the database is asked.
 */
export interface SignedTokens {
  /** @param owner  digits and hyphens */
  sign(token: string, owner: string): string;
  /** Splits a token. `owner` is undefined without a right signature, as in the tokens of earlier versions. */
  read(presented: string): { token: string; owner: string | undefined };
}

/**
 * @param secrets  the first one signs, all of them verify, so that secrets can be rotated
 * @param purpose  a token that was signed for one purpose is not signed for another
 */
export function signedTokens(secrets: readonly string[], purpose: string): SignedTokens {
  const keys = secrets.map((secret) => Buffer.from(hkdfSync('sha256', secret, '', purpose, 32)));
  const [signing] = keys;
  if (!signing) throw new Error(`At least one secret is required to sign ${purpose}.`);
  const signature = (key: Buffer, token: string, owner: string) =>
    createHmac('sha256', key).update(`${token}.${owner}`).digest('base64url').slice(0, signatureLength);
  return {
    sign: (token, owner) => `${token}.${owner}.${signature(signing, token, owner)}`,
    read(presented) {
      const [, token, owner = '', given = ''] = /^([\w.-]{1,100})\.([\d-]{1,31})\.([\w-]{22})$/.exec(presented) ?? [];
      if (token === undefined) return { token: presented, owner: undefined };
      const isSigned = keys.some((key) =>
        timingSafeEqual(Buffer.from(signature(key, token, owner)), Buffer.from(given)),
      );
      return { token, owner: isSigned ? owner : undefined };
    },
  };
}
