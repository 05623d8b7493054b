import { createHash, randomInt } from 'node:crypto';
import { ApiError } from '../../domain/errors.ts';

/** The API key of a request. Only the database decides whether it is valid. */
export interface ApiKey {
  /**
   * The school that the key names, or undefined for a key of the platform. A stranger may have invented it, as long as
   * `isAdmitted` is false.
   */
  tenantId: number | undefined;
  /** SHA-256 in hex. */
  hash: string;
  /** The beginning of the key, which lists show too. */
  prefix: string;
  /** Whether the database admitted this key to a recent request of this process. */
  readonly isAdmitted: boolean;
}

/** Reads the API keys of requests, and remembers which keys the database has admitted. */
export interface ApiKeys {
  /**
   * The API key in a header `Authorization`; undefined for any other credentials.
   * @throws ApiError invalid_token for a malformed key
   */
  read(authorization: string | undefined): ApiKey | undefined;
  /** Learns from the status of a response whether the key of the request is valid. */
  learn(key: ApiKey, status: number): void;
}

/** Secret scanners find keys by this pattern and check the last 8 digits: the first ones of the SHA-256 of the rest. */
const pattern = /^((sk_(platform|[1-9]\d{0,14})_[0-9A-Za-z]{4})[0-9A-Za-z]{39})([0-9a-f]{8})$/;

const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** 43 digits of 62 values are 256 bits. */
const randomLength = 43;

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const checksum = (text: string) => sha256(text).slice(0, 8);

/** Generates a key of a school or of the platform: the key, and what is stored of it. */
export function generateApiKey(owner: number | 'platform'): { key: string; prefix: string; key_hash: string } {
  const random = Array.from({ length: randomLength }, () => digits[randomInt(digits.length)]).join('');
  const unchecked = `sk_${String(owner)}_${random}`;
  const key = unchecked + checksum(unchecked);
  return { key, prefix: unchecked.slice(0, 4 - randomLength), key_hash: sha256(key) };
}

/** How long a key counts as admitted after a request, and how many keys do. */
const admittedMs = 15 * 60_000;
const maxAdmitted = 5_000;

export function apiKeys(): ApiKeys {
  /** When each admitted key is forgotten, by hash. */
  const admitted = new Map<string, number>();
  return {
    read(authorization) {
      const [, presented] = /^Bearer +(sk_\S*)$/i.exec(authorization ?? '') ?? [];
      if (presented === undefined) return undefined;
      const [, unchecked = '', prefix = '', owner, given] = pattern.exec(presented) ?? [];
      if (given === undefined || given !== checksum(unchecked))
        throw new ApiError('invalid_token', 'The API key is invalid, has expired or was revoked.');
      const hash = sha256(presented);
      return {
        tenantId: owner === 'platform' ? undefined : Number(owner),
        hash,
        prefix,
        get isAdmitted() {
          return (admitted.get(hash) ?? 0) > Date.now();
        },
      };
    },
    learn({ hash }, status) {
      if (status < 400 || status === 401) admitted.delete(hash);
      if (status >= 400) return;
      const [oldest] = admitted.keys();
      if (oldest !== undefined && admitted.size >= maxAdmitted) admitted.delete(oldest);
      admitted.set(hash, Date.now() + admittedMs);
    },
  };
}
