// Deletes what packages ship and nothing here reads. Runs at the end of `npm ci` and `npm install`.
import { globSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';

/** Patterns below node_modules, with the reason why nobody misses the files. */
export const unneeded: Record<string, string> = {
  'node-*/{include,share,CHANGELOG.md}': 'headers for compiling addons; all addons are prebuilt',
  'ruru/static': 'the editor once more; `ruru/static` reads the compressed copy in dist/bundleCode.js',
  'ruru/dist/bundleMeta.js': 'source maps of the editor, which the service does not serve',
  'highlight.js/{scss,styles,lib/languages}':
    'color schemes, which the guide has itself, and CommonJS copies of the languages',
  'echarts/dist': 'bundles for browsers; the benchmarks import the modules in lib',
  '**/*.map': 'source maps of packages',
};

const root = join(import.meta.dirname, '../node_modules');
if (import.meta.main)
  for (const pattern of Object.keys(unneeded))
    await Promise.all(globSync(pattern, { cwd: root }).map((path) => rm(join(root, path), { recursive: true })));
