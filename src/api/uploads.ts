import { isUtf8 } from 'node:buffer';
import type { Request, RequestHandler } from 'express';
import { fileTypeFromBuffer } from 'file-type';
import multer, { MulterError } from 'multer';
import { ApiError } from './errors.ts';
import type { Endpoint } from './endpoint.ts';

/** A file that came in, with the type that its content shows, whatever its name says. */
export interface Upload {
  content: Buffer;
  contentType: string;
  name: string;
}

/**
 * Takes one file of a multipart body into memory, and checks its size and type; the other fields are the body.
 * @param readBody  takes the body instead, where it may be JSON as well
 */
export function receiveUpload({ fields, maxBytes, types, isOptional = false }: NonNullable<Endpoint['upload']>, readBody: RequestHandler): RequestHandler {
  const receive = multer({ storage: multer.memoryStorage(), limits: { fileSize: maxBytes, files: 1, fields: 20, fieldSize: 10_000, parts: 25 } }).any();
  return (req, res, next) => {
    if (!req.is('multipart/form-data')) {
      if (isOptional) void readBody(req, res, next);
      else next(new ApiError('unsupported_media_type', `Send multipart/form-data with a file in the field ${fields.join(' or ')}.`));
      return;
    }
    receive(req, res, (error: unknown) => {
      if (error instanceof MulterError && error.code === 'LIMIT_FILE_SIZE') {
        next(new ApiError('payload_too_large', `The file may have ${String(maxBytes / 1024 / 1024)} MB at most.`));
      } else if (error) {
        next(new ApiError('validation_error', 'The multipart body can not be read.', { cause: error }));
      } else {
        sniff(req, fields, types, isOptional).then(() => next(), next);
      }
    });
  };
}

/** The name that a client gave, without what no file name has; multer reads it as latin1, browsers send UTF-8. */
const storableName = (name: string) =>
  Buffer.from(name, 'latin1')
    .toString('utf8')
    .replace(/[\p{Cc}\p{Cf}/\\]/gu, '')
    .slice(-200)
    .toWellFormed() || 'file';

/** Text shows no type by its content: a name that ends so must do, where nothing else is found in it. */
const textTypes: Record<string, string> = { csv: 'text/csv' };

const textType = (name: string) => textTypes[name.split('.').at(-1)?.toLowerCase() ?? ''];

async function sniff(req: Request, fields: string[], types: string[], isOptional: boolean): Promise<void> {
  const file = (req.files as Express.Multer.File[] | undefined)?.find(({ fieldname }) => fields.includes(fieldname));
  if (!file && isOptional) return;
  if (!file) {
    const message = `Send a file in the field ${fields.join(' or ')}.`;
    throw new ApiError('validation_error', message, { details: [{ path: fields[0] ?? 'file', message }] });
  }
  const contentType = (await fileTypeFromBuffer(file.buffer))?.mime ?? textType(file.originalname);
  if (contentType === textType(file.originalname) && (!isUtf8(file.buffer) || file.buffer.includes(0))) {
    throw new ApiError('unsupported_media_type', 'The file is not UTF-8 text. Save it as UTF-8 and send it again.');
  }
  if (!contentType || !types.includes(contentType)) {
    throw new ApiError('unsupported_media_type', `The file is ${contentType ?? 'of an unknown type'}; it must be ${types.join(' or ')}.`);
  }
  const upload: Upload = { content: file.buffer, contentType, name: storableName(file.originalname) };
  req.upload = upload;
}

declare module 'express-serve-static-core' {
  interface Request {
    upload?: Upload;
  }
}
