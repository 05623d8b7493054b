// Removes `engines` from package-lock.json. npm compares it with the Node that runs npm and warns, but the packages run
// on the Node that package.json installs. npm has no setting for this. `npm install` and `npm ci` run it at their end.
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const path = join(import.meta.dirname, '../package-lock.json');
const text = await readFile(path, 'utf8');
const lock = JSON.parse(text) as { packages: Record<string, { engines?: unknown }> };
for (const [name, entry] of Object.entries(lock.packages)) if (name !== '') delete entry.engines;
const changed = `${JSON.stringify(lock, null, 2)}\n`;
if (changed !== text) await writeFile(path, changed);
