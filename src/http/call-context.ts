import { createHash } from 'node:crypto';
import type { Request, Response } from 'express';
import type { CallContext } from '../database/call.ts';
import { ApiError } from '../domain/errors.ts';
import type { ApiKey } from './credentials/api-keys.ts';
import { disconnectSignal } from './disconnect.ts';
import type { Operation } from './operation.ts';
import { headerText } from './received-text.ts';
import { requestOwner } from './request-owner.ts';
import type { Services } from './services.ts';

const keyOf = ({ tenantId, hash, isAdmitted }: ApiKey): NonNullable<CallContext['api_key']> => ({
  ...(tenantId === undefined ? {} : { tenant_id: tenantId }),
  hash,
  is_admitted: isAdmitted,
});

/** The facts about the client that the audit log stores. */
export function clientContext(req: Request): CallContext {
  const agent = headerText(req, 'user-agent');
  return {
    request_id: req.id,
    ...(req.traceparent ? { traceparent: req.traceparent } : {}),
    ...(req.ip ? { ip: req.ip } : {}),
    ...(agent ? { user_agent: agent.slice(0, 300).toWellFormed() } : {}),
    ...(req.claims?.impersonated_by ? { is_impersonated: true } : {}),
    ...(req.claims === undefined ? {} : { user: req.claims.user_id }),
    ...(req.claims?.tenant_id === undefined ? {} : { school: req.claims.tenant_id }),
    ...(req.apiKey ? { api_key: keyOf(req.apiKey) } : {}),
    ...(req.apiKey?.isAdmitted && req.apiKey.tenantId !== undefined ? { school: req.apiKey.tenantId } : {}),
    caller: String(requestOwner(req).userId),
  };
}

type HostSettings = Pick<Services['config'], 'BASE_DOMAIN' | 'NODE_ENV'>;

/** The domain below which hosts name schools. Without BASE_DOMAIN, `<school>.localhost` names one in development. */
const schoolDomain = ({ BASE_DOMAIN, NODE_ENV }: HostSettings) =>
  BASE_DOMAIN ?? (NODE_ENV === 'production' ? undefined : 'localhost');

/**
 * The context of any request. The school comes from X-Tenant-ID, or from the leftmost label of the host below
 * BASE_DOMAIN.
 */
export function requestContext(req: Request, res: Response, settings: HostSettings): CallContext {
  const baseDomain = schoolDomain(settings);
  const context: CallContext = { ...clientContext(req), signal: disconnectSignal(res) };
  const tenant = req.get('x-tenant-id');
  if (tenant !== undefined) {
    if (!/^[1-9]\d{0,14}$/.test(tenant))
      throw new ApiError('validation_error', 'X-Tenant-ID must be the number of a school.', {
        details: [{ path: 'X-Tenant-ID', message: 'must be a number' }],
      });
    context.tenant_id = Number(tenant);
  }
  const host = baseDomain ? req.hostname.toLowerCase() : '';
  if (baseDomain && host.endsWith(`.${baseDomain}`))
    context.subdomain = host.slice(0, -baseDomain.length - 1).split('.')[0] ?? '';
  return context;
}

/** The context of a write: If-Match and Idempotency-Key, with a hash of the request to detect a reused key. */
export function writeContext(req: Request, operation: Operation, params: object): CallContext {
  const context: CallContext = {};
  const ifMatch = req.get('if-match');
  if (ifMatch !== undefined) context.if_match = ifMatch;
  const key = req.get('idempotency-key');
  if (key !== undefined && operation.idempotent) {
    if (!/^[\x21-\x7e]{1,255}$/.test(key))
      throw new ApiError('validation_error', 'Idempotency-Key must have 1 to 255 visible ASCII characters.', {
        details: [{ path: 'Idempotency-Key', message: 'must have 1 to 255 visible ASCII characters' }],
      });
    context.idempotency_key = key;
    const hash = createHash('sha256').update(JSON.stringify(params));
    if (req.upload) {
      const { name, contentType, content } = req.upload;
      hash.update(JSON.stringify({ name, contentType })).update(content);
    }
    context.request_hash = hash.digest('hex');
  }
  return context;
}

/** The context of a request for a stored file: the byte range, and the ETags that the client already has. */
export function fileContext(req: Request): CallContext {
  const range = requestedRange(req);
  return { ...(range ? { range } : {}), known: req.method === 'HEAD' ? ['*'] : knownTags(req) };
}

/**
 * The byte range that a GET asks for. Undefined for the whole file. Several ranges, other units and malformed headers
 * are ignored, as RFC 9110 allows or requires.
 */
function requestedRange(req: Request): CallContext['range'] {
  const [, start = '', end = ''] = /^bytes=(\d*)-(\d*)$/i.exec(req.get('range') ?? '') ?? [];
  if (req.method !== 'GET' || (start === '' && end === '')) return undefined;
  const position = (digits: string) => (digits === '' ? null : Math.min(Number(digits), Number.MAX_SAFE_INTEGER));
  const range = { start: position(start), end: position(end) };
  if (range.start !== null && range.end !== null && range.end < range.start) return undefined;
  const ifRange = req.get('if-range');
  // A weak ETag or a date cannot guarantee identical bytes. An empty digest matches no file, so the whole file is sent.
  return ifRange === undefined ? range : { ...range, of: /^"([^"]*)"$/.exec(ifRange)?.[1] ?? '' };
}

/**
 * The ETags in If-None-Match. `req.fresh` does not fit: fetch adds `Cache-Control: no-cache` to a request with its own
 * If-None-Match, and `req.fresh` then never reports a match.
 */
export const knownTags = (req: Request): string[] =>
  req.headers['if-none-match']?.split(',').map((tag) => tag.trim().replace(/^W\//, '')) ?? [];
