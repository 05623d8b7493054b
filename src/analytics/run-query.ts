import type pg from 'pg';
import { execute, isSafeError } from 'postgraphile/grafast';
import {
  type DocumentNode,
  getOperationAST,
  getVariableValues,
  GraphQLError,
  type GraphQLFormattedError,
  type GraphQLSchema,
  OperationTypeNode,
  parse,
  specifiedRules,
  validate,
} from 'postgraphile/graphql';
import { limitError, type QueryTimeouts, type RequestClient, requestClient } from './database.ts';
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
import { withDates } from './relative-dates.ts';
import type { TenantScope } from './scope.ts';
import { checkStocks } from './stocks.ts';

/** A GraphQL query of an analyst. */
export interface AnalyticsQuery {
  query: string;
  variables: Record<string, unknown>;
  operationName: string | undefined;
  scope: TenantScope;
}

/** The response to a query. */
export interface QueryResult {
  /** A GraphQL response as JSON. */
  body: string;
  /** The query was rejected before execution. */
  isRefused: boolean;
  /** Internal errors for the log, without data values. */
  faults: object[];
}

/** Size of the cache of validated documents. PostGraphile caches its plans per document. */
const maxCachedDocuments = 200;

/** The settings of PostGraphile for running queries. */
const resolvedPreset: GraphileConfig.ResolvedPreset = {
  plugins: [],
  disablePlugins: [],
  lib: {} as GraphileConfig.Lib,
  grafast: { timeouts: { planning: 2_000 } },
};

/** A validated document; its variables still have to be checked. */
interface Prepared {
  document: DocumentNode;
  size: Size;
}

/** An error for the log, without Postgres messages that quote data values. */
function errorForLog(error: unknown): object {
  if (!(error instanceof Error)) return { name: typeof error };
  const { code, routine } = error as { code?: string; routine?: string };
  return { name: error.name, code, routine, ...(code ? {} : { message: error.message, stack: error.stack }) };
}

/** Converts an error for the response; internal errors are added to `faults` and hidden. */
function toResponseError(error: GraphQLError, faults: object[]): GraphQLFormattedError {
  const { message, path, locations } = error.toJSON();
  const where = { ...(locations ? { locations } : {}), ...(path ? { path } : {}) };
  let cause: unknown = error;
  while (cause instanceof GraphQLError && cause.originalError) cause = cause.originalError;
  if (cause instanceof GraphQLError)
    return { message: cause.message || message, ...where, extensions: { code: 'BAD_USER_INPUT', ...cause.extensions } };
  // Grafast's messages about invalid cursors.
  if (cause instanceof Error && isSafeError(cause))
    return { message: cause.message, ...where, extensions: { code: 'BAD_USER_INPUT' } };
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  if (code.startsWith('22'))
    return {
      message: 'A value is out of range or has the wrong type.',
      ...where,
      extensions: { code: 'BAD_USER_INPUT' },
    };
  faults.push(errorForLog(cause));
  // 40001: a replica cancels queries that conflict with replication.
  if (
    /^(08|40001|53|57|25006|ECONN|ENOENT|EPIPE|ETIMEDOUT)/.test(code) ||
    (cause instanceof Error && /timeout exceeded|Connection terminated/.test(cause.message))
  )
    return {
      message: 'The database is not available. Try again in a moment.',
      ...where,
      extensions: { code: 'UNAVAILABLE' },
    };
  return { message: 'An internal error occurred.', ...where, extensions: { code: 'INTERNAL_ERROR' } };
}

/** Creates a function that runs the queries of analysts. */
export function queryRunner(
  schema: GraphQLSchema,
  pool: pg.Pool,
  timeouts: QueryTimeouts,
): (query: AnalyticsQuery, signal: AbortSignal) => Promise<QueryResult> {
  const documents = new Map<string, Prepared | readonly GraphQLError[]>();

  /** Parses and validates a query and adds page sizes. @returns the errors if it is invalid */
  function prepare(query: string): Prepared | readonly GraphQLError[] {
    const cached = documents.get(query);
    if (cached) return cached;
    let prepared: Prepared | readonly GraphQLError[];
    try {
      if (query.length > limits.characters) {
        throw new GraphQLError(`The query must not be longer than ${String(limits.characters)} characters.`, {
          extensions: { code: 'TOO_LONG' },
        });
      }
      const document = parse(query, { maxLexicalTokens: limits.tokens });
      const size = checkSize(document);
      const errors = validate(schema, document, specifiedRules, { maxErrors: 10 });
      for (const error of errors) error.extensions['code'] = 'INVALID_QUERY';
      prepared = errors.length > 0 ? errors : { document: withPages(schema, document), size };
    } catch (error) {
      if (!(error instanceof GraphQLError)) throw error;
      error.extensions['code'] ??= 'INVALID_QUERY';
      prepared = [error];
    }
    const [oldest] = documents.keys();
    if (oldest !== undefined && documents.size >= maxCachedDocuments) documents.delete(oldest);
    documents.set(query, prepared);
    return prepared;
  }

  return async ({ query, variables: given, operationName, scope }, signal) => {
    const faults: object[] = [];
    const refused = (errors: readonly GraphQLError[]): QueryResult => ({
      body: JSON.stringify({ errors: errors.map((error) => toResponseError(error, faults)) }),
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
          new GraphQLError('Select one of the operations of the query with operationName.', {
            extensions: { code: 'INVALID_QUERY' },
          }),
        ]);
      if (operation.operation !== OperationTypeNode.QUERY)
        return refused([
          new GraphQLError(`This API is read-only and has no ${operation.operation}.`, {
            extensions: { code: 'READ_ONLY' },
          }),
        ]);
      checkVariables(given);
      const variables = withDates(given);
      const { coerced, errors } = getVariableValues(schema, operation.variableDefinitions ?? [], variables, {
        maxErrors: 10,
      });
      if (errors) return refused(errors);
      checkCost(schema, document, operation, coerced);
      checkStocks(schema, document, operation, coerced);
      client = requestClient(pool, scope, timeouts, maxBytes(size), signal);
      const result = await execute({
        schema,
        document,
        operationName: operationName ?? null,
        variableValues: variables,
        contextValue: { pgSettings: null, withPgClient: client.withPgClient },
        resolvedPreset,
        outputDataAsString: true,
      });
      if (Symbol.asyncIterator in result) throw new Error('The query returned a stream.');
      const data = result.data as unknown as string | null | undefined;
      if (data && data.length > maxCharacters)
        throw limitError(
          'ANSWER_TOO_LARGE',
          `The response is larger than ${String(maxCharacters / 1024 / 1024)} MB. ` +
            'Filter, group by fewer columns, or select fewer rows or fields.',
        );
      const responseErrors = result.errors?.map((error) => toResponseError(error, faults));
      return {
        body: `{${responseErrors ? `"errors":${JSON.stringify(responseErrors)},` : ''}"data":${data ?? 'null'}}`,
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
