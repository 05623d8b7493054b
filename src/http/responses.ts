import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { create as contentDisposition } from 'content-disposition';
import type { Request, Response } from 'express';
import type { CallAnswer, CallContext } from '../database/call.ts';
import { ApiError } from '../domain/errors.ts';
import type { Download } from '../domain/files.ts';
import { knownTags } from './call-context.ts';
import { disconnectSignal } from './disconnect.ts';
import type { JsonKind } from './endpoint.ts';
import { serviceInfo } from './health.ts';
import { pictureMaxAgeSeconds } from './credentials/picture-addresses.ts';

/** After this time, a client that does not read a generated file is disconnected. */
const stalledTimeoutMs = 60_000;

/** Types that a browser may display. It saves all others. */
const inlineTypes = /^(image\/(jpeg|png|gif|webp|avif)|application\/pdf)$/;

const md5 = (body: string | Buffer) => createHash('md5').update(body).digest('hex');

/** Sends the envelope. The JSON of the database is inserted as text, without parsing it. */
export function sendJson(
  req: Request,
  res: Response,
  response: JsonKind,
  { answer, version, id }: Pick<CallAnswer, 'answer' | 'version' | 'id'>,
  isDryRun: boolean,
): void {
  res.set('Content-Type', 'application/json; charset=utf-8');
  if (response.kind === 'created' && !isDryRun) {
    const path = response.location ?? req.originalUrl.split('?')[0]?.replace(/\/$/, '') ?? '';
    if (id !== null && response.location !== null) res.set('Location', `${path}/${id}`);
    res.status(201);
  }
  // If-Match compares only the part before the dot, If-None-Match the whole tag: the JSON may differ for one version.
  if (version && sendIfUnchanged(req, res, `${version}.${md5(answer)}`)) return;
  res.end(
    response.kind === 'page'
      ? `{"success":true,${answer.slice(answer.indexOf('{') + 1)}`
      : `{"success":true,"data":${answer}}`,
  );
}

/** Lets pages of any origin show the file, which helmet forbids, and lets the browser of the reader cache it. */
export function allowEmbedding(res: Response): void {
  res.set({
    'Cross-Origin-Resource-Policy': 'cross-origin',
    'Cache-Control': `private, max-age=${String(pictureMaxAgeSeconds)}`,
  });
}

/** Sends a file of the database, or the requested range of it. */
export function sendFile(
  req: Request,
  res: Response,
  { answer, content }: CallAnswer,
  range: CallContext['range'],
): void {
  const { content_type, name, size, digest } = JSON.parse(answer) as {
    content_type: string;
    name: string;
    size: number;
    digest: string;
  };
  if (sendIfUnchanged(req, res, digest)) return;
  if (!content && req.method !== 'HEAD') throw new ApiError('not_found', 'There is no such file.');
  res.set('Accept-Ranges', 'bytes');
  if (content && range && (range.of ?? digest) === digest) setRangeHeaders(res, content, range.start, size);
  setFileHeaders(res, content_type, name);
  res.set('Content-Length', String(content?.length ?? size));
  res.end(content ?? undefined);
}

/** @throws ApiError `range_not_satisfiable` when the range has no bytes */
function setRangeHeaders(res: Response, content: Buffer, requestedStart: number | null, size: number): void {
  if (content.length === 0) {
    res.removeHeader('ETag');
    res.set('Cache-Control', 'private, no-cache');
    res.set('Content-Range', `bytes */${String(size)}`);
    throw new ApiError('range_not_satisfiable', `The file has ${String(size)} bytes.`);
  }
  const start = requestedStart ?? size - content.length;
  const end = start + content.length - 1;
  res.status(206).set('Content-Range', `bytes ${String(start)}-${String(end)}/${String(size)}`);
}

/** Sends a file that a handler made. If `content` is a function, it runs only when the client has no current copy. */
export async function sendDownload(
  req: Request,
  res: Response,
  { contentType, name, content: given, etagSource }: Download,
): Promise<void> {
  if (etagSource !== undefined && sendIfUnchanged(req, res, md5(`${serviceInfo.version} ${etagSource}`))) return;
  if (req.method === 'HEAD') {
    setFileHeaders(res, contentType, name);
    if (given instanceof Readable) given.destroy();
    res.end();
    return;
  }
  const content = typeof given === 'function' ? await given(disconnectSignal(res)) : given;
  setFileHeaders(res, contentType, name);
  if (Buffer.isBuffer(content)) res.end(content);
  else await sendStream(res, content);
}

async function sendStream(res: Response, content: Readable): Promise<void> {
  if (res.destroyed) {
    // A pipeline to a closed response would leave the source open.
    content.destroy();
    res.end();
    return;
  }
  res.setTimeout(stalledTimeoutMs, () => res.destroy());
  await pipeline(content, res).catch((error: unknown) => {
    // A client that disconnects is not an error of the service.
    if ((error as NodeJS.ErrnoException).code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  });
}

/** Headers that keep a browser from running an uploaded file as a page or a script. (helmet sets nosniff.) */
function setFileHeaders(res: Response, contentType: string, name: string): void {
  res.set({
    'Content-Type': contentType,
    'Content-Disposition': contentDisposition(name, {
      type: inlineTypes.test(contentType) ? 'inline' : 'attachment',
      fallback: name.replace(/[^\w.-]/g, '_'),
    }),
    'Content-Security-Policy': "default-src 'none'; sandbox",
  });
}

/** Sets the ETag. If the client already has this version, answers 304 and returns true. */
export function sendIfUnchanged(req: Request, res: Response, version: string): boolean {
  const etag = `"${version}"`;
  res.set('ETag', etag);
  const known = knownTags(req);
  if ((req.method !== 'GET' && req.method !== 'HEAD') || !(known.includes(etag) || known.includes('*'))) return false;
  res.removeHeader('Content-Type');
  res.status(304).end();
  return true;
}
