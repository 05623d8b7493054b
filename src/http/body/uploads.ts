import { isUtf8 } from 'node:buffer';
import type { Request, RequestHandler } from 'express';
import { fileTypeFromBuffer } from 'file-type';
import multer, { MulterError } from 'multer';
import { requestOwner } from '../request-owner.ts';
import { ApiError } from '../../domain/errors.ts';
import { PictureError, type PictureType, type Upload } from '../../domain/files.ts';
import { withoutInvisible } from '../../domain/text.ts';
import { normalizeText } from '../received-text.ts';
import { bodyReader } from './json.ts';
import type { UploadFields } from '../endpoint.ts';

/**
 * Reads one file of a multipart body into memory and checks its size and type. The other fields become the body.
 * @param readBody  reads other bodies, for endpoints that also accept JSON
 */
export function receiveUpload(upload: UploadFields, readBody: RequestHandler): RequestHandler {
  const { fields, maxBytes, isOptional = false, dataUrl, label } = upload;
  // Base64 has four characters for three bytes. The other fields get the usual limit.
  const readLargeBody = bodyReader((dataUrl?.maxBytes ?? 0) * (4 / 3) + 1024 * 1024);
  const receive = multer({
    storage: multer.memoryStorage(),
    limits: { fileSize: maxBytes, files: 1, fields: 20, fieldSize: 10_000, parts: 25 },
    // Browsers send names in UTF-8; the default is Latin-1.
    defParamCharset: 'utf8',
  }).any();
  return (req, res, next) => {
    if (!req.is('multipart/form-data')) {
      if (isOptional && dataUrl) {
        readLargeBody(req, res, (error?: unknown) => {
          if (error === undefined) takeDataUrl(req, dataUrl, upload).then(() => next(), next);
          else next(error);
        });
      } else if (isOptional) void readBody(req, res, next);
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
        next(tooLarge(maxBytes, label));
      } else if (error) {
        next(new ApiError('validation_error', 'The multipart body is malformed.', { cause: error }));
      } else {
        const fault = textFault(req);
        if (fault) next(fault);
        else checkFile(req, upload).then(() => next(), next);
      }
    });
  };
}

/**
 * The error for a field, or a name of a field or file, with U+FFFD. Multer decodes them, and has put that character in
 * place of bytes that are invalid. A text that had it before was damaged elsewhere.
 */
function textFault({ body, files }: Request): ApiError | undefined {
  const message = 'is not valid UTF-8';
  const fields = Object.entries((body ?? {}) as Record<string, unknown>);
  const field = fields.find((entry) => JSON.stringify(entry).includes('\ufffd'));
  const file = (files as Express.Multer.File[] | undefined)?.find(({ fieldname, originalname }) =>
    `${fieldname}${originalname}`.includes('\ufffd'),
  );
  if (field)
    return new ApiError('validation_error', `${field[0]}: ${message}`, { details: [{ path: field[0], message }] });
  if (file)
    return new ApiError('validation_error', `The name of the file ${message}.`, {
      details: [{ path: file.fieldname, message: `has a name that ${message}` }],
    });
  return undefined;
}

/** The file name without characters that are invisible, or invalid in one. */
const storableName = (name: string): string =>
  normalizeText(withoutInvisible(name).replace(/[\p{Cc}\ufff9-\ufffb/\\]/gu, ''))
    .slice(-200)
    .toWellFormed() || 'file';

/** Text types cannot be detected from the content, so the extension decides if nothing else is detected. */
const textTypes: Record<string, string> = { csv: 'text/csv' };

/** The bytes of a text in UTF-8. Spreadsheet programs save "Unicode text" in UTF-16, with a byte order mark. */
function utf8(content: Buffer): Buffer {
  const mark = content.toString('latin1', 0, 2);
  const encoding = mark === '\xff\xfe' ? 'utf-16le' : mark === '\xfe\xff' ? 'utf-16be' : undefined;
  if (encoding === undefined) return content;
  try {
    return Buffer.from(new TextDecoder(encoding, { fatal: true }).decode(content));
  } catch {
    return content;
  }
}

