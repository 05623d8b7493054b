import { argon2id, hash, verify } from 'argon2';
import { withoutJoiners } from './text.ts';

/**
 * The form of a password that is hashed: by the OpaqueString profile of RFC 8265, every space is U+0020 and the text is
 * in NFC. A keyboard that types `ë` as two characters, and one that types a no-break space, then enter the same password.
 */
export const preparePassword = (password: string): string => password.replace(/\p{Zs}/gu, ' ').normalize();

/**
 * The characters that the FreeformClass of RFC 8264 disallows: control, format and other invisible characters, old
 * Hangul letters, and code points that are private, unassigned or no characters.
 */
const disallowed =
  /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Default_Ignorable_Code_Point}\u1100-\u11ff\ua960-\ua97c\ud7b0-\ud7fb]/u;

/** Whether a prepared password may be set. A login accepts any password. */
export const isSettable = (prepared: string): boolean => prepared !== '' && !disallowed.test(withoutJoiners(prepared));

/** How a password matched: as prepared, or only as it was typed, which earlier versions hashed. */
export type PasswordMatch = 'prepared' | 'typed';

/** Hashing and verifying passwords. */
export interface Passwords {
  /** The argon2id hash of the prepared password in PHC format. */
  hash(password: string): Promise<string>;
  /**
   * How a password matches, or null. Takes equally long without a hash, so that timing does not reveal unknown accounts.
   */
  verify(passwordHash: string | null, password: string): Promise<PasswordMatch | null>;
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
    hash: (password) => hash(preparePassword(password), cost),
    async verify(passwordHash, password) {
      const known = passwordHash ?? unmatchableHash;
      const prepared = preparePassword(password);
      if ((await verifyHash(known, prepared)) && passwordHash !== null) return 'prepared';
      const matchesAsTyped = prepared !== password && (await verifyHash(known, password));
      return matchesAsTyped && passwordHash !== null ? 'typed' : null;
    },
  };
}
