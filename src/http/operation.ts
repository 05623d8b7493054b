import type { ErrorName } from '../domain/errors.ts';

/** The columns of `core.operation` that the facade uses. */
export interface Operation {
  name: string;
  access: 'public' | 'token' | 'feed' | 'picture' | 'refresh' | 'any' | 'tenant' | 'platform' | 'analyst';
  /** Where it runs with several servers: at the home of the platform, on that of the school, or of a new one. */
  runs_on: 'home' | 'school' | 'new_school';
  permission: string | null;
  allows_own_rows: boolean;
  open_to: 'staff' | 'everyone' | 'everyone_staff_all' | null;
  role: string | null;
  needs_session: boolean;
  feature: string | null;
  needs_setup: boolean;
  needs_subscription: boolean;
  works_when_cancelled: boolean;
  writes: boolean;
  idempotent: boolean;
  record: string | null;
  /** For an operation without a record: what reads the version that If-Match names. */
  versioned_by: string | null;
  /** The fields of the answer that are not part of its version; null if it has none. */
  unversioned_fields: string[] | null;
  /** The operation that reads what this one answers after a change. Without its permission, the answer is `{id}`. */
  reader: string | null;
  /** The errors that its SQL functions raise, besides those of the checks before them. */
  errors: ErrorName[];
  content: 'takes' | 'gives' | null;
}

/** Whether an API key may be used for the operation. */
export const takesApiKey = ({ access, needs_session: needsSession }: Operation): boolean =>
  ['any', 'tenant', 'platform', 'analyst'].includes(access) && !needsSession;

/** Whether the operation needs no access token. */
export const isAnonymous = ({ access }: Operation): boolean =>
  ['public', 'token', 'feed', 'picture', 'refresh'].includes(access);
