import { hasSqlDetails, loadModule, parse } from 'libpg-query';

/** One statement of a text. */
export interface Statement {
  text: string;
  /** The line of the text on which it begins, from 1. */
  line: number;
  /** Its kind in upper case, such as `SELECT`, `UPDATE` or `DO`. */
  command: string;
}

/** The text ends inside a statement. */
export class IncompleteError extends Error {}

const lineAt = (text: string, position: number) => text.slice(0, position).split('\n').length;

function explain(error: unknown, text: string): Error {
  const message = error instanceof Error ? error.message : String(error);
  if (/at end of input|unterminated/.test(message)) return new IncompleteError(message, { cause: error });
  const position = hasSqlDetails(error) ? (error.sqlDetails?.cursorPosition ?? 0) : 0;
  return new Error(`line ${String(lineAt(text, position))}: ${message}`, { cause: error });
}

/**
 * Splits a text into its statements with the parser of Postgres.
 * @throws for a text that is not SQL, or that begins or ends transactions; IncompleteError if only its end is missing
 */
export async function splitStatements(text: string): Promise<Statement[]> {
  await loadModule();
  const { stmts = [] } = (await parse(text).catch((error: unknown) => {
    throw explain(error, text);
  })) as { stmts?: { stmt: object; stmt_location?: number; stmt_len?: number }[] };
  // The parser counts bytes, not characters.
  const bytes = Buffer.from(text);
  return stmts.map(({ stmt, stmt_location: start = 0, stmt_len: length }) => {
    const before = bytes.subarray(0, start).toString();
    const own = bytes.subarray(start, length ? start + length : undefined).toString();
    const line = lineAt(before + own, before.length + own.length - own.trimStart().length);
    const kind = Object.keys(stmt)[0] ?? '';
    if (kind === 'TransactionStmt')
      throw new Error(
        `line ${String(line)}: all statements run in one transaction, which the command begins and ends. Remove ` +
          'begin, commit, rollback and savepoints.',
      );
    return { text: own.trim(), line, command: kind.replace(/Stmt$/, '').toUpperCase() };
  });
}
