import type pg from 'pg';

/** Runs an operation of operators, with the functions that also answer the API. */
export async function runOperation<T>(client: pg.Client, operation: string, params: object): Promise<T> {
  const { rows } = await client.query<{ answer: T }>('select core.command_line($1, $2) as answer', [
    operation,
    JSON.stringify(params),
  ]);
  if (!rows[0]) throw new Error(`The operation ${operation} returned nothing.`);
  return rows[0].answer;
}
