import type { Readable } from 'node:stream';

/** A file that came in, with the type that its content shows, whatever its name says. */
export interface Upload {
  content: Buffer;
  contentType: string;
  name: string;
}

/** A file that a handler made. */
export interface Download {
  name: string;
  contentType: string;
  /** A function is asked only when the client does not have the file yet, and wants it; the signal says that it has gone. */
  content: Buffer | Readable | ((signal: AbortSignal) => Promise<Buffer>);
  /** All that the content depends on, besides the version of the service: its hash is the ETag. */
  etagSource?: string;
}
