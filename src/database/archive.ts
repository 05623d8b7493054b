import { createHash, type Hash } from 'node:crypto';
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
  onCursor: (index: number, name: string) => void = () => undefined,
): AsyncGenerator<string> {
  for (const [index, { name, at_a_time }] of cursors.entries()) {
    onCursor(index, name);
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
 * @param onProgress  called before each part, with the number of finished parts and of all parts
 * @returns the number of lines; undefined when the query opened no cursor, and then no file is written
 */
export async function exportTenant(
  client: pg.ClientBase,
  cursors: { text: string; values: unknown[] },
  file: string,
  onProgress: (done: number, total: number, table: string) => void = () => undefined,
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
      yield* readCursors(
        client,
        rows,
        (count) => (lines += count),
        (index, name) => onProgress(index, rows.length, name.replace(/^archive_(table_)?/, '')),
      );
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
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
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
const VersionedHeader = Header.extend({ schema_version: z.int() });
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

/** The error of a file that cannot be read, in the words of its reader; any other error as it is. */
function explainFile(error: unknown, file: string): unknown {
  const code = (error as NodeJS.ErrnoException).code ?? '';
  if (code === 'Z_BUF_ERROR') return new Error(`${file} is truncated. Nothing was changed.`, { cause: error });
  // Data exceptions and constraint violations: a line is missing or was changed.
  if (/^2[23]/.test(code)) return new Error(`${file} is not a school export. Nothing was changed.`, { cause: error });
  if (code.startsWith('Z_'))
    return new Error(`${file} is damaged or not a school export. Nothing was changed.`, { cause: error });
  return error;
}

const notAnExport = (file: string) => `${file} is not a school export. Nothing was changed.`;

/** The header of a file for an import under another subdomain. */
async function headerAs(client: pg.ClientBase, header: string, subdomain: string): Promise<string> {
  const { rows } = await client.query<{ header: string }>('select core.archive_as($1, $2)::text as header', [
    header,
    subdomain,
  ]);
  return rows[0]?.header ?? '';
}

/**
 * Reads the header of a file, for an import under this subdomain if there is one.
 * @returns the header as text, and the id and subdomain that the school will have
 * @throws when the file is not an export, or the subdomain is invalid
 */
export async function readArchiveHeader(
  client: pg.ClientBase,
  file: string,
  subdomain: string | undefined,
): Promise<{ text: string; id: number; subdomain: string }> {
  const compressed = createReadStream(file);
  try {
    let first: string | undefined;
    const source = compressed.pipe(createGunzip({ chunkSize: 64 * 1024 }));
    compressed.once('error', (error) => source.destroy(error));
    for await (const line of splitLines(source)) {
      first = line;
      break;
    }
    if (first === undefined) throw new Error(`${file} is empty.`);
    if (!parseLine(Header, first)) throw new Error(notAnExport(file));
    const text = subdomain === undefined ? first : await headerAs(client, first, subdomain);
    const header = parseLine(Header, text);
    if (!header) throw new Error(notAnExport(file));
    return { text, id: header.tenant.id, subdomain: header.tenant.subdomain };
  } catch (error) {
    throw explainFile(error, file);
  } finally {
    // The rest of the file was not read.
    compressed.destroy();
  }
}

interface ImportOptions {
  subdomain?: string | undefined;
  /** The header that replaces the one of the file. */
  header?: string | undefined;
  /** Called with the number of bytes of the file that were read. */
  onProgress?: ((bytes: number) => void) | undefined;
}

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
async function load(
  client: pg.ClientBase,
  lines: AsyncGenerator<string, void>,
  file: string,
  { subdomain, header: changedHeader }: ImportOptions,
): Promise<Imported> {
  const invalidFile = new Error(notAnExport(file));
  const { value: firstLine } = await lines.next();
  if (typeof firstLine !== 'string' || !parseLine(Header, firstLine)) throw invalidFile;
  const headerText =
    changedHeader ?? (subdomain === undefined ? firstLine : await headerAs(client, firstLine, subdomain));
  const header = parseLine(Header, headerText);
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
 * Imports a school in one transaction: creates the tables as of the version of the file, inserts the rows, then runs
 * later migrations. It keeps its id; with `subdomain` it gets this one, and a new id if its own is taken.
 * @throws when the file is truncated or invalid, or conflicts with the database; then nothing has changed
 */
export async function importTenant(
  client: pg.ClientBase,
  file: string,
  options: ImportOptions = {},
): Promise<Imported> {
  const { onProgress = () => undefined } = options;
  let imported: Imported | undefined;
  await client.query('begin');
  try {
    const compressed = createReadStream(file);
    compressed.on('data', () => onProgress(compressed.bytesRead));
    await pipeline(compressed, createGunzip({ chunkSize: 256 * 1024 }), async (source: AsyncIterable<Buffer>) => {
      imported = await load(client, splitLines(source), file, options);
    });
    await client.query('commit');
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw explainFile(error, file);
  }
  if (!imported) throw new Error(`${file} is empty.`);
  return imported;
}

/** The rows of a table, or the state of the sequences. */
export interface Checksum {
  rows: number;
  /** The SHA-256 of its lines in an export. */
  sha256: string;
}

/** The content of a school: its version, and a checksum for each table and for its sequences. */
export interface Checksums {
  schemaVersion: number;
  tables: ReadonlyMap<string, Checksum>;
}

/** Computes the checksums of the lines of an export; the rows of a table are in the order of their keys. */
async function checksumLines(lines: AsyncIterable<string>, source: string): Promise<Checksums> {
  let schemaVersion: number | undefined;
  const tables = new Map<string, { rows: number; hash: Hash }>();
  for await (const line of lines) {
    if (schemaVersion === undefined) {
      schemaVersion = parseLine(VersionedHeader, line)?.schema_version;
      if (schemaVersion === undefined) throw new Error(`${source} is not a school export.`);
      continue;
    }
    const name = /^\{"table":"(\w+)"/.exec(line)?.[1] ?? (parseLine(Sequence, line) ? 'sequences' : undefined);
    if (name === undefined) continue;
    const table = tables.get(name) ?? { rows: 0, hash: createHash('sha256') };
    tables.set(name, table);
    table.rows++;
    table.hash.update(line).update('\n');
  }
  if (schemaVersion === undefined) throw new Error(`${source} is empty.`);
  return {
    schemaVersion,
    tables: new Map([...tables].map(([name, { rows, hash }]) => [name, { rows, sha256: hash.digest('hex') }])),
  };
}

/** The checksums of an export file. @throws when it is not an export */
export async function checksumFile(file: string): Promise<Checksums> {
  try {
    let checksums: Checksums | undefined;
    await pipeline(
      createReadStream(file),
      createGunzip({ chunkSize: 256 * 1024 }),
      async (source: AsyncIterable<Buffer>) => {
        checksums = await checksumLines(splitLines(source), file);
      },
    );
    if (!checksums) throw new Error(`${file} is empty.`);
    return checksums;
  } catch (error) {
    throw explainFile(error, file);
  }
}

/** The checksums of a school, as of one moment. */
export async function checksumTenant(client: pg.ClientBase, id: string): Promise<Checksums> {
  await client.query('begin isolation level repeatable read read only');
  try {
    const { rows } = await client.query<{ name: string; at_a_time: number }>(
      'select name, at_a_time from core.archive_open($1)',
      [id],
    );
    const lines = async function* () {
      for await (const text of readCursors(client, rows, () => undefined)) yield* text.trimEnd().split('\n');
    };
    return await checksumLines(lines(), `School ${id}`);
  } finally {
    await client.query('rollback').catch(() => undefined);
  }
}
