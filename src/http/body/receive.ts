import type { RequestHandler } from 'express';
import { fairQueue, type FairQueue } from '../../concurrency/fair-queue.ts';
import { ApiError } from '../../domain/errors.ts';
import { disconnectSignal } from '../disconnect.ts';
import { requestOwner } from '../request-owner.ts';
import type { HttpSettings } from '../services.ts';

type Settings = Pick<HttpSettings, 'BODY_STALL_MS' | 'BODY_TIMEOUT_MS' | 'UPLOADS_AT_A_TIME'>;

/** Larger bodies need one of the slots of `UPLOADS_AT_A_TIME`, and so do those that do not declare their size. */
const maxSmallBytes = 64 * 1024;
/** A body makes progress if it brings this much in `BODY_STALL_MS`, or ends. */
const minProgressBytes = 64 * 1024;
/** How long a large body waits for its slot. Nothing of it is read meanwhile. */
const maxWaitMs = 20_000;

const tooSlow = () =>
  new ApiError('request_timeout', 'The body arrived too slowly. Try again with a better connection or a smaller file.');

const busy = () =>
  new ApiError('unavailable', 'Too many uploads are in progress. Try again in a moment.', { retryAfter: 5 });

/** The large bodies that the process keeps in memory at a time. docs/operations/running.md has the figures. */
const uploadQueue = (max: number): FairQueue =>
  fairQueue({
    name: 'uploads',
    // How long an upload takes depends on its client, so that one school never uses all slots.
    maxRunning: { total: max, school: Math.max(1, Math.ceil(max * 0.75)), user: Math.max(1, Math.ceil(max / 4)) },
    maxInProgress: { total: max * 8, school: max * 4, user: max },
    refusal: (scope) =>
      scope === 'total'
        ? busy()
        : new ApiError('rate_limited', 'You or your school have other uploads in progress. Send fewer at a time.', {
            retryAfter: 5,
          }),
  });

/** Whether the body does not fit into `maxSmallBytes`, or may not. */
const isLarge = ({ headers }: { headers: Record<string, unknown> }) =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > maxSmallBytes;

/**
 * Runs a body reader within the time limits of a body.
 * @throws ApiError `request_timeout`; the connection is closed after the answer
 */
export const readInTime =
  (
    read: RequestHandler,
    { BODY_TIMEOUT_MS, BODY_STALL_MS }: Pick<Settings, 'BODY_STALL_MS' | 'BODY_TIMEOUT_MS'>,
  ): RequestHandler =>
  (req, res, next) => {
    let receivedBytes = req.socket.bytesRead;
    const timeout = setTimeout(() => end(tooSlow()), BODY_TIMEOUT_MS);
    const progress = setInterval(() => {
      if (req.socket.bytesRead - receivedBytes < minProgressBytes) end(tooSlow());
      receivedBytes = req.socket.bytesRead;
    }, BODY_STALL_MS);
    const stop = () => {
      clearTimeout(timeout);
      clearInterval(progress);
    };
    let isOver = false;
    function end(error?: unknown): void {
      if (isOver) return;
      isOver = true;
      stop();
      if (error instanceof ApiError && error.error === 'request_timeout') res.set('Connection', 'close');
      next(error);
    }
    res.once('close', stop);
    void read(req, res, end);
  };

/**
 * Makes middleware that reads bodies of logged-in users. A large body waits for a slot, which it keeps until the
 * response ends: until then the service has it in memory.
 */
export function bodyReceiver(settings: Settings): (read: RequestHandler) => RequestHandler {
  const uploads = uploadQueue(settings.UPLOADS_AT_A_TIME);
  return (read) => {
    const readBody = readInTime(read, settings);
    return async (req, res, next) => {
      if (isLarge(req)) {
        const disconnected = disconnectSignal(res);
        const waitSignal = AbortSignal.any([disconnected, AbortSignal.timeout(maxWaitMs)]);
        const release = await uploads.enter(requestOwner(req), waitSignal).catch((error: unknown) => {
          throw error instanceof ApiError ? error : busy();
        });
        res.once('close', release);
        if (disconnected.aborted) release();
      }
      await readBody(req, res, next);
    };
  };
}
