// Builds dist/analytics: the program that runs analytics queries, in one file with its packages, and with the GraphQL
// schema as code. It starts in a quarter of the processor time of src/analytics/main.ts, which loads 560 modules and
// builds the schema. docs/decisions/0048-analysts-at-work.md has the figures.
import { globSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createRequire, isBuiltin } from 'node:module';
import { isAbsolute, join, relative, resolve } from 'node:path';
import { build } from 'vite';
import { catalogFingerprint } from '../src/analytics/catalog.ts';
import { prebuiltFolder, sourceHash, type SourceHashes } from '../src/analytics/prebuilt-program.ts';

const root = join(import.meta.dirname, '..');
const sourceFolder = join(root, 'src/analytics');

/** Sources that determine the schema or the packages, also those that the program itself does not load. */
const otherSources = ['package-lock.json', 'packaging/analytics.ts', ...globSync('src/analytics/*', { cwd: root })];

/** The schema as a module. */
async function schemaModule(catalog: string): Promise<string> {
  // PostGraphile reads it when it is loaded. The service sets it, too.
  process.env['GRAPHILE_ENV'] = 'production';
  const [{ exportSchemaAsString }, dataplanPg, groups, { analyticsSchema }] = await Promise.all([
    import('graphile-export'),
    import('postgraphile/@dataplan/pg'),
    import('../src/analytics/groups.ts'),
    import('../src/analytics/schema.ts'),
  ]);
  // graphile-export reads all properties of `crypto`.
  process.noDeprecation = true;
  const { code } = await exportSchemaAsString(await analyticsSchema(catalog), {
    mode: 'graphql-js',
    modules: { 'postgraphile/@dataplan/pg': dataplanPg, [join(sourceFolder, 'groups.ts')]: groups },
  });
  // Packages that this project depends on only through PostGraphile.
  return code.replaceAll(/ from "(grafast|graphql)";/g, ' from "postgraphile/$1";');
}

/** Builds the program. */
export async function buildAnalytics(folder = prebuiltFolder): Promise<void> {
  const catalog = JSON.stringify(JSON.parse(await readFile(join(sourceFolder, 'catalog.json'), 'utf8')));
  const modules: Record<string, string> = {
    schema: await schemaModule(catalog),
    main: `
      import { servePrebuilt } from ${JSON.stringify(join(sourceFolder, 'prebuilt.ts'))};
      import { schema } from 'analytics:schema';
      servePrebuilt(schema, '${catalogFingerprint(catalog)}');`,
  };
  const sources = new Set(otherSources);
  await build({
    configFile: false,
    root,
    logLevel: 'warn',
    plugins: [
      {
        name: 'generated-modules',
        enforce: 'pre',
        resolveId(id, importer = '') {
          if (id.startsWith('analytics:')) return `\0${id}`;
          if (!/^[@\w]/.test(id) || isBuiltin(id) || id === 'pg-native') return undefined;
          // As Node's `require` does. Otherwise, there would be a second copy of graphql for `import`.
          return createRequire(isAbsolute(importer) ? importer : join(root, 'package.json')).resolve(id);
        },
        load: (id) => modules[id.replace('\0analytics:', '')],
        moduleParsed({ id }) {
          const path = relative(root, id);
          if (/^(src|workers)\//.test(path)) sources.add(path);
        },
      },
    ],
    // The service does not install pg-native.
    ssr: { noExternal: true, external: ['pg-native'] },
    build: {
      ssr: true,
      outDir: folder,
      emptyOutDir: true,
      target: 'es2024',
      rolldownOptions: {
        input: { main: 'analytics:main' },
        // .mjs, because the image has no package.json. Names stay, for the stack traces in the log.
        output: { codeSplitting: false, entryFileNames: 'main.mjs', minify: { mangle: false } },
      },
    },
  });
  const hashes: SourceHashes = Object.fromEntries([...sources].sort().map((path) => [path, sourceHash(path)]));
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'sources.json'), JSON.stringify(hashes, undefined, 2));
}

if (import.meta.main) await buildAnalytics(process.argv[2] === undefined ? undefined : resolve(process.argv[2]));
