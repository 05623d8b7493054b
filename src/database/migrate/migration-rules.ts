import { loadModule, parse } from 'libpg-query';

/** The rules of the migration linter, with their reasons. A comment `-- @allow <rule>: <reason>` is an exception. */
export const rules = {
  drop: 'The previous release still uses it until the functions are installed. Drop it in the next release.',
  rename: 'The previous release uses the old name. Add the new one, copy, and drop the old one in the next release.',
  'type-change':
    'It can write the whole table again while nobody can read it, and the previous release expects the ' +
    'old type. Add a column of the new type, copy, and drop the old one in the next release.',
  'set-not-null':
    'It reads the whole table while nobody can use it. First add `check (column is not null) not valid`, ' +
    'validate it in the next migration, then set not null.',
  'facts-column':
    'The previous release writes all columns of a table of mart, and fails with one that it does not know. Make a ' +
    'new table, and drop the old one in the next release.',
  'not-null-column': 'It fails if the table has rows. Give the column a constant default.',
  'volatile-default':
    'Each row needs a value of its own, so the whole table is written again while nobody can read ' +
    'it. Add the column without a default, and fill it in batches.',
  index:
    'Nobody can write to the table until the index is built. Put indexes into a migration of their own, so that ' +
    'nothing else holds locks in the meantime, or use `concurrently` without a transaction.',
  'foreign-key':
    'It reads the whole table while nobody can write to either one. Add it as `not valid`, and validate ' +
    'it in the next migration.',
  check:
    'It reads the whole table while nobody can use it. Add it as `not valid`, and validate it in the next ' +
    'migration.',
  unique:
    'It builds an index while nobody can use the table. Create a unique index in a migration of its own, then ' +
    'add the constraint `using index`.',
  validate:
    'In the transaction that adds the constraint, the strong lock of the addition lasts until the table is ' +
    'read. Validate in the next migration.',
  rewrite: 'It writes the whole table again while nobody can use it.',
  lock: 'Everybody else waits for the explicit lock until the migration ends.',
  'update-all':
    'It writes every row again and locks each until the migration ends. Do it in batches, for example in ' + 'a job.',
  'drop-default': 'The previous release may insert rows without this column. Drop the default in the next release.',
  'replace-function': 'The previous release and existing triggers use the new text at once. It must work for both.',
  revoke: 'The previous release may need the privilege. Revoke it in the next release.',
} as const;

export type Rule = keyof typeof rules;

/** A statement that violates a rule. */
export interface Finding {
  line: number;
  rule: Rule;
  /** What the statement does. */
  message: string;
}

/** What a statement does to a table that existed before the migration. */
export interface Effect {
  line: number;
  statement: string;
  table: string;
  lock: string;
  work:
    'changes the catalog' | 'reads every row' | 'builds an index' | 'rewrites the table' | 'writes rows' | 'unknown';
}

export interface Inspection {
  findings: Finding[];
  effects: Effect[];
  /** The statements that create functions. They lock no table. */
  functions: string[];
  /** Comments `@allow` that are incomplete or have no effect. */
  faults: string[];
}

/** What earlier migrations of a folder left behind. `inspectMigration` adds to it. */
export interface MigrationHistory {
  functions: Set<string>;
  /** Constraints `column is not null`, as table.constraint to table.column. */
  notNullChecks: Map<string, string>;
  /** The columns with a validated one, as table.column. */
  notNullColumns: Set<string>;
}

export const newHistory = (): MigrationHistory => ({
  functions: new Set(),
  notNullChecks: new Map(),
  notNullColumns: new Set(),
});

