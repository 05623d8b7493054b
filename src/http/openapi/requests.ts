import { z } from 'zod';
import type { ZodOpenApiOperationObject } from 'zod-openapi';
import type { Endpoint } from '../endpoint.ts';
import { honorsIfMatch } from './errors.ts';
import { jsonContent } from './responses.ts';
import type { Operation } from '../operation.ts';
import { isUpdate, readOnlyFields } from '../body/validate.ts';

/** The body, plus the read-only fields of the record: a client may send a record back as it read it. */
function withReadOnly(body: NonNullable<Endpoint['body']>, endpoint: Endpoint, method: string): z.ZodType {
  const names = isUpdate(endpoint, method) ? readOnlyFields(endpoint, method) : [];
  if (names.length === 0 || !(body instanceof z.ZodObject)) return body;
  const asRead = z.unknown().optional().meta({ readOnly: true });
  return z
    .strictObject({ ...body.shape, ...Object.fromEntries(names.map((name) => [name, asRead])) })
    .meta({ ...body.meta() });
}

/** A JSON body, a form with a file, or either. */
export function requestBody(endpoint: Endpoint, method: string): Pick<ZodOpenApiOperationObject, 'requestBody'> {
  const { body, upload } = endpoint;
  // A missing body is treated as an empty one.
  const required = (upload !== undefined && upload.isOptional !== true) || body?.safeParse({}).success !== true;
  if (!upload)
    return body ? { requestBody: { required, content: jsonContent(withReadOnly(body, endpoint, method)) } } : {};
  const [field = 'file'] = upload.fields;
  const file = z.any().meta({ override: { type: 'string', format: 'binary' }, description: upload.types.join(', ') });
  const form = z.object({
    ...(body instanceof z.ZodObject ? body.shape : {}),
    [field]: upload.isOptional ? file.optional() : file,
  });
  return {
    requestBody: {
      required,
      content: {
        'multipart/form-data': { schema: form },
        ...(upload.isOptional && body ? jsonContent(withReadOnly(body, endpoint, method)) : {}),
      },
    },
  };
}

/** How long the answer to an idempotency key is kept; db/core/lifetimes.sql decides it. */
const idempotencyKeyHours = 24;

/** The request headers that an endpoint reads. */
export function requestHeaders(endpoint: Endpoint, operation: Operation): { header?: z.ZodObject } {
  const { response } = endpoint;
  const headers = {
    ...(operation.access === 'refresh'
      ? { 'X-Refresh-Token': z.string().optional().meta({ description: 'The refresh token, if there is no cookie.' }) }
      : {}),
    ...(response.kind === 'json' && response.knowsDevices
      ? {
          'X-Known-Device': z
            .string()
            .optional()
            .meta({ description: 'The token of the device, from an earlier login.' }),
        }
      : {}),
    ...(operation.access === 'tenant'
      ? {
          'X-Tenant-ID': z
            .string()
            .regex(/^[1-9][0-9]*$/)
            .optional()
            .meta({ description: 'The school. Optional: the token names the school too, and both must match.' }),
        }
      : {}),
    ...(operation.content === 'gives'
      ? {
          Range: z
            .string()
            .optional()
            .meta({ description: 'One byte range of the file.', examples: ['bytes=0-1023'] }),
          'If-Range': z.string().optional().meta({
            description: 'The ETag that Range refers to. If the file has changed, the whole file is returned.',
          }),
        }
      : {}),
    ...(response.kind === 'stream'
      ? {
          'Last-Event-ID': z
            .string()
            .regex(/^[0-9]{1,15}$/)
            .optional()
            .meta({ description: 'The id of the last event that you received. The stream continues after it.' }),
        }
      : {}),
    ...(honorsIfMatch(endpoint, operation)
      ? {
          'If-Match': z.string().optional().meta({
            description: 'The ETag of the version that you read. If the record has changed since, the answer is 412.',
          }),
        }
      : {}),
    ...(operation.idempotent
      ? {
          'Idempotency-Key': z
            .string()
            .max(255)
            .optional()
            .meta({
              description:
                `Makes it safe to repeat the request: for ${String(idempotencyKeyHours)} hours, a repeat gets the ` +
                'first answer.',
            }),
        }
      : {}),
  };
  return Object.keys(headers).length > 0 ? { header: z.object(headers) } : {};
}
