// Compiles the service into dist/service, with everything that it reads at run time: Node does not strip types below
// node_modules, where the npm package is installed. `npm pack` runs it, and so does the Dockerfile.
import { execFile } from 'node:child_process';
import { globSync } from 'node:fs';
import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { build as buildConsole } from 'vite';
import { buildGuide } from '../docs/site/build.ts';
import { buildAnalytics } from './analytics.ts';

const root = join(import.meta.dirname, '..');
const target = join(root, 'dist/service');

await rm(target, { recursive: true, force: true });
await promisify(execFile)(process.execPath, [
  join(root, 'node_modules/typescript/bin/tsc'),
  '--project',
  import.meta.dirname,
]);
// The compiler rewrites imports, but not the addresses of threads and processes.
for (const path of globSync('**/*.js', { cwd: target })) {
  const file = join(target, path);
  const code = await readFile(file, 'utf8');
  const rewritten = code.replaceAll(
    /new URL\('([\w.-]+)\.ts', import\.meta\.url\)/g,
    "new URL('$1.js', import.meta.url)",
  );
  if (rewritten !== code) await writeFile(file, rewritten);
}
await buildConsole({ logLevel: 'warn' });
await buildGuide();
await buildAnalytics();
const assets = [
  'migrations',
  'dist/analytics',
  'dist/console',
  'dist/guide',
  ...globSync('db/**/*.sql', { cwd: root }),
];
const pages = globSync('src/pages/*/', { cwd: root });
for (const path of [...assets, ...pages]) await cp(join(root, path), join(target, path), { recursive: true });
