import type { Request } from 'express';
import type { RequestOwner } from '../concurrency/fair-queue.ts';
import { addressOf } from './limiter.ts';

/**
 * The user and the school that a request is counted for. An API key counts as a user of its own. Before the database
 * has admitted it once, its requests count for the address, because a stranger may have invented it.
 */
export function requestOwner(req: Request): RequestOwner {
  const { claims, apiKey } = req;
  if (claims) return { tenantId: claims.tenant_id, userId: claims.user_id };
  if (apiKey?.isAdmitted) return { tenantId: apiKey.tenantId, userId: apiKey.hash };
  return { tenantId: 'stranger', userId: addressOf(req) };
}
