import { argon2id, hash, verify } from 'argon2';

/** Hashing and verifying passwords. */
export interface Passwords {
  /** The argon2id hash of a password, in PHC form. */
  hash(password: string): Promise<string>;
  /** Whether a password fits; takes as long when there is no hash to compare with. */
  verify(passwordHash: string | null, password: string): Promise<boolean>;
}

/** 19 MiB, two passes, one lane: the minimum that OWASP recommends for argon2id. */
const strong = { type: argon2id, memoryCost: 19 * 1024, timeCost: 2, parallelism: 1 } as const;

/** @param over  a lesser cost, for what hashes without end in tests: no setting of the service leads here */
export function passwords(over: { memoryCost?: number } = {}): Passwords {
  const cost = { ...strong, ...over };
  // Of no password. Not made by hashing one: a thread that has hashed keeps the memory that it took.
  const nobody = `$argon2id$v=19$m=${String(cost.memoryCost)},t=${String(cost.timeCost)},p=${String(cost.parallelism)}$${'A'.repeat(22)}$${'A'.repeat(43)}`;
  return {
    hash: (password) => hash(password, cost),
    async verify(passwordHash, password) {
      const fits = await verify(passwordHash ?? nobody, password);
      return passwordHash !== null && fits;
    },
  };
}
