import { z } from 'zod';
import { ApiError } from '../../domain/errors.ts';
import type { Exchange } from '../../http/endpoint.ts';
import { platform } from '../../http/streams/registry.ts';
import { streamHeaders } from '../../http/streams/streams.ts';

export const eventId = z.string().regex(/^\d{1,15}$/, 'must be the id of an event');

/**
 * The id of the last event that the client has. The header has priority over the parameter: a client that reconnects
 * repeats the URL, but updates the header.
 */
export function lastEventId({ req, params }: Exchange): string | undefined {
  const header = req.get('last-event-id') ?? '';
  const last = header === '' ? params['last_event_id'] : header;
  if (last === undefined) return undefined;
  const { data } = eventId.safeParse(last);
  if (data !== undefined) return data;
  throw new ApiError('validation_error', 'Last-Event-ID must be the id of an event.', {
    details: [{ path: 'Last-Event-ID', message: 'is malformed' }],
  });
}

/** Opens the stream of the session. HEAD gets only its headers. */
export function beginStream({ req, res, services }: Exchange, lastId: number): void {
  const { claims } = req;
  if (req.method === 'HEAD') res.set(streamHeaders).end();
  else if (claims)
    services.streams.open(
      res,
      { tenantId: claims.tenant_id ?? platform, userId: claims.user_id, sessionId: claims.sid },
      lastId,
    );
}
