import type pg from 'pg';
import { execute, isSafeError } from 'postgraphile/grafast';
import {
  type DocumentNode,
  getOperationAST,
  getVariableValues,
  GraphQLError,
  type GraphQLFormattedError,
  OperationTypeNode,
  parse,
  specifiedRules,
  validate,
} from 'postgraphile/graphql';
import { limitError, type RequestClient, requestClient } from './database.ts';
import {
  checkCost,
  checkSize,
  checkVariables,
  limits,
  maxBytes,
  maxCharacters,
  type Size,
  withPages,
} from './limits.ts';
import type { TenantScope } from './scope.ts';
import type { AnalyticsSchema } from './schema.ts';

/** What an analyst asks. */
export interface AnalyticsQuery {
  query: string;
  variables: Record<string, unknown>;
  operationName: string | undefined;
  scope: TenantScope;
}

/** What they are answered. */
export interface QueryResult {
  /** JSON, as GraphQL wants it. */
  body: string;
  /** Nothing was run. */
  isRefused: boolean;
  /** What went wrong on our side, for the log: it has no values of anybody. */
  faults: object[];
}

/** So many documents are kept as they were checked; PostGraphile keeps its plans by them. */
const maxDocuments = 200;

/** A document that may be run on this schema, if its variables let it. */
interface Prepared {
  document: DocumentNode;
  size: Size;
}

/** What the log may know of an error: what Postgres says of values stays out of it. */
function errorForLog(error: unknown): object {
  if (!(error instanceof Error)) return { name: typeof error };
  const { code, routine } = error as { code?: string; routine?: string };
  return { name: error.name, code, routine, ...(code ? {} : { message: error.message, stack: error.stack }) };
}

/** An error as an analyst may see it. */
function shown(error: GraphQLError, faults: object[]): GraphQLFormattedError {
  const { message, path, locations } = error.toJSON();
  const where = { ...(locations ? { locations } : {}), ...(path ? { path } : {}) };
  let cause: unknown = error;
  while (cause instanceof GraphQLError && cause.originalError) cause = cause.originalError;
  if (cause instanceof GraphQLError)
    return { message: cause.message || message, ...where, extensions: { code: 'BAD_USER_INPUT', ...cause.extensions } };
  // What Grafast says of a cursor.
  if (cause instanceof Error && isSafeError(cause))
    return { message: cause.message, ...where, extensions: { code: 'BAD_USER_INPUT' } };
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  if (code.startsWith('22'))
    return { message: 'A value is out of range or not of its type.', ...where, extensions: { code: 'BAD_USER_INPUT' } };
  faults.push(errorForLog(cause));
  // 40001: a replica that has to go on ends who reads what is gone.
  if (
    /^(08|40001|53|57|25006|ECONN|ENOENT|EPIPE|ETIMEDOUT)/.test(code) ||
    (cause instanceof Error && /timeout exceeded|Connection terminated/.test(cause.message))
  )
    return {
      message: 'The database is not available. Try again in a moment.',
      ...where,
      extensions: { code: 'UNAVAILABLE' },
    };
  return { message: 'Something went wrong on our side.', ...where, extensions: { code: 'INTERNAL_ERROR' } };
}

/** Runs the queries of analysts on one schema and one pool. */
export function queryRunner(
  { schema, resolvedPreset }: AnalyticsSchema,
  pool: pg.Pool,
): (query: AnalyticsQuery) => Promise<QueryResult> {
  const documents = new Map<string, Prepared | readonly GraphQLError[]>();

  /** The document of a query with its pages, or what is wrong with it. */
  function prepare(query: string): Prepared | readonly GraphQLError[] {
    const known = documents.get(query);
    if (known) return known;
    let made: Prepared | readonly GraphQLError[];
    try {
      if (query.length > limits.characters) {
        throw new GraphQLError(`The query may have ${String(limits.characters)} characters.`, {
          extensions: { code: 'TOO_LONG' },
        });
      }
      const document = parse(query, { maxTokens: limits.tokens });
      const size = checkSize(document);
      const errors = validate(schema, document, specifiedRules, { maxErrors: 10 });
      for (const error of errors) error.extensions['code'] = 'INVALID_QUERY';
      made = errors.length > 0 ? errors : { document: withPages(schema, document), size };
    } catch (error) {
      if (!(error instanceof GraphQLError)) throw error;
      error.extensions['code'] ??= 'INVALID_QUERY';
      made = [error];
    }
    const [oldest] = documents.keys();
    if (oldest !== undefined && documents.size >= maxDocuments) documents.delete(oldest);
    documents.set(query, made);
    return made;
  }

  return async ({ query, variables, operationName, scope }) => {
    const faults: object[] = [];
    const refused = (errors: readonly GraphQLError[]): QueryResult => ({
      body: JSON.stringify({ errors: errors.map((error) => shown(error, faults)) }),
      isRefused: true,
      faults,
    });
    let client: RequestClient | undefined;
    try {
      const prepared = prepare(query);
      if (!('document' in prepared)) return refused(prepared);
      const { document, size } = prepared;
      const operation = getOperationAST(document, operationName);
      if (!operation)
        return refused([
          new GraphQLError('Name one of the operations of the query: operationName.', {
            extensions: { code: 'INVALID_QUERY' },
          }),
        ]);
      if (operation.operation !== OperationTypeNode.QUERY)
        return refused([
          new GraphQLError(`There is no ${operation.operation} here: analysts only read.`, {
            extensions: { code: 'READ_ONLY' },
          }),
        ]);
      checkVariables(variables);
      const { coerced, errors } = getVariableValues(schema, operation.variableDefinitions ?? [], variables, {
        maxErrors: 10,
      });
      if (errors) return refused(errors);
      checkCost(schema, document, operation, coerced);
      client = requestClient(pool, scope, maxBytes(size));
      const result = await execute({
        schema,
        document,
        operationName: operationName ?? null,
        variableValues: variables,
        contextValue: { pgSettings: null, withPgClient: client.withPgClient },
        resolvedPreset,
        outputDataAsString: true,
      });
      if (Symbol.asyncIterator in result) throw new Error('A query answered a stream.');
      const data = result.data as unknown as string | null | undefined;
      if (data && data.length > maxCharacters)
        throw limitError(
          'ANSWER_TOO_LARGE',
          `The answer has more than ${String(maxCharacters / 1024 / 1024)} MB. Group by less, filter, or ask for fewer rows or fields.`,
        );
      const shownErrors = result.errors?.map((error) => shown(error, faults));
      return {
        body: `{${shownErrors ? `"errors":${JSON.stringify(shownErrors)},` : ''}"data":${data ?? 'null'}}`,
        isRefused: false,
        faults,
      };
    } catch (error) {
      return refused([
        error instanceof GraphQLError
          ? error
          : new GraphQLError('', { originalError: error instanceof Error ? error : new Error(String(error)) }),
      ]);
    } finally {
      await client?.end();
    }
  };
}