const extensionOf = (name: string) => /\.([^.]*)$/.exec(name)?.[1]?.toLowerCase() ?? '';

const textType = (name: string): string | undefined => textTypes[extensionOf(name)];

/** File extensions of types that have several. */
const extensions: Record<string, string[]> = {
  'image/jpeg': ['jpg', 'jpeg'],
  'application/x-cfb': ['doc', 'xls', 'ppt'],
};

/** Appends the extension of the detected type, so that an image named `invoice.html` is not opened as HTML. */
const withExtension = (name: string, allowed: string[]) =>
  allowed.includes(extensionOf(name)) ? name : `${name}.${allowed[0] ?? ''}`;

const tooLarge = (maxBytes: number, label = 'file') =>
  new ApiError('payload_too_large', `The ${label} must not be larger than ${String(maxBytes / 1024 / 1024)} MB.`);

/** @param fault  the error message without its subject, for example `is damaged.` */
const invalidFile = (path: string, fault: string, label = 'file') =>
  new ApiError('validation_error', `The ${label} ${fault}`, { details: [{ path, message: fault }] });

/** The bytes to store for an uploaded file. @throws ApiError `validation_error` for an unusable picture */
async function contentToStore(
  req: Request,
  { picture, label }: UploadFields,
  path: string,
  content: Buffer,
  contentType: string,
): Promise<Buffer> {
  if (!picture) return content;
  try {
    return await picture(content, contentType as PictureType, requestOwner(req));
  } catch (error) {
    throw error instanceof PictureError ? invalidFile(path, error.message, label) : error;
  }
}

/** Takes the file out of a JSON body. */
async function takeDataUrl(
  req: Request,
  { field, maxBytes, types }: NonNullable<UploadFields['dataUrl']>,
  upload: UploadFields,
): Promise<void> {
  const body = req.body as Record<string, unknown> | undefined;
  const value = body && Object.hasOwn(body, field) ? body[field] : undefined;
  if (typeof value !== 'string' || !/^data:/i.test(value)) return;
  const [, base64 = ''] = /^data:[^,]{0,200};base64,([a-z0-9+/]+={0,2})$/i.exec(value) ?? [];
  const content = Buffer.from(base64, 'base64');
  if (content.length > maxBytes) throw tooLarge(maxBytes, upload.label);
  const detected = await fileTypeFromBuffer(content);
  if (!detected || !types.includes(detected.mime))
    throw invalidFile(field, `must be a data URL of ${types.join(' or ')}, in base64.`, upload.label);
  const stored = await contentToStore(req, upload, field, content, detected.mime);
  req.body = Object.fromEntries(Object.entries(body ?? {}).filter(([name]) => name !== field));
  req.upload = { content: stored, contentType: detected.mime, name: `${field}.${detected.ext}` };
}

async function checkFile(req: Request, options: UploadFields): Promise<void> {
  const { fields, types, isOptional = false, label } = options;
  const file = (req.files as Express.Multer.File[] | undefined)?.find(({ fieldname }) => fields.includes(fieldname));
  if (!file && isOptional) return;
  if (!file) throw invalidFile(fields[0] ?? 'file', `must be sent in the field ${fields.join(' or ')}.`, label);
  const detected = await fileTypeFromBuffer(file.buffer);
  const contentType = detected?.mime ?? textType(file.originalname);
  const bytes = detected ? file.buffer : utf8(file.buffer);
  if (!detected && contentType && types.includes(contentType) && (!isUtf8(bytes) || bytes.includes(0))) {
    throw new ApiError('unsupported_media_type', 'The file is not UTF-8 text. Save it as UTF-8 and send it again.');
  }
  if (!contentType || !types.includes(contentType)) {
    throw new ApiError(
      'unsupported_media_type',
      `The file is ${contentType ?? 'of an unknown type'}; allowed: ${types.join(', ')}.`,
    );
  }
  const content = await contentToStore(req, options, file.fieldname, bytes, contentType);
  const name = storableName(file.originalname);
  const upload: Upload = {
    content,
    contentType,
    name: withExtension(name, extensions[contentType] ?? [detected?.ext ?? extensionOf(name)]),
  };
  req.upload = upload;
}