interface Name {
  String: { sval: string };
}
interface Relation {
  schemaname?: string;
  relname: string;
}
interface Constraint {
  contype: string;
  conname?: string;
  skip_validation?: boolean;
  indexname?: string;
  raw_expr?: Expression;
  generated_kind?: string;
}
interface Expression {
  FuncCall?: { funcname: Name[]; args?: Expression[] };
  NullTest?: { nulltesttype: string; arg: { ColumnRef?: { fields: Name[] } } };
  [kind: string]: unknown;
}
interface Column {
  colname: string;
  typeName?: { names: Name[] };
  constraints?: { Constraint: Constraint }[];
}
interface AlterCommand {
  subtype: string;
  name?: string;
  def?: { ColumnDef?: Column; Constraint?: Constraint };
}
interface Statement {
  CreateStmt?: { relation: Relation; if_not_exists?: boolean };
  CreateTableAsStmt?: { into: { rel: Relation }; if_not_exists?: boolean };
  AlterTableStmt?: { relation: Relation; cmds: { AlterTableCmd: AlterCommand }[]; objtype: string };
  RenameStmt?: { renameType: string; relation?: Relation; subname?: string; newname: string };
  DropStmt?: {
    removeType: string;
    objects: ({ List?: { items: Name[] }; ObjectWithArgs?: { objname: Name[] } } & Partial<Name>)[];
  };
  IndexStmt?: { idxname?: string; relation: Relation; concurrent?: boolean };
  CreateFunctionStmt?: { funcname: Name[]; replace?: boolean };
  UpdateStmt?: { relation: Relation; whereClause?: unknown };
  DeleteStmt?: { relation: Relation; whereClause?: unknown };
  InsertStmt?: { relation: Relation };
  ClusterStmt?: { relation?: Relation };
  VacuumStmt?: { options?: { DefElem: { defname: string } }[]; rels?: { VacuumRelation: { relation: Relation } }[] };
  LockStmt?: { relations: { RangeVar: Relation }[] };
  TruncateStmt?: { relations: { RangeVar: Relation }[] };
  GrantStmt?: { is_grant?: boolean; objects?: { RangeVar?: Relation }[] };
  CreateTrigStmt?: { relation: Relation };
  CreatePolicyStmt?: { table: Relation };
  AlterPolicyStmt?: { table: Relation };
  DoStmt?: object;
  CommentStmt?: object;
}

const nameOf = ({ schemaname, relname }: Relation) => (schemaname ? `${schemaname}.${relname}` : relname);
const joined = (names: Name[]) => names.map((name) => name.String.sval).join('.');

/** Functions whose result is the same for every row of a statement. Others count as volatile. */
const stableFunctions = new Set([
  ...['now', 'statement_timestamp', 'transaction_timestamp', 'current_setting', 'make_interval', 'make_date'],
  ...['lower', 'upper', 'btrim', 'concat', 'repeat', 'length', 'format', 'array_fill'],
  ...['json_build_object', 'jsonb_build_object', 'json_build_array', 'jsonb_build_array'],
]);

/** The first function in an expression that can give each row another value. */
function volatileFunction(expression: unknown): string | undefined {
  if (typeof expression !== 'object' || expression === null) return undefined;
  const call = (expression as Expression).FuncCall;
  if (call && !stableFunctions.has(joined(call.funcname).replace(/^pg_catalog\./, ''))) return joined(call.funcname);
  return Object.values(expression).reduce<string | undefined>(
    (found, part) => found ?? volatileFunction(part),
    undefined,
  );
}

const dropKinds: Record<string, string> = {
  OBJECT_TABLE: 'table',
  OBJECT_VIEW: 'view',
  OBJECT_MATVIEW: 'materialized view',
  OBJECT_FUNCTION: 'function',
  OBJECT_PROCEDURE: 'procedure',
  OBJECT_TYPE: 'type',
  OBJECT_SEQUENCE: 'sequence',
  OBJECT_SCHEMA: 'schema',
  OBJECT_TRIGGER: 'trigger',
  OBJECT_POLICY: 'policy',
};

const allowComment = /^--\s*@allow\s+([\w-]*)\s*:?\s*(.*)$/;

interface Exception {
  line: number;
  rule: string;
  isUsed: boolean;
}

/** The comments before a statement, and the statement without them. */
function splitComments(slice: string): { comments: string[]; skipped: string; code: string } {
  const skipped = /^(?:[\s;]+|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)*/.exec(slice)?.[0] ?? '';
  return { comments: skipped.split('\n').map((line) => line.trim()), skipped, code: slice.slice(skipped.length) };
}

const lineCount = (text: string) => text.split('\n').length;

