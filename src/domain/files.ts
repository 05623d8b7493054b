import type { Readable } from 'node:stream';

/** An uploaded file. `contentType` is detected from the content, not from the name. */
export interface Upload {
  content: Buffer;
  contentType: string;
  name: string;
}

/** A file to send to the client. */
export interface Download {
  name: string;
  contentType: string;
  /** A function is called only if the client has no current copy; the signal aborts when the client disconnects. */
  content: Buffer | Readable | ((signal: AbortSignal) => Promise<Buffer>);
  /** Everything that the content depends on, except the version of the service. The ETag is a hash of it. */
  etagSource?: string;
}

export type PictureType = 'image/jpeg' | 'image/png' | 'image/webp';

/** An unusable picture. The message continues a sentence that starts with "The picture". */
export class PictureError extends Error {}
