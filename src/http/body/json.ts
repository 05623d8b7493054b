import { isUtf8 } from 'node:buffer';
import express, { type NextFunction, type Request, type Response } from 'express';
import { ApiError } from '../../domain/errors.ts';

/** Real bodies nest less than half this deep. Deeper ones would overflow recursive code. */
const maxBodyDepth = 50;

/** Whether objects and arrays nest deeper than `maxDepth`. Goes level by level: recursion could overflow here too. */
function isDeeperThan(value: unknown, maxDepth: number): boolean {
  const containers = (values: unknown[]) => values.filter((item) => typeof item === 'object' && item !== null);
  let level = containers([value]);
  for (let depth = 0; depth < maxDepth && level.length > 0; depth++)
    level = level.flatMap((container) => containers(Object.values(container)));
  return level.length > 0;
}

/** What the parser throws for a body that is no UTF-8. It passes on only errors whose status it can set. */
const notUtf8 = (status: number) =>
  Object.assign(new Error('The body is not UTF-8.'), { status, type: 'entity.not.utf8' });

/** Refuses a body before it is decoded: a decoder replaces invalid bytes, and then different texts become equal. */
function verify(_req: unknown, _res: unknown, bytes: Buffer, charset: string): void {
  if (charset !== 'utf-8') throw notUtf8(415);
  if (!isUtf8(bytes)) throw notUtf8(400);
}

/** Reads a JSON body of at most `limit`. Refuses other types, which express.json would treat as an empty body. */
export function bodyReader(limit: string | number) {
  const json = express.json({ limit, strict: false, verify });
  return (req: Request, res: Response, next: NextFunction): void => {
    const hasBody = req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0;
    if (hasBody && !req.is('application/json')) {
      next(new ApiError('unsupported_media_type', 'Send application/json.'));
      return;
    }
    json(req, res, (error?: unknown) => {
      if (error === undefined && isDeeperThan(req.body, maxBodyDepth)) {
        const message = 'is nested too deeply';
        next(new ApiError('validation_error', `The body ${message}.`, { details: [{ path: '', message }] }));
      } else next(error);
    });
  };
}
