import type { Request } from 'express';
import { ApiError } from '../domain/errors.ts';

/** Whose request something is. */
export interface Asker {
  tenantId: number | undefined;
  userId: number | undefined;
}

export const asker = ({ claims }: Pick<Request, 'claims'>): Asker => ({
  tenantId: claims?.tenant_id,
  userId: claims?.user_id,
});

/**
 * So many at a time of what takes long, for a school and for one of its users, so that nobody keeps others from it.
 * @param busy  what whoever comes when all are taken is told
 * @returns takes a place for each, and answers how to give them back. @throws ApiError rate_limited
 */
export function places(most: { school: number; user: number }, busy: string): (who: Asker) => () => void {
  const taken = new Map<string, number>();
  return ({ tenantId, userId }) => {
    const school = `school ${String(tenantId)}`;
    const wanted = [
      { who: school, limit: most.school },
      { who: `${school} user ${String(userId)}`, limit: most.user },
    ];
    if (wanted.some(({ who, limit }) => (taken.get(who) ?? 0) >= limit))
      throw new ApiError('rate_limited', busy, { retryAfter: 3 });
    for (const { who } of wanted) taken.set(who, (taken.get(who) ?? 0) + 1);
    return () => {
      for (const { who } of wanted) {
        const left = (taken.get(who) ?? 1) - 1;
        if (left > 0) taken.set(who, left);
        else taken.delete(who);
      }
    };
  };
}
