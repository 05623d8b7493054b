import { isUtf8 } from 'node:buffer';
import type { Request, RequestHandler } from 'express';
import { fileTypeFromBuffer } from 'file-type';
import multer, { MulterError } from 'multer';
import { ApiError } from '../domain/errors.ts';
import type { Upload } from '../domain/files.ts';
import type { Endpoint } from './endpoint.ts';

/**
 * Takes one file of a multipart body into memory, and checks its size and type; the other fields are the body.
 * @param readBody  takes the body instead, where it may be JSON as well
 */
export function receiveUpload(upload: NonNullable<Endpoint['upload']>, readBody: RequestHandler): RequestHandler {
  const { fields, maxBytes, isOptional = false } = upload;
  const receive = multer({
    storage: multer.memoryStorage(),
    limits: { fileSize: maxBytes, files: 1, fields: 20, fieldSize: 10_000, parts: 25 },
  }).any();
  return (req, res, next) => {
    if (!req.is('multipart/form-data')) {
      if (isOptional) void readBody(req, res, next);
      else
        next(
          new ApiError(
            'unsupported_media_type',
            `Send multipart/form-data with a file in the field ${fields.join(' or ')}.`,
          ),
        );
      return;
    }
    receive(req, res, (error: unknown) => {
      if (error instanceof MulterError && error.code === 'LIMIT_FILE_SIZE') {
        next(new ApiError('payload_too_large', `The file may have ${String(maxBytes / 1024 / 1024)} MB at most.`));
      } else if (error) {
        next(new ApiError('validation_error', 'The multipart body can not be read.', { cause: error }));
      } else {
        sniff(req, upload).then(() => next(), next);
      }
    });
  };
}

/** The name that a client gave, without what no file name has; multer reads it as latin1, browsers send UTF-8. */
function storableName(name: string): string {
  const bytes = Buffer.from(name, 'latin1');
  const isDecoded = /[^\0-\xff]/.test(name) || !isUtf8(bytes);
  return (
    (isDecoded ? name : bytes.toString('utf8'))
      .replace(/[\p{Cc}\p{Cf}/\\]/gu, '')
      .slice(-200)
      .toWellFormed() || 'file'
  );
}

/** Text shows no type by its content: a name that ends so must do, where nothing else is found in it. */
const textTypes: Record<string, string> = { csv: 'text/csv' };

const ending = (name: string) => /\.([^.]*)$/.exec(name)?.[1]?.toLowerCase() ?? '';

const textType = (name: string): string | undefined => textTypes[ending(name)];

/** How files of a type end, where several endings are right. */
const endings: Record<string, string[]> = { 'image/jpeg': ['jpg', 'jpeg'], 'application/x-cfb': ['doc', 'xls', 'ppt'] };

/** A name that ends as its content does: whoever opens the file gets what was looked at, not what `invoice.html` makes of it. */
const honestName = (name: string, right: string[]) =>
  right.includes(ending(name)) ? name : `${name}.${right[0] ?? ''}`;

async function sniff(
  req: Request,
  { fields, types, isOptional = false, fault }: NonNullable<Endpoint['upload']>,
): Promise<void> {
  const file = (req.files as Express.Multer.File[] | undefined)?.find(({ fieldname }) => fields.includes(fieldname));
  if (!file && isOptional) return;
  if (!file) {
    const message = `Send a file in the field ${fields.join(' or ')}.`;
    throw new ApiError('validation_error', message, { details: [{ path: fields[0] ?? 'file', message }] });
  }
  const found = await fileTypeFromBuffer(file.buffer);
  const contentType = found?.mime ?? textType(file.originalname);
  if (!found && contentType && types.includes(contentType) && (!isUtf8(file.buffer) || file.buffer.includes(0))) {
    throw new ApiError('unsupported_media_type', 'The file is not UTF-8 text. Save it as UTF-8 and send it again.');
  }
  if (!contentType || !types.includes(contentType)) {
    throw new ApiError(
      'unsupported_media_type',
      `The file is ${contentType ?? 'of an unknown type'}; it must be ${types.join(' or ')}.`,
    );
  }
  const wrong = await fault?.(file.buffer, contentType);
  if (wrong !== undefined) {
    throw new ApiError('validation_error', `The picture ${wrong}`, {
      details: [{ path: file.fieldname, message: wrong }],
    });
  }
  const name = storableName(file.originalname);
  const upload: Upload = {
    content: file.buffer,
    contentType,
    name: honestName(name, endings[contentType] ?? [found?.ext ?? ending(name)]),
  };
  req.upload = upload;
}
