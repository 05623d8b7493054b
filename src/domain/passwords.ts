import { argon2id, hash, verify } from 'argon2';

/** Hashing and verifying passwords. */
export interface Passwords {
  /** The argon2id hash of a password in PHC format. */
  hash(password: string): Promise<string>;
  /** Whether a password matches. Takes equally long without a hash, so that timing does not reveal unknown accounts. */
  verify(passwordHash: string | null, password: string): Promise<boolean>;
}

/** 19 MiB, two passes, one lane: the minimum recommended by OWASP for argon2id. */
const defaultCost = { type: argon2id, memoryCost: 19 * 1024, timeCost: 2, parallelism: 1 } as const;

/**
 * @param overrides  a lower cost to speed up tests; no setting of the service changes the cost
 * @param verifyHash  compares a hash and a password
 */
export function passwords(overrides: { memoryCost?: number } = {}, verifyHash = verify): Passwords {
  const cost = { ...defaultCost, ...overrides };
  const parameters = `m=${String(cost.memoryCost)},t=${String(cost.timeCost)},p=${String(cost.parallelism)}`;
  // Matches no password. Not created by hashing, because a thread that has hashed keeps the memory.
  const unmatchableHash = `$argon2id$v=19$${parameters}$${'A'.repeat(22)}$${'A'.repeat(43)}`;
  return {
    hash: (password) => hash(password, cost),
    async verify(passwordHash, password) {
      const isMatch = await verifyHash(passwordHash ?? unmatchableHash, password);
      return passwordHash !== null && isMatch;
    },
  };
}
