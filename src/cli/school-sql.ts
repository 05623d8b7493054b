import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline/promises';
import { text as readAll } from 'node:stream/consumers';
import type pg from 'pg';
import type { NamedTenant } from '../database/find-tenant.ts';
import { IncompleteError, splitStatements, type Statement } from '../database/statements.ts';
import { onServerOfSchool } from '../servers/school-server.ts';
import type { Config } from '../process/config.ts';
import { withClient } from '../process/database-access.ts';
import { confirm, counted, type Format, print, table } from './output.ts';
import { isInteractive } from './prompt.ts';

interface SqlOptions extends Format {
  file?: string;
  write?: boolean;
  yes?: boolean;
}

/** A transaction in which statements may use the rows of one school. */
interface Session {
  client: pg.Client;
  tenant: NamedTenant;
}

/** How long a statement waits for a lock of a request or of another command. */
const lockTimeout = '5s';

const unchanged = 'Nothing was changed.';
const uncertain =
  'The connection was lost. Something was changed only if the audit log has a new entry tenant.sql_commit of the school.';

const describeSchool = ({ id, subdomain }: NamedTenant) => `school ${id} (${subdomain})`;

/** Begins a transaction for a school. @throws if the school is being migrated, moved or purged */
async function open(client: pg.Client, tenant: NamedTenant, write: boolean): Promise<Session> {
  await client.query('begin');
  await client.query(`set local lock_timeout = '${lockTimeout}'`);
  await client.query('select core.sql_open($1)', [tenant.id]);
  // Afterwards, because core.sql_open grants privileges. Postgres lets no statement undo it.
  if (!write) await client.query('set transaction read only');
  return { client, tenant };
}

/** The message of an error of Postgres, with its detail and hint. */
function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { detail, hint } = error as { detail?: string; hint?: string };
  return [error.message, detail, hint].filter(Boolean).join(' ');
}

