import { parse, parsePlPgSQL, loadModule } from 'libpg-query';
import { sqlFiles } from '../src/database/install.ts';

/**
 * `npm run check:sql`: every SQL file and every PL/pgSQL body in it must parse, and follow docs/decisions: lower case
 * keywords, each function of `api` and `core` says whether it changes anything, security definer pins its search_path.
 */
const folders = [
  'migrations',
  'migrations/committed',
  'migrations/tenant',
  'db',
  'db/core',
  'db/seed',
  'db/api',
  'db/analytics',
  'db/demo',
];

interface CreateFunction {
  funcname: { String: { sval: string } }[];
  options?: {
    DefElem: {
      defname: string;
      arg?: { boolean?: object; Boolean?: { boolval?: boolean }; VariableSetStmt?: { name: string } };
    };
  }[];
}

await loadModule();
const faults: string[] = [];
const fault = (file: string, message: string) => faults.push(`${file}: ${message}`);

for (const folder of folders) {
  for (const { name, text } of await sqlFiles(folder)) {
    try {
      const { stmts = [] } = (await parse(text)) as {
        stmts?: { stmt: Record<string, unknown>; stmt_location?: number; stmt_len?: number }[];
      };
      const bytes = Buffer.from(text);
      for (const { stmt, stmt_location = 0, stmt_len } of stmts) {
        const create = stmt['CreateFunctionStmt'] as CreateFunction | undefined;
        if (!create) continue;
        const called = create.funcname.map((part) => part.String.sval).join('.');
        const options = new Map((create.options ?? []).map(({ DefElem }) => [DefElem.defname, DefElem]));
        const source = bytes.subarray(stmt_location, stmt_len ? stmt_location + stmt_len : undefined).toString();
        if (source.includes('language plpgsql')) await parsePlPgSQL(source.trim());
        const settings = (create.options ?? []).flatMap(({ DefElem }) => DefElem.arg?.VariableSetStmt?.name ?? []);
        if (options.has('security') && !settings.includes('search_path'))
          fault(name, `${called} is security definer without a search_path`);
        if (/^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|BEGIN|RETURN)\b/m.test(source))
          fault(name, `${called} has keywords in upper case`);
      }
    } catch (error) {
      fault(name, error instanceof Error ? error.message : String(error));
    }
  }
}

process.stdout.write(faults.map((line) => `${line}\n`).join(''));
process.exitCode = faults.length > 0 ? 1 : 0;
