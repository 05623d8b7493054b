// `npm run check:imports`: the rules of .dependency-cruiser.mjs, and that every file was read. The parser for TypeScript
// is optional, and without it dependency-cruiser would report no violation in files that it leaves out.
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { cruise, type ICruiseResult } from 'dependency-cruiser';
import extractOptions from 'dependency-cruiser/config-utl/extract-depcruise-options';

const root = join(import.meta.dirname, '..');
const folders = ['src', 'workers', 'db', 'test', 'bench', 'docs', 'checks', 'scaffold'];

const options = await extractOptions(join(root, '.dependency-cruiser.mjs'));
const { output } = await cruise(folders, options);
const { modules, summary } = output as ICruiseResult;

const read = new Set(modules.map(({ source }) => source));
const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', ...folders], {
  cwd: root,
  encoding: 'utf8',
});
const missing = files.split('\n').filter((file) => /\.tsx?$/.test(file) && !read.has(file));
const faults = [
  ...summary.violations.map(({ rule, from, to }) => `${rule.name}: ${from} imports ${to}`),
  ...missing.map((file) => `${file}: dependency-cruiser did not read this file`),
];
for (const fault of faults) process.stderr.write(`${fault}\n`);
if (faults.length > 0) process.exitCode = 1;
