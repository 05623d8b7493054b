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
export async function passwords(over: { memoryCost?: number } = {}): Promise<Passwords> {
  const cost = { ...strong, ...over };
  const nobody = await hash('the password of nobody', cost);
  return {
    hash: (password) => hash(password, cost),
    async verify(passwordHash, password) {
      const fits = await verify(passwordHash ?? nobody, password);
      return passwordHash !== null && fits;
    },
  };
}
