import type { Response } from 'express';
import { ApiError } from '../domain/errors.ts';

const signals = new WeakMap<Response, AbortSignal>();

/** Aborts when the client disconnects, and when the response is finished. A response has one such signal. */
export function disconnectSignal(res: Response): AbortSignal {
  const known = signals.get(res);
  if (known) return known;
  const controller = new AbortController();
  const abort = () => controller.abort(new ApiError('conflict', 'The client disconnected.'));
  if (res.closed) abort();
  else res.once('close', abort);
  signals.set(res, controller.signal);
  return controller.signal;
}
