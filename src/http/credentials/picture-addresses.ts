import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import { ApiError } from '../../domain/errors.ts';

/** How long an address can be used. */
const lifetimeMs = 24 * 60 * 60 * 1000;
/** Addresses that are made in the same period are equal, so that browsers find the picture in their cache. */
const periodMs = 6 * 60 * 60 * 1000;
/** How long a browser shows a picture without asking again. */
export const pictureMaxAgeSeconds = 60 * 60;

/** The most schools whose keys are kept: invented API keys can name any number of them. */
const maxKeys = 10_000;

/** The block size of SHA-256 in bytes. */
const blockSize = 64;

/** Signs and verifies the addresses of pictures, `<service>/api/pictures/<school>-<file>-<expiry>-<signature>`. */
export interface PictureAddresses {
  /**
   * The parts from which the SQL function `core.picture_url` makes addresses: the expiry, the inner and the outer block
   * of HMAC-SHA-256, and the address of the service. The key signs only pictures of this school, and only with this
   * expiry.
   * @param tenantId  0 for the pictures of operators
   */
  signingKey(tenantId: number): string;
  /** The address that `core.picture_url` makes. */
  address(tenantId: number, fileId: number): string;
  /** @throws ApiError not_found for an address that is malformed, expired or not signed by this service */
  verify(token: string): { tenant_id: number; file_id: number };
}

/**
 * @param secrets  the first one signs, all of them verify, so that secrets can be rotated
 * @param now  in milliseconds since 1970
 * @param publicUrl  the address of the service; without it, the addresses are relative
 */
export function pictureAddresses(
  secrets: readonly string[],
  now: () => number = Date.now,
  publicUrl = '',
): PictureAddresses {
  const base = publicUrl.replace(/\/+$/, '');
  const roots = secrets.map((secret) => Buffer.from(hkdfSync('sha256', secret, '', 'addresses of pictures', 32)));
  const [signing] = roots;
  if (!signing) throw new Error('At least one secret is required to sign addresses of pictures.');
  const keyOf = (root: Buffer, tenantId: number, expiry: number) =>
    createHmac('sha256', root)
      .update(`${String(tenantId)}-${String(expiry)}`)
      .digest();
  const signature = (root: Buffer, tenantId: number, fileId: number, expiry: number) =>
    createHmac('sha256', keyOf(root, tenantId, expiry))
      .update([tenantId, fileId, expiry].join('-'))
      .digest();
  const currentExpiry = () => (Math.floor(now() / periodMs) * periodMs + lifetimeMs) / 1000;

  /** The keys of the current period, by school. */
  const cache = new Map<number, string>();
  let cachedExpiry = 0;
  return {
    signingKey(tenantId) {
      const expiry = currentExpiry();
      if (expiry !== cachedExpiry || cache.size >= maxKeys) cache.clear();
      cachedExpiry = expiry;
      const cached = cache.get(tenantId);
      if (cached !== undefined) return cached;
      const key = Buffer.alloc(blockSize);
      keyOf(signing, tenantId, expiry).copy(key);
      const block = (pad: number) => key.map((byte) => byte ^ pad);
      const blocks = [0x36, 0x5c].map((pad) => Buffer.from(block(pad)).toString('hex'));
      const made = [String(expiry), ...blocks, base].join(' ');
      cache.set(tenantId, made);
      return made;
    },
    address(tenantId, fileId) {
      const expiry = currentExpiry();
      const signed = signature(signing, tenantId, fileId, expiry).toString('hex');
      return `${base}/api/pictures/${[tenantId, fileId, expiry, signed].join('-')}`;
    },
    verify(token) {
      const [, tenant = '', file = '', expires = '', signed = ''] =
        /^(0|[1-9]\d{0,14})-([1-9]\d{0,14})-([1-9]\d{9})-([0-9a-f]{64})$/.exec(token) ?? [];
      const [tenantId, fileId, expiry] = [Number(tenant), Number(file), Number(expires)];
      const given = Buffer.from(signed, 'hex');
      const isSigned =
        given.length === 32 &&
        roots.some((root) => timingSafeEqual(signature(root, tenantId, fileId, expiry), given)) &&
        expiry * 1000 > now();
      if (!isSigned)
        throw new ApiError('not_found', 'There is no such picture, or its address has expired. Read the record again.');
      return { tenant_id: tenantId, file_id: fileId };
    },
  };
}
