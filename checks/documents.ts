// `npm run check:documents`: rows that documents must have, because people look them up. A table of a document is found
// by its heading, in any page of docs/.
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { errors } from '../src/domain/errors.ts';

const root = join(import.meta.dirname, '..');
const read = (path: string) => readFileSync(join(root, path), 'utf8');
const textsOf = (pattern: string) => globSync(pattern, { cwd: root }).map((path) => ({ path, text: read(path) }));
const namesIn = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([, name = '']) => name);

const pages = textsOf('docs/**/*.md').filter(({ path }) => !path.includes('decisions'));
const faults: string[] = [];

/** The page and the rows of the table that begins with this line. */
function table(heading: string): { path: string; rows: string[] } {
  for (const { path, text } of pages) {
    const [, after] = text.split(`\n${heading}`);
    if (after !== undefined) return { path, rows: after.split('\n\n', 1)[0]?.split('\n').slice(2) ?? [] };
  }
  faults.push(`docs/: no page has the table ${heading}`);
  return { path: '', rows: [] };
}

/** Every table of a migration folder that is not dropped again. */
function tablesOf(folder: string, schema: string): string[] {
  const text = textsOf(`migrations/${folder}/*.sql`)
    .map((file) => file.text.replace(/--.*/g, ''))
    .join('\n');
  const created = namesIn(text, new RegExp(`create (?:unlogged )?table (?:if not exists )?${schema}(\\w+)`, 'g'));
  const dropped = namesIn(text, new RegExp(`drop table (?:if exists )?${schema}(\\w+)`, 'g'));
  return created.filter((name) => !dropped.includes(name));
}

for (const [folder, schema, heading, example] of [
  ['committed', 'platform\\.', '| schema `platform` | what limits its growth |', 'one row per school'],
  ['tenant', '', '| schema of a school | what limits its growth |', 'records'],
] as const) {
  const { path, rows } = table(heading);
  const documented = new Set(rows.flatMap((row) => namesIn(row.split('|')[1] ?? '', /`(\w+)`/g)));
  for (const name of tablesOf(folder, schema))
    if (!documented.has(name))
      faults.push(
        `${path}: the table "${heading}" says of each table what limits its growth. Add | \`${name}\` | ${example} |`,
      );
}

const { path: errorPage, rows: errorRows } = table('| `error` | status | when |');
const expected = Object.entries(errors).map(
  ([name, { status, meaning }]) => `| \`${name}\` | ${String(status)} | ${meaning} |`,
);
for (const row of expected)
  if (!errorRows.includes(row)) faults.push(`${errorPage}: the table of errors lacks the row ${row}`);
for (const row of errorRows)
  if (row !== '' && !expected.includes(row))
    faults.push(`${errorPage}: src/domain/errors.ts has no error of the row ${row}`);

const settings = namesIn(read('src/process/config.ts'), /^ {2}([A-Z_]+): /gm);
const examples = namesIn(read('.env.example'), /^([A-Z_]+)=/gm);
for (const name of settings) if (!examples.includes(name)) faults.push(`.env.example: add the setting ${name}=`);
for (const name of examples)
  if (!settings.includes(name)) faults.push(`.env.example: src/process/config.ts reads no setting ${name}`);

const alerts = read('packaging/prometheus/alerts.yml').split(/\n\s*- alert: /);
for (const rule of alerts.slice(1)) {
  const [name = ''] = rule.split('\n', 1);
  const [, page = '', anchor] = /runbook: (\S+)#(\w+)/.exec(rule) ?? [];
  if (
    anchor !== name.toLowerCase() ||
    !pages.some(({ path, text }) => path === page && text.includes(`\n### ${name}\n`))
  )
    faults.push(
      `packaging/prometheus/alerts.yml: the alert ${name} needs a runbook page#${name.toLowerCase()} with its heading`,
    );
}

process.stderr.write(faults.map((line) => `${line}\n`).join(''));
process.exitCode = faults.length > 0 ? 1 : 0;
