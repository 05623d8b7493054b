import type { Request } from 'express';
import { ipKeyGenerator } from 'express-rate-limit';
import type { RequestOwner } from '../concurrency/fair-queue.ts';

/** The IPv4 address of a client, or its IPv6 network of 56 bits, which one customer of a provider has. */
export const addressOf = (req: Request): string => ipKeyGenerator(req.ip ?? '');

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