/**
 * Finds the statements of a migration that take a long lock, write a table again, or break the release that runs
 * meanwhile. Tables that the migration itself creates are not in use yet, unless `if not exists` may have found an
 * older one. It does not see what `do` blocks and functions execute; a dry run does.
 * @param history  what earlier migrations of the folder left behind
 */
export async function inspectMigration(text: string, history: MigrationHistory): Promise<Inspection> {
  await loadModule();
  const { stmts = [] } = (await parse(text)) as {
    stmts?: { stmt: Statement; stmt_location?: number; stmt_len?: number }[];
  };
  const created = new Set(
    stmts.flatMap(({ stmt }) => {
      const create = stmt.CreateStmt ?? stmt.CreateTableAsStmt;
      const relation = stmt.CreateStmt?.relation ?? stmt.CreateTableAsStmt?.into.rel;
      return relation && !create?.if_not_exists ? [nameOf(relation)] : [];
    }),
  );
  const hasOnlyIndexes = stmts.every(({ stmt }) => stmt.IndexStmt ?? stmt.CommentStmt);
  const addedConstraints = new Set<string>();
  const addedFunctions = new Set<string>();
  const validatedColumns = new Set<string>();
  const inspection: Inspection = { findings: [], effects: [], functions: [], faults: [] };
  // The parser counts bytes, not characters.
  const bytes = Buffer.from(text);
  let previousEnd = 0;

  for (const { stmt, stmt_location = 0, stmt_len } of stmts) {
    // From the semicolon of the previous statement, because the parser leaves out comments before a statement.
    const start = previousEnd;
    previousEnd = stmt_len ? stmt_location + stmt_len : bytes.length;
    const slice = bytes.subarray(start, previousEnd).toString();
    const { comments, skipped, code } = splitComments(slice);
    const firstLine = lineCount(bytes.subarray(0, start).toString());
    const line = firstLine + lineCount(skipped) - 1;
    const exceptions: Exception[] = [];
    comments.forEach((comment, n) => {
      const [match, rule = '', reason = ''] = allowComment.exec(comment) ?? [];
      if (!match) return;
      const at = firstLine + n;
      if (!(rule in rules)) inspection.faults.push(`line ${String(at)}: there is no rule "${rule}"`);
      else if (reason.split(/\s+/).filter(Boolean).length < 3)
        inspection.faults.push(`line ${String(at)}: @allow ${rule} must say why`);
      else exceptions.push({ line: at, rule, isUsed: false });
    });
    const find = (rule: Rule, message: string) => {
      const exception = exceptions.find((one) => one.rule === rule);
      if (exception) exception.isUsed = true;
      else inspection.findings.push({ line, rule, message });
    };
    const affect = (table: string, lock: string, work: Effect['work']) => {
      const statement = code.split('\n')[0]?.trim() ?? '';
      if (!created.has(table)) inspection.effects.push({ line, statement, table, lock, work });
    };
    const isNew = (relation: Relation) => created.has(nameOf(relation));

    if (stmt.AlterTableStmt?.objtype === 'OBJECT_TABLE' && !isNew(stmt.AlterTableStmt.relation)) {
      const table = nameOf(stmt.AlterTableStmt.relation);
      for (const { AlterTableCmd: command } of stmt.AlterTableStmt.cmds) inspectCommand(table, command);
    }
    function inspectCommand(table: string, { subtype, name = '', def }: AlterCommand): void {
      const column = `${table}.${name}`;
      const exclusive = (work: Effect['work'] = 'changes the catalog') => affect(table, 'AccessExclusiveLock', work);
      if (subtype === 'AT_AddColumn' && def?.ColumnDef) addColumn(table, def.ColumnDef);
      else if (subtype === 'AT_AddConstraint' && def?.Constraint) addConstraint(table, def.Constraint);
      else if (subtype === 'AT_DropColumn') {
        exclusive();
        find('drop', `drops the column ${column}`);
      } else if (subtype === 'AT_AlterColumnType') {
        exclusive('rewrites the table');
        find('type-change', `changes the type of ${column}`);
      } else if (subtype === 'AT_SetNotNull') {
        const isProven = history.notNullColumns.has(column);
        exclusive(isProven ? 'changes the catalog' : 'reads every row');
        if (!isProven) find('set-not-null', `sets ${column} to not null`);
      } else if (subtype === 'AT_ValidateConstraint') {
        affect(table, 'ShareUpdateExclusiveLock', 'reads every row');
        if (addedConstraints.has(column)) find('validate', `validates ${name}, which this migration adds`);
        const checked = history.notNullChecks.get(column);
        if (checked) validatedColumns.add(checked);
      } else if (subtype === 'AT_ColumnDefault' && !def) {
        exclusive();
        find('drop-default', `drops the default of ${column}`);
      } else if (/^AT_(SetTableSpace|SetLogged|SetUnLogged|SetAccessMethod|SetExpression)$/.test(subtype)) {
        exclusive('rewrites the table');
        find('rewrite', `rewrites ${table}`);
      } else exclusive();
    }
    function addColumn(table: string, { colname, typeName, constraints = [] }: Column): void {
      const column = `${table}.${colname}`;
      const parts = constraints.map(({ Constraint: part }) => part);
      const default_ = parts.find(({ contype }) => contype === 'CONSTR_DEFAULT')?.raw_expr;
      const type = typeName ? joined(typeName.names) : '';
      const volatileName = /(^|\.)(big|small)?serial\d?$/.test(type)
        ? type
        : parts.some(({ contype }) => contype === 'CONSTR_IDENTITY')
          ? 'an identity'
          : parts.some(({ contype, generated_kind }) => contype === 'CONSTR_GENERATED' && generated_kind !== 'v')
            ? 'a stored expression'
            : default_ && volatileFunction(default_);
      const hasCheck = parts.some(({ contype }) => contype === 'CONSTR_CHECK');
      const hasIndex = parts.some(({ contype }) => /^CONSTR_(UNIQUE|PRIMARY|EXCLUSION)$/.test(contype));
      const work = volatileName
        ? 'rewrites the table'
        : hasIndex
          ? 'builds an index'
          : hasCheck
            ? 'reads every row'
            : 'changes the catalog';
      affect(table, 'AccessExclusiveLock', work);
      if (table.startsWith('mart.')) find('facts-column', `adds ${column}`);
      if (volatileName) find('volatile-default', `adds ${column} with ${volatileName}`);
      else if (parts.some(({ contype }) => contype === 'CONSTR_NOTNULL') && !default_)
        find('not-null-column', `adds ${column} as not null without a default`);
      if (hasCheck) find('check', `adds ${column} with a check`);
      if (hasIndex) find('unique', `adds ${column} with a constraint that builds an index`);
      if (default_ && parts.some(({ contype }) => contype === 'CONSTR_FOREIGN'))
        find('foreign-key', `adds ${column} with a default and a foreign key`);
    }
    function addConstraint(table: string, constraint: Constraint): void {
      const { contype, conname = '', skip_validation: isNotValid = false, indexname, raw_expr } = constraint;
      const name = `${table}.${conname}`;
      addedConstraints.add(name);
      const read = isNotValid ? 'changes the catalog' : 'reads every row';
      const what = `adds the constraint ${conname} to ${table}`;
      if (contype === 'CONSTR_FOREIGN') {
        affect(table, 'ShareRowExclusiveLock', read);
        if (!isNotValid) find('foreign-key', what);
      } else if (contype === 'CONSTR_CHECK') {
        affect(table, 'AccessExclusiveLock', read);
        if (!isNotValid) find('check', what);
        const field = raw_expr?.NullTest?.nulltesttype === 'IS_NOT_NULL' && raw_expr.NullTest.arg.ColumnRef?.fields;
        if (field) history.notNullChecks.set(name, `${table}.${joined(field)}`);
      } else if (contype === 'CONSTR_NOTNULL') {
        affect(table, 'AccessExclusiveLock', read);
        if (!isNotValid) find('set-not-null', what);
      } else {
        affect(table, 'AccessExclusiveLock', indexname ? 'changes the catalog' : 'builds an index');
        if (!indexname) find('unique', what);
      }
    }

    if (stmt.RenameStmt) {
      const { relation, subname, newname, renameType } = stmt.RenameStmt;
      // An index or a constraint is not named by queries.
      const isInternal = /INDEX|TABCONSTRAINT/.test(renameType);
      if (relation) affect(nameOf(relation), 'AccessExclusiveLock', 'changes the catalog');
      if (!isInternal && !(relation && isNew(relation)))
        find('rename', `renames ${[relation && nameOf(relation), subname].filter(Boolean).join('.')} to ${newname}`);
    }
    const kind = dropKinds[stmt.DropStmt?.removeType ?? ''];
    if (stmt.DropStmt && kind) {
      for (const object of stmt.DropStmt.objects) {
        const names = object.List?.items ?? object.ObjectWithArgs?.objname ?? (object.String ? [object as Name] : []);
        const name = joined(names);
        const table = /trigger|policy/.test(kind) ? joined(names.slice(0, -1)) : name;
        if (created.has(table) || addedFunctions.has(name)) continue;
        if (/table|view|trigger|policy/.test(kind)) affect(table, 'AccessExclusiveLock', 'changes the catalog');
        find('drop', `drops the ${kind} ${name}`);
      }
    }
    if (stmt.IndexStmt && !isNew(stmt.IndexStmt.relation)) {
      const { relation, idxname = 'an index', concurrent = false } = stmt.IndexStmt;
      affect(nameOf(relation), concurrent ? 'ShareUpdateExclusiveLock' : 'ShareLock', 'builds an index');
      if (!concurrent && !hasOnlyIndexes)
        find('index', `creates ${idxname} on ${nameOf(relation)} among other statements`);
    }
    if (stmt.CreateFunctionStmt) {
      const name = joined(stmt.CreateFunctionStmt.funcname);
      if (stmt.CreateFunctionStmt.replace && history.functions.has(name))
        find('replace-function', `replaces the function ${name}`);
      addedFunctions.add(name);
      inspection.functions.push(code);
    }
    const written = stmt.UpdateStmt ?? stmt.DeleteStmt;
    if (written && !isNew(written.relation)) {
      affect(nameOf(written.relation), 'RowExclusiveLock', 'writes rows');
      if (!written.whereClause)
        find('update-all', `${stmt.UpdateStmt ? 'updates' : 'deletes'} every row of ${nameOf(written.relation)}`);
    }
    if (stmt.InsertStmt && !isNew(stmt.InsertStmt.relation))
      affect(nameOf(stmt.InsertStmt.relation), 'RowExclusiveLock', 'writes rows');
    const isVacuumFull = stmt.VacuumStmt?.options?.some(({ DefElem }) => DefElem.defname === 'full') ?? false;
    if (stmt.ClusterStmt ?? isVacuumFull) {
      const relation = stmt.ClusterStmt?.relation ?? stmt.VacuumStmt?.rels?.[0]?.VacuumRelation.relation;
      const table = relation ? nameOf(relation) : 'every table';
      affect(table, 'AccessExclusiveLock', 'rewrites the table');
      find('rewrite', `rewrites ${table}`);
    }
    for (const { RangeVar: relation } of stmt.LockStmt?.relations ?? stmt.TruncateStmt?.relations ?? []) {
      if (isNew(relation)) continue;
      affect(nameOf(relation), stmt.LockStmt ? 'explicit lock' : 'AccessExclusiveLock', 'changes the catalog');
      find('lock', `${stmt.LockStmt ? 'locks' : 'truncates'} ${nameOf(relation)}`);
    }
    if (stmt.GrantStmt && !stmt.GrantStmt.is_grant) find('revoke', 'revokes privileges');
    if (stmt.CreateTrigStmt)
      affect(nameOf(stmt.CreateTrigStmt.relation), 'ShareRowExclusiveLock', 'changes the catalog');
    const policy = stmt.CreatePolicyStmt ?? stmt.AlterPolicyStmt;
    if (policy) affect(nameOf(policy.table), 'AccessExclusiveLock', 'changes the catalog');
    if (stmt.DoStmt) affect('(do block)', 'see the dry run', 'unknown');

    for (const { line: at, rule, isUsed } of exceptions)
      if (!isUsed) inspection.faults.push(`line ${String(at)}: @allow ${rule} has no effect on its statement`);
  }
  for (const name of addedFunctions) history.functions.add(name);
  for (const column of validatedColumns) history.notNullColumns.add(column);
  return inspection;
}
