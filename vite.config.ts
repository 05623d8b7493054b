import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, gzip } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

const outDir = join(import.meta.dirname, 'dist/console');

/** Writes a .br and a .gz next to each file, so that the service never compresses at run time. */
const compress: Plugin = {
  name: 'compress',
  apply: 'build',
  async closeBundle() {
    const files = (await readdir(outDir, { recursive: true, withFileTypes: true })).filter(
      (entry) => entry.isFile() && /\.(js|css|html|svg)$/.test(entry.name),
    );
    for (const { parentPath, name } of files) {
      const file = join(parentPath, name);
      const content = await readFile(file);
      await writeFile(`${file}.br`, await promisify(brotliCompress)(content));
      await writeFile(`${file}.gz`, await promisify(gzip)(content, { level: 9 }));
    }
  },
};

/**
 * The operator console. `npm run build` builds the files that the service serves. `npm run dev` starts a development
 * server that uses the API of a running service.
 */
export default defineConfig({
  root: join(import.meta.dirname, 'src/console'),
  base: '/console/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir,
    emptyOutDir: true,
    target: 'es2023',
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    // The content security policy of the page allows no data: URLs.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { proxy: { '/api': process.env['API_URL'] ?? 'http://127.0.0.1:3000' } },
  plugins: [compress],
});
