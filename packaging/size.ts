// Checks the size of the installed packages. The apparent sizes depend less on the file system: 545 MB on a disk are
// 474 MB.
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';

const maxMegabytes = 515;

const folder = join(import.meta.dirname, '../node_modules');
const text = execFileSync('du', ['-sm', '--apparent-size', '--exclude=.cache', folder], { encoding: 'utf8' });
const size = Number.parseInt(text);
process.stdout.write(`node_modules has ${String(size)} MB of ${String(maxMegabytes)}.\n`);
if (size > maxMegabytes) {
  process.stderr.write('It has too many: see docs/decisions/0038-packaging.md.\n');
  process.exitCode = 1;
}
