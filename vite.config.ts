import { join } from 'node:path';
import { defineConfig } from 'vite';
import { compressFiles } from './packaging/compress.ts';

const outDir = join(import.meta.dirname, 'dist/console');

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
    // The console, and the page of analysts.
    rolldownOptions: {
      input: ['index.html', 'ide.html'].map((name) => join(import.meta.dirname, 'src/console', name)),
    },
    emptyOutDir: true,
    target: 'es2023',
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    // The content security policy of the page allows no data: URLs.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    proxy: Object.fromEntries(
      ['/api', '/graphql'].map((path) => [path, process.env['API_URL'] ?? 'http://127.0.0.1:3000']),
    ),
  },
  plugins: [{ name: 'compress', apply: 'build', closeBundle: () => compressFiles(outDir) }],
});
