import { ApiError } from '../domain/errors.ts';

/** The user, and their school, that work is counted for. */
export interface RequestOwner {
  tenantId: number | undefined;
  userId: number | undefined;
}

/** The owner of a request with an access token. */
export const requestOwner = ({
  claims,
}: {
  claims?: { tenant_id?: number | undefined; user_id?: number | undefined } | undefined;
}): RequestOwner => ({ tenantId: claims?.tenant_id, userId: claims?.user_id });

/** Frees the slot that was taken. */
export type Release = () => void;

/**
 * Limits the expensive work that a school, and each of its users, has in progress at the same time, so that they do not
 * slow each other down.
 * @param busyMessage  message of the error when a limit is reached
 * @returns a function that takes a slot; it throws an ApiError `rate_limited` when a limit is reached
 */
export function concurrencyLimit(
  max: { school: number; user: number },
  busyMessage: string,
): (owner: RequestOwner) => Release {
  const inProgress = new Map<string, number>();
  return ({ tenantId, userId }) => {
    const school = `school ${String(tenantId)}`;
    const counters = [
      { key: school, limit: max.school },
      { key: `${school} user ${String(userId)}`, limit: max.user },
    ];
    if (counters.some(({ key, limit }) => (inProgress.get(key) ?? 0) >= limit))
      throw new ApiError('rate_limited', busyMessage, { retryAfter: 3 });
    for (const { key } of counters) inProgress.set(key, (inProgress.get(key) ?? 0) + 1);
    return () => {
      for (const { key } of counters) {
        const remaining = (inProgress.get(key) ?? 1) - 1;
        if (remaining > 0) inProgress.set(key, remaining);
        else inProgress.delete(key);
      }
    };
  };
}
