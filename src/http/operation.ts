import type { ErrorName } from '../domain/errors.ts';

/** The columns of `core.operation` that the facade uses. */
export interface Operation {
  name: string;
  access: 'public' | 'token' | 'feed' | 'picture' | 'refresh' | 'any' | 'tenant' | 'platform' | 'analyst';
  permission: string | null;
  allows_own_rows: boolean;
  role: string | null;
  feature: string | null;
  needs_setup: boolean;
  needs_subscription: boolean;
  works_when_cancelled: boolean;
  writes: boolean;
  idempotent: boolean;
  record: string | null;
  /** The errors that its SQL functions raise, besides those of the checks before them. */
  errors: ErrorName[];
  content: 'takes' | 'gives' | null;
}

/** Whether the operation needs no access token. */
export const isAnonymous = ({ access }: Operation): boolean =>
  ['public', 'token', 'feed', 'picture', 'refresh'].includes(access);
