import { loadModule, parse, parsePlPgSQL } from 'libpg-query';
import { readdirSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { type SqlFile, sqlFile, sqlFiles } from '../src/database/migrate/install.ts';
import { inspectMigration, newHistory, rules } from '../src/database/migrate/migration-rules.ts';

/**
 * `npm run check:sql`: every SQL file, every PL/pgSQL body and every statement that the definition of a record can
 * assemble must parse. Keywords are lower case, security definer functions pin their search_path, no function sets app.*
 * in its header, lines are short, references point down: from db/jobs to db/api to db/core, and only
 * one file uses the private tables of graphile-worker. Migrations that are not released yet take no long locks and do
 * not break the previous release (src/database/migrate/migration-rules.ts). Every job has one definition and one task.
 */
const folders = [
  'migrations',
  'migrations/committed',
  'migrations/tenant',
  'db',
  'db/core',
  'db/seed',
  'db/api',
  'db/jobs',
  'db/analytics',
  'db/demo',
  'bench',
  'bench/baselines',
];

const maxLineLength = 120;
/** Expressions that read more rows than they need, with what to write instead. */
const slowExpressions: [folder: string, expression: RegExp, remedy: string][] = [
  [
    'db/',
    /\(select core[.]parameters\(\)\)\s*[-#]>|\(select core[.]parameters\(\)[^()]*\)::/,
    'computes a value outside of its subquery, which keeps Postgres from using an index under row security. ' +
      "Write (select (core.parameters() ->> 'id')::bigint)",
  ],
  [
    'migrations/tenant/',
    /\brelnamespace\s*=/,
    'reads the relations of all schools. Use core.relations_in(current_schema())',
  ],
];
const queueFile = 'db/core/worker-queue.sql';
interface Statement {
  stmt: Record<string, unknown>;
  stmt_location?: number;
  stmt_len?: number;
}

interface Named {
  String: { sval: string };
}

interface CreateFunction {
  funcname: Named[];
  options?: {
    DefElem: {
      defname: string;
      arg?: { VariableSetStmt?: { name: string } };
    };
  }[];
}

interface Select {
  targetList?: { ResTarget?: { val?: { FuncCall?: { funcname: Named[]; args?: Argument[] } } } }[];
}

interface Constant {
  A_Const?: { sval?: { sval: string } };
}

type Argument = Constant & { NamedArgExpr?: { name: string; arg: Constant } };

await loadModule();
const faults: string[] = [];
const fault = (file: string, message: string) => faults.push(`${file}: ${message}`);

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

async function checkParses(file: string, what: string, sql: string): Promise<void> {
  await parse(sql).catch((error: unknown) => fault(file, `${what}: ${messageOf(error)}`));
}

async function checkFunction(file: string, create: CreateFunction, source: string): Promise<void> {
  const name = create.funcname.map((part) => part.String.sval).join('.');
  const options = create.options ?? [];
  if (source.includes('language plpgsql')) await parsePlPgSQL(source.trim());
  const isDefiner = options.some(({ DefElem }) => DefElem.defname === 'security');
  const settings = options.flatMap(({ DefElem }) => DefElem.arg?.VariableSetStmt?.name ?? []);
  if (isDefiner && !settings.includes('search_path')) fault(file, `${name} is security definer without a search_path`);
  // Only a superuser may create such a function, but the owner of a managed database is none.
  if (settings.some((setting) => setting.startsWith('app.')))
    fault(file, `${name} sets app.* in its header, which only a superuser may; use set_config in the body`);
  if (/^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|BEGIN|RETURN)\b/m.test(source))
    fault(file, `${name} has keywords in upper case`);
}

/** Checks the SQL in the arguments of a call of core.define_record, core.define_filter or core.define_sort. */
async function checkDefinition(file: string, name: string, args: Argument[]): Promise<void> {
  const text = (constant: Constant | undefined) => constant?.A_Const?.sval?.sval ?? '';
  const positional = args.filter(({ NamedArgExpr }) => !NamedArgExpr).map(text);
  const [record = '', parameter = '', ...expressions] = positional;
  const condition = (sql: string) => `select from t where (${sql.replace(/:(value|patterns?|phrase)\b/g, "'x'")})`;
  if (name === 'core.define_filter')
    await checkParses(file, `filter ${parameter} of ${record}`, condition(expressions[0] ?? ''));
  if (name === 'core.define_sort')
    await checkParses(file, `sort ${parameter} of ${record}`, `select from t order by ${expressions.join(', ')}`);
  if (name === 'core.define_record') {
    const named = new Map(args.flatMap(({ NamedArgExpr: one }) => (one ? [[one.name, text(one.arg)] as const] : [])));
    const part = (key: string, otherwise = '') => named.get(key) ?? otherwise;
    const query = `select ${part('p_columns')} from ${part('p_source')} where (${part('p_condition', 'true')})`;
    await checkParses(file, `record ${record}`, `${query} and ${part('p_key')} = 1`);
    if (named.has('p_search')) await checkParses(file, `search of ${record}`, condition(part('p_search')));
  }
}

const jobsText = (await sqlFiles('db/jobs')).map(({ text }) => text).join('\n');
const jobFunctions = new Set([...jobsText.matchAll(/^create function (core\.\w+)/gm)].map(([, name]) => name));

/** Finds references that point up, in comments too. db/jobs may use everything, db/api not db/jobs, db/core neither. */
function checkReferences(file: string, text: string): void {
  const isCore = file.startsWith('db/core/');
  if (!isCore && !file.startsWith('db/api/')) return;
  for (const [name] of text.matchAll(/\b(?:core|api)\.[a-z]\w*/g)) {
    if (jobFunctions.has(name)) fault(file, `refers to ${name} of db/jobs, which is a higher layer`);
    if (isCore && name.startsWith('api.')) fault(file, `refers to ${name} of db/api, which is a higher layer`);
  }
}

/** Compares the definitions of jobs with the files in workers/tasks. The worker does the same when it starts. */
function checkJobs(files: SqlFile[]): void {
  const tasks = new Set(readdirSync('workers/tasks').map((name) => basename(name, '.ts')));
  const defined = new Map<string, string>();
  for (const { name: file, text } of files)
    for (const [, job = ''] of text.matchAll(/^select core\.define_job\('(\w+)'/gm)) {
      const other = defined.get(job);
      if (other !== undefined) fault(file, `defines the job ${job}, which ${other} defines too`);
      defined.set(job, file);
      if (!tasks.has(job)) fault(file, `defines the job ${job}, but there is no workers/tasks/${job}.ts`);
    }
  for (const task of tasks)
    if (!defined.has(task))
      fault(
        `workers/tasks/${task}.ts`,
        `no file of db/ defines this job: add core.define_job('${task}', …) to db/jobs`,
      );
}

/** Finds uses of the private tables of graphile-worker outside the file that an upgrade of the library may have to change. */
function checkPrivateTables(): void {
  for (const folder of ['db', 'src', 'workers', 'bench'])
    for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
      const file = `${folder}/${name}`;
      if (!/[.](sql|tsx?)$/.test(file) || file === queueFile) continue;
      if (/graphile_worker[.]_private/.test(readFileSync(file, 'utf8')))
        fault(file, `uses a private table of graphile-worker; use or add a function of ${queueFile}`);
    }
}

async function check({ name: file, text }: SqlFile): Promise<void> {
  text.split('\n').forEach((line, i) => {
    if (line.length > maxLineLength)
      fault(file, `line ${String(i + 1)} has ${String(line.length)} characters, more than ${String(maxLineLength)}`);
    for (const [folder, expression, remedy] of slowExpressions)
      if (file.startsWith(folder) && expression.test(line)) fault(file, `line ${String(i + 1)} ${remedy}`);
  });
  checkReferences(file, text);
  const { stmts = [] } = (await parse(text)) as { stmts?: Statement[] };
  // The parser counts bytes, not characters.
  const bytes = Buffer.from(text);
  for (const { stmt, stmt_location = 0, stmt_len } of stmts) {
    const create = stmt['CreateFunctionStmt'] as CreateFunction | undefined;
    const end = stmt_len ? stmt_location + stmt_len : undefined;
    if (create) await checkFunction(file, create, bytes.subarray(stmt_location, end).toString());
    for (const { ResTarget } of (stmt['SelectStmt'] as Select | undefined)?.targetList ?? []) {
      const call = ResTarget?.val?.FuncCall;
      if (call) await checkDefinition(file, call.funcname.map((part) => part.String.sval).join('.'), call.args ?? []);
    }
  }
}

/**
 * The last migrations that existed before the rules for migrations. They are frozen, so the rules read them only for
 * what they create.
 */
const lastBeforeRules = { 'migrations/committed': 11, 'migrations/tenant': 17 };

async function checkMigrations(folder: keyof typeof lastBeforeRules, next: SqlFile[]): Promise<void> {
  const history = newHistory();
  for (const { name: file, text } of [...(await sqlFiles(folder)), ...next]) {
    const inspection = await inspectMigration(text, history).catch((error: unknown) => {
      const message = lineOf(text, error) + messageOf(error);
      if (!faults.includes(`${file}: ${message}`)) fault(file, message);
    });
    if (!inspection) continue;
    const { findings, faults: wrongComments } = inspection;
    if (parseInt(basename(file)) <= lastBeforeRules[folder]) continue;
    for (const { line, rule, message } of findings)
      fault(
        file,
        `line ${String(line)} ${message}. ${rules[rule]} If it is right here, write the reason in a comment above ` +
          `the statement: \`-- @allow ${rule}: …\``,
      );
    for (const message of wrongComments) fault(file, message);
  }
}

/** The line of an error of syntax. */
function lineOf(text: string, error: unknown): string {
  const { sqlDetails } = error as { sqlDetails?: { cursorPosition: number } };
  return sqlDetails ? `line ${String(text.slice(0, sqlDetails.cursorPosition).split('\n').length)}: ` : '';
}

for (const folder of folders)
  for (const file of await sqlFiles(folder))
    await check(file).catch((error: unknown) => fault(file.name, lineOf(file.text, error) + messageOf(error)));

checkJobs([...(await sqlFiles('db/core')), ...(await sqlFiles('db/jobs'))]);
checkPrivateTables();
await checkMigrations('migrations/committed', [await sqlFile('migrations/current.sql')]);
await checkMigrations('migrations/tenant', []);

process.stdout.write(faults.map((line) => `${line}\n`).join(''));
process.exitCode = faults.length > 0 ? 1 : 0;
