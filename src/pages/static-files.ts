import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { Request, Response } from 'express';
import { sendIfUnchanged } from '../http/responses.ts';

/** A text file in memory, and its compressed versions as far as they exist. */
export interface StaticFile {
  type: string;
  plain: Buffer;
  br: Buffer | undefined;
  gzip: Buffer | undefined;
  /** A hash of the content, for the ETag. */
  digest: string;
}

export const staticFile = (
  type: string,
  plain: Buffer,
  { br, gzip: gz }: { br?: Buffer | undefined; gzip?: Buffer | undefined } = {},
): StaticFile => ({ type, plain, br, gzip: gz, digest: createHash('md5').update(plain).digest('hex') });

/** Compresses a text that is made while the service runs, once for all clients. */
export async function compressedFile(type: string, text: string): Promise<StaticFile> {
  const plain = Buffer.from(text);
  const [br, gz] = await Promise.all([
    promisify(brotliCompress)(plain, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } }),
    // Level 9 saves another 2 % of the OpenAPI document. It is compressed once per process.
    promisify(gzip)(plain, { level: 9 }),
  ]);
  return staticFile(type, plain, { br, gzip: gz });
}

/** Sends a file in the best encoding that the client accepts, or 304 if the client has it. */
export function sendStaticFile(req: Request, res: Response, file: StaticFile, cacheControl: string): void {
  res.set({ 'Content-Type': file.type, 'Cache-Control': cacheControl }).vary('Accept-Encoding');
  const encodings = [...(file.br ? ['br'] : []), ...(file.gzip ? ['gzip'] : [])];
  const accepted = req.acceptsEncodings(...encodings, 'identity') || 'identity';
  const content = accepted === 'br' ? file.br : accepted === 'gzip' ? file.gzip : undefined;
  if (sendIfUnchanged(req, res, `${file.digest}-${content ? accepted : 'identity'}`)) return;
  if (content) res.set('Content-Encoding', accepted);
  res.set('Content-Length', String((content ?? file.plain).length));
  res.end(req.method === 'HEAD' ? undefined : (content ?? file.plain));
}
