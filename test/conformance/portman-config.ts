import type { Documented, OpenApi, Schema } from '../support/server/registry.ts';
import type { Prepared } from './demo-school.ts';

/** The variable with the id of the record that the create of a collection (`/api/subjects`) returned. */
const variableOf = (collection: string) => collection.slice(1).replace(/[^a-z]/g, '_');

/** Creates with an unusual path: the collection in whose paths their record is read. */
const collections: Record<string, string> = {
  '/api/fees/payments': '/api/finance/payments',
};

/** The position of a request: logins, creates, reads, other changes, deletes. */
export function orderOf(operation: string): number {
  const [method = '', path = ''] = operation.split(' ');
  const last = ['POST /api/platform/tenants/{id}/restore', 'POST /api/auth/logout'].indexOf(operation);
  if (last >= 0) return 9 + last;
  if (method === 'POST' && !path.includes('{')) return 1;
  if (method === 'POST' && !/\{\w+\}\/\w[\w-]*$/.test(path)) return 2;
  // First the members of a record, then the record.
  if (method === 'DELETE') return /\}./.test(path) ? 6 : 7;
  return { GET: 4, POST: 3 }[method] ?? 5;
}

/** The names of the file fields of a form. */
const fileFields = ({ requestBody }: Documented) =>
  Object.entries(requestBody?.content['multipart/form-data']?.schema.properties ?? {}).flatMap(([name, { format }]) =>
    format === 'binary' ? [name] : [],
  );

/** A change of a generated body. */
interface Change {
  key: string;
  value?: unknown;
  overwrite?: boolean;
  remove?: boolean;
}

const texts = (of: Record<string, unknown>) =>
  Object.fromEntries(Object.entries(of).map(([key, value]) => [key, String(value)]));

/** Optional texts that not every value fits. */
const restricted =
  /password|currency|locale|time_zone|website|subdomain|action_url|subject|token|recovery_code|leaving_reason/;

/**
 * Changes of the generated JSON body. Generated ids are replaced by ids of the demo school. Required fields and optional
 * texts are sent as generated. Other optional fields are left out, since most of their combinations break rules.
 */
function bodyChanges(document: OpenApi, { requestBody }: Documented, ids: Record<string, number>): Change[] {
  const schema = requestBody?.content['application/json']?.schema ?? {};
  const { properties = {}, required = [] } = resolve(document, schema);
  return Object.entries(properties).flatMap<Change>(([key, property]) => {
    const isText = [property, ...(property.anyOf ?? [])].some(
      ({ type, format, pattern, enum: values }) => type === 'string' && !format && !pattern && !values,
    );
    if (required.includes(key)) return key in ids ? [{ key, value: ids[key], overwrite: true }] : [];
    return isText && !restricted.test(key) ? [] : [{ key, remove: true }];
  });
}

const resolve = (document: OpenApi, { $ref, ...schema }: Schema): Schema =>
  $ref ? (document.components.schemas[$ref.split('/').at(-1) ?? ''] ?? {}) : schema;

/** Portman's configuration: values that the document cannot express, logins, and all contract tests. */
export function portmanConfig(
  document: OpenApi,
  { ids, given, tokens }: Prepared,
  serviceUrl: string,
  isDirect: (operation: string) => boolean,
): object {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, documented]) => ({ path, method: method.toUpperCase(), documented })),
  );
  const creates = operations.filter(({ method, documented }) => method === 'POST' && '201' in documented.responses);
  const overwrites = operations.map(({ path, method, documented }) => {
    const { as, body, file, query = {}, headers = {}, path: inPath = {} } = given[documented.operationId] ?? {};
    const parameters = [...path.matchAll(/\{(\w+)\}/g)].map(([whole, name = '']) => {
      const collection = path.slice(0, path.indexOf(`/${whole}`));
      const isCreated = creates.some((one) => (collections[one.path] ?? one.path) === collection);
      return {
        key: name,
        value: String(
          inPath[name] ??
            (name === 'id' && isCreated ? `{{${variableOf(collection)}}}` : (ids[name] ?? ids[collection] ?? '')),
        ),
        overwrite: true,
      };
    });
    const values = (of: Record<string, unknown>) =>
      Object.entries(of).map(([key, value]) => ({ key, value, overwrite: true, disable: false }));
    const caller = as ?? (path.startsWith('/api/platform') ? 'operator' : undefined);
    return {
      openApiOperation: `${method}::${path}`,
      overwriteRequestPathVariables: parameters,
      overwriteRequestQueryParams: values(texts(query)),
      overwriteRequestHeaders: values(texts(headers)),
      overwriteRequestBody: Array.isArray(body)
        ? values({ '.': body })
        : [
            ...bodyChanges(document, documented, ids),
            ...fileFields(documented).map((key) => ({ key, value: file, overwrite: true })),
            ...values(body ?? {}),
          ],
      ...(isDirect(`${method} ${path}`) ? { overwriteRequestBaseUrl: { value: serviceUrl, overwrite: true } } : {}),
      ...(caller && documented.security.length > 0
        ? { overwriteRequestSecurity: { bearer: { token: tokens[caller] } } }
        : {}),
    };
  });
  const everywhere = (test: string) => ({ openApiOperation: '*::/*', [test]: { enabled: true } });
  return {
    version: 1.0,
    tests: {
      contractTests: [
        ...['statusSuccess', 'contentType', 'jsonBody', 'schemaValidation', 'headersPresent'].map(everywhere),
      ],
    },
    overwrites,
    assignVariables: creates.map(({ path }) => ({
      openApiOperation: `POST::${path}`,
      collectionVariables: [{ responseBodyProp: 'data.id', name: variableOf(collections[path] ?? path) }],
    })),
    globals: {
      collectionVariables: { bearerToken: tokens.admin, token: given['calendar_get']?.path?.['token'] },
      stripResponseExamples: true,
    },
  };
}