/** Control characters, which could change what the terminal shows, as JSON writes them. */
const visible = (text: string) =>
  text.replace(/\p{Cc}/gu, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** A value of a row of JSON, as it is shown in a table. */
const cell = (value: unknown): string | number =>
  typeof value === 'number'
    ? value
    : visible(value === null ? '' : typeof value === 'string' ? value : JSON.stringify(value));

/** Numbers that JavaScript cannot represent stay as they are written. */
const parseRow = (row: string): Record<string, unknown> =>
  JSON.parse(row, (_key, value: unknown, { source }: { source?: string } = {}) =>
    typeof value === 'number' && String(value) !== source ? source : value,
  ) as Record<string, unknown>;

function printResult(statement: Statement, rows: string[], count: number, json: boolean): void {
  const { command, line } = statement;
  if (json) {
    // The rows as the database wrote them.
    const head = JSON.stringify({ line, command, row_count: count }).slice(0, -1);
    print(`${head},"rows":[${rows.join()}]}`);
    return;
  }
  const parsed = rows.map(parseRow);
  const [first] = parsed;
  if (first)
    process.stdout.write(
      table(
        Object.keys(first),
        parsed.map((row) => Object.values(row).map(cell)),
      ),
    );
  print(`${command}: ${counted(count, 'row')}`);
}

/** Runs a statement and prints its result. @throws with the line of the statement */
async function run({ client, tenant }: Session, statement: Statement, json: boolean): Promise<void> {
  const { rows } = await client
    .query<{ row_values: string | null; row_count: string | null }>(
      'select row_values::text, row_count from core.sql_run($1, $2)',
      [tenant.id, statement.text],
    )
    .catch((error: unknown) => {
      throw new Error(`line ${String(statement.line)}: ${describeError(error)}`, { cause: error });
    });
  const count = Number(rows.at(-1)?.row_count ?? 0);
  printResult(
    statement,
    rows.slice(0, -1).flatMap(({ row_values }) => row_values ?? []),
    count,
    json,
  );
}

/** Asks whether to commit, and commits. @throws without a confirmation */
async function finish(session: Session, statements: readonly Statement[], { yes, json }: SqlOptions): Promise<void> {
  const { client, tenant } = session;
  // What would otherwise happen at the commit, as the owner of the database.
  await client.query('select core.sql_run($1, $2)', [tenant.id, 'set constraints all immediate']);
  await client.query('close all');
  const { rows } = await client.query<{ changes: Record<string, number> }>('select core.sql_changes($1) as changes', [
    tenant.id,
  ]);
  const changes = rows[0]?.changes ?? {};
  const total = Object.values(changes).reduce((sum, count) => sum + count, 0);
  if (!json && total > 0) process.stdout.write(table(['TABLE', 'CHANGED ROWS'], Object.entries(changes)));
  await confirm(`This commits ${counted(total, 'changed row')} of ${describeSchool(tenant)}`, yes);
  const text = statements.map((statement) => `${statement.text};`).join('\n');
  await client.query('select core.sql_close($1, $2)', [tenant.id, text]);
  await client.query('commit');
  if (json) print(JSON.stringify({ committed: true, changed_rows: changes }));
  else print(`Committed. Changed rows of ${describeSchool(tenant)}: ${String(total)}.`);
}

/**
 * Runs `work` in a transaction for a school, and rolls back what `work` has not committed.
 * @throws what `work` throws; with `write`, the message says whether something was changed
 */
async function inSession(
  client: pg.Client,
  tenant: NamedTenant,
  write: boolean,
  work: (session: Session) => Promise<void>,
): Promise<void> {
  const rollback = () =>
    client.query('rollback').then(
      () => true,
      () => false,
    );
  try {
    await work(await open(client, tenant, write));
  } catch (error) {
    const isRolledBack = await rollback();
    const message = describeError(error);
    if (!write || message.includes(unchanged)) throw error;
    throw new Error(`${message}\n${isRolledBack ? unchanged : uncertain}`, { cause: error });
  }
  if (!write) await rollback();
}

/** Runs all statements of a text in one transaction. */
async function runText(client: pg.Client, tenant: NamedTenant, text: string, options: SqlOptions): Promise<void> {
  const statements = await splitStatements(text);
  if (statements.length === 0) throw new Error('There are no statements to run.');
  await inSession(client, tenant, options.write ?? false, async (session) => {
    for (const statement of statements) await run(session, statement, options.json ?? false);
    if (options.write) await finish(session, statements, options);
  });
}

/** The statements that a user types: each ends with a semicolon. Ends at Ctrl-D, `exit` or `\q`. */
async function* typedStatements(subdomain: string): AsyncGenerator<Statement[]> {
  const lines = createInterface({ input: process.stdin, output: process.stderr, terminal: true });
  const state = { isInterrupted: false };
  lines.on('SIGINT', () => {
    state.isInterrupted = true;
    lines.close();
  });
  const prompt = (mark: string) => {
    lines.setPrompt(`${subdomain}${mark} `);
    lines.prompt();
  };
  let typed = '';
  try {
    prompt('>');
    for await (const line of lines) {
      if (typed === '' && /^\s*(\\q|exit|quit)\s*;?\s*$/.test(line)) break;
      typed += `${line}\n`;
      try {
        const statements = await splitStatements(typed);
        if (/;\s*$/.test(typed)) {
          typed = '';
          yield statements;
        }
      } catch (error) {
        if (!(error instanceof IncompleteError)) {
          typed = '';
          process.stderr.write(`${describeError(error)}\n`);
        }
      }
      prompt(typed === '' ? '>' : '-');
    }
  } finally {
    lines.close();
  }
  if (state.isInterrupted) throw new Error(`Stopped. ${unchanged}`);
}

/** Runs what the user types: with `write` in one transaction, otherwise each statement in one of its own. */
async function runTyped(client: pg.Client, tenant: NamedTenant, options: SqlOptions): Promise<void> {
  const json = options.json ?? false;
  if (!options.write) {
    for await (const statements of typedStatements(tenant.subdomain))
      for (const statement of statements)
        await inSession(client, tenant, false, (session) => run(session, statement, json)).catch((error: unknown) => {
          process.stderr.write(`${describeError(error)}\n`);
        });
    return;
  }
  await inSession(client, tenant, true, async (session) => {
    const done: Statement[] = [];
    for await (const statements of typedStatements(tenant.subdomain))
      for (const statement of statements) {
        await run(session, statement, json);
        done.push(statement);
      }
    if (done.length > 0) await finish(session, done, options);
  });
}

/** Tells on standard error which school it is, and whether it is in service. */
async function printSchool(client: pg.Client, tenant: NamedTenant, write: boolean): Promise<void> {
  const { rows } = await client.query<{ status: string; version: number; is_delayed: boolean }>(
    `select t.status, t.schema_version as version, d.tenant_id is not null as is_delayed
     from platform.tenant t left join platform.delayed_migration d on d.tenant_id = t.id where t.id = $1`,
    [tenant.id],
  );
  const { status = '', version = 0, is_delayed = false } = rows[0] ?? {};
  process.stderr.write(
    `School ${tenant.id} (${tenant.subdomain}), ${status}, version ${String(version)}` +
      `${is_delayed ? ', whose migration failed or is skipped' : ''}. ` +
      `${write ? 'One transaction, which ends when the input ends.' : 'Read only; --write changes data.'}\n`,
  );
}

/**
 * `school sql`: runs statements for one school, which a user types or which come from a file or standard input.
 * @throws at the first error; then nothing was changed
 */
export const schoolSql = (config: Config, school: string, options: SqlOptions): Promise<void> =>
  withClient(config, (home) =>
    onServerOfSchool(home, school, async (client, tenant) => {
      const { file, write = false, yes, json } = options;
      if (yes && !write) throw new Error('--yes needs --write.');
      const isTyped = file === undefined && isInteractive();
      const text = file === undefined ? (isTyped ? '' : await readAll(process.stdin)) : await readFile(file, 'utf8');
      await client.query('select core.sql_audit($1, $2, $3)', [
        'tenant.sql',
        tenant.id,
        JSON.stringify({ mode: write ? 'write' : 'read' }),
      ]);
      if (!json) await printSchool(client, tenant, write);
      if (isTyped) await runTyped(client, tenant, options);
      else await runText(client, tenant, text, options);
    }),
  );
