import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, open, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { StringDecoder } from 'node:string_decoder';
import { createGunzip, createGzip } from 'node:zlib';
import type pg from 'pg';
import { z } from 'zod';

/** The default folder of school exports. */
export const exportsFolder = (config: { DATA_DIR: string }): string => join(config.DATA_DIR, 'exports');

/** A file name with the current time (UTC), so that exports do not overwrite each other. */
export const archiveName = (tenant: { id: string; subdomain: string }): string =>
  `${tenant.subdomain}-${tenant.id}-${new Date().toISOString().replace(/[:.]/g, '')}.jsonl.gz`;

/** Reads the lines of an export, except the last, in batches from open cursors. */
async function* readCursors(
  client: pg.ClientBase,
  cursors: { name: string; at_a_time: number }[],
  onLines: (count: number) => void,
): AsyncGenerator<string> {
  for (const { name, at_a_time } of cursors) {
    for (;;) {
      const { rows } = await client.query<[string]>({
        text: `fetch ${String(at_a_time)} from ${JSON.stringify(name)}`,
        rowMode: 'array',
      });
      if (rows.length === 0) break;
      onLines(rows.length);
      yield rows.map(([line]) => `${line}\n`).join('');
    }
  }
}

/**
 * Exports one school to a gzipped file of JSON lines, from one snapshot and in constant memory: a header, the rows of
 * each table, the sequences, and a last line that proves that the file is not truncated. The file is written
 * atomically and replaces an existing one. The caller must hold the school's advisory lock.
 * @param cursors  the query that opens the cursors: `core.archive_open`, or a function that the caller's role may call
 * @returns the number of lines; undefined when the query opened no cursor, and then no file is written
 */
export async function exportTenant(
  client: pg.ClientBase,
  cursors: { text: string; values: unknown[] },
  file: string,
): Promise<number | undefined> {
  const folder = dirname(file);
  const draft = join(folder, `.${basename(file)}.${String(process.pid)}`);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await client.query('begin isolation level repeatable read read only');
  try {
    const { rows } = await client.query<{ name: string; at_a_time: number }>(cursors);
    if (rows.length === 0) return undefined;
    let lines = 0;
    const text = async function* () {
      yield* readCursors(client, rows, (count) => (lines += count));
      yield `${JSON.stringify({ end: true, lines })}\n`;
    };
    await rm(draft, { force: true });
    // flush: sync the content to disk before the rename.
    await pipeline(
      Readable.from(text(), { objectMode: false }),
      createGzip(),
      createWriteStream(draft, { flags: 'wx', mode: 0o600, flush: true }),
    );
    await rename(draft, file);
    const directory = await open(folder);
    await directory.sync().finally(() => directory.close());
    return lines + 1;
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  } finally {
    // Closes the cursors; the transaction is read-only.
    await client.query('rollback').catch(() => undefined);
  }
}

const Header = z.object({
  format: z.literal('school-management-tenant'),
  format_version: z.literal(1),
  tenant: z.object({ id: z.int().positive(), subdomain: z.string() }),
});
const Sequence = z.object({ sequence: z.string(), last_value: z.int(), is_called: z.boolean() });
const End = z.object({ end: z.literal(true), lines: z.int() });

/** Parses a line. @returns undefined when it does not match the schema */
function parseLine<T extends z.ZodType>(schema: T, line: string): z.output<T> | undefined {
  try {
    return schema.safeParse(JSON.parse(line)).data;
  } catch {
    return undefined;
  }
}

/** Splits a stream into lines. A line can have many megabytes and span many chunks. */
async function* splitLines(source: AsyncIterable<Buffer>): AsyncGenerator<string, void> {
  const decoder = new StringDecoder('utf8');
  let pieces: string[] = [];
  for await (const chunk of source) {
    const [first = '', ...others] = decoder.write(chunk).split('\n');
    pieces.push(first);
    for (const other of others) {
      yield pieces.join('');
      pieces = [other];
    }
  }
  const rest = pieces.join('');
  if (rest !== '') yield rest;
}

/** Maximum number of characters of rows per insert. */
const maxBatchCharacters = 1_000_000;

/** The result of an import. */
export interface Imported {
  id: number;
  subdomain: string;
  rows: number;
}

/**
 * Loads the lines of a file in the caller's transaction. Rows are passed on as text: parsing them in JavaScript would
 * round large numbers.
 */
async function load(client: pg.ClientBase, lines: AsyncGenerator<string, void>, file: string): Promise<Imported> {
  const invalidFile = new Error(`${file} is not a school export. Nothing was changed.`);
  const { value: headerText } = await lines.next();
  const header = typeof headerText === 'string' ? parseLine(Header, headerText) : undefined;
  if (!header) throw invalidFile;
  const inserts = await client.query<{ name: string; statement: string }>(
    'select name, statement from core.archive_begin($1)',
    [headerText],
  );
  const statements = new Map(inserts.rows.map(({ name, statement }) => [name, statement]));
  const sequences: z.output<typeof Sequence>[] = [];
  let seen = 1;
  let rows = 0;
  let end: z.output<typeof End> | undefined;
  let batch = { table: '', rows: [] as string[], size: 0 };
  const flush = async () => {
    const statement = statements.get(batch.table);
    if (statement) rows += (await client.query(statement, [`[${batch.rows.join(',')}]`])).rowCount ?? 0;
  };
  for await (const line of lines) {
    if (end) throw invalidFile;
    const [, table, row] = /^\{"table":"(\w+)","row":(.*)\}$/s.exec(line) ?? [];
    if (table !== undefined && row !== undefined) {
      if (!statements.has(table)) throw invalidFile;
      if (table !== batch.table || batch.size + row.length > maxBatchCharacters) {
        await flush();
        batch = { table, rows: [], size: 0 };
      }
      batch.rows.push(row);
      batch.size += row.length;
    } else {
      const sequence = parseLine(Sequence, line);
      end = parseLine(End, line);
      if (sequence) sequences.push(sequence);
      else if (end?.lines !== seen) throw invalidFile;
    }
    seen++;
  }
  if (!end) throw new Error(`${file} is truncated. Nothing was changed.`);
  await flush();
  await client.query('select core.archive_end($1, $2)', [headerText, JSON.stringify(sequences)]);
  return { id: header.tenant.id, subdomain: header.tenant.subdomain, rows };
}

/**
 * Imports a school under its original id, in one transaction: creates the tables as of the version of the file,
 * inserts the rows, then runs later migrations.
 * @throws when the file is truncated or invalid, or conflicts with the database; then nothing has changed
 */
export async function importTenant(client: pg.ClientBase, file: string): Promise<Imported> {
  let imported: Imported | undefined;
  await client.query('begin');
  try {
    await pipeline(
      createReadStream(file),
      createGunzip({ chunkSize: 256 * 1024 }),
      async (source: AsyncIterable<Buffer>) => {
        imported = await load(client, splitLines(source), file);
      },
    );
    await client.query('commit');
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    const code = (error as NodeJS.ErrnoException).code ?? '';
    if (code === 'Z_BUF_ERROR') throw new Error(`${file} is truncated. Nothing was changed.`, { cause: error });
    // Data exceptions and constraint violations: a line is missing or was changed.
    if (/^2[23]/.test(code)) throw new Error(`${file} is not a school export. Nothing was changed.`, { cause: error });
    if (code.startsWith('Z_'))
      throw new Error(`${file} is damaged or not a school export. Nothing was changed.`, { cause: error });
    throw error;
  }
  if (!imported) throw new Error(`${file} is empty.`);
  return imported;
}
