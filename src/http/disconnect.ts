import type { Response } from 'express';
import { ApiError } from '../domain/errors.ts';

const signals = new WeakMap<Response, AbortSignal>();

/** One for all requests: every response ends with it, and to make an error takes longer than to abort. */
const disconnected = new ApiError('conflict', 'The client disconnected.');

/** Aborts when the client disconnects, and when the response is finished. A response has one such signal. */
export function disconnectSignal(res: Response): AbortSignal {
  const known = signals.get(res);
  if (known) return known;
  const controller = new AbortController();
  const abort = () => controller.abort(disconnected);
  if (res.closed) abort();
  else res.once('close', abort);
  signals.set(res, controller.signal);
  return controller.signal;
}
