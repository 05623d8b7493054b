import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { extname, join, relative, sep } from 'node:path';
import { type RequestHandler, Router } from 'express';
import type { Logger } from 'pino';
import { ApiError } from '../domain/errors.ts';
import { sendStaticFile, staticFile, type StaticFile } from './static-files.ts';
import { html } from './html.ts';
import { contentPolicy } from './content-policy.ts';

const contentTypes: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
};

/** Reads all built files into memory, by path. @returns undefined when they are not built */
async function readBuiltFiles(folder: string): Promise<Map<string, StaticFile> | undefined> {
  if (!existsSync(join(folder, 'index.html'))) return undefined;
  const files = new Map<string, StaticFile>();
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    const type = contentTypes[extname(entry.name)];
    if (!entry.isFile() || type === undefined) continue;
    const path = join(entry.parentPath, entry.name);
    const compressed = (extension: string) => readFile(`${path}.${extension}`).catch(() => undefined);
    files.set(
      relative(folder, path).replaceAll(sep, '/'),
      staticFile(type, await readFile(path), { br: await compressed('br'), gzip: await compressed('gz') }),
    );
  }
  return files;
}

const notBuiltPage = (name: string) =>
  `<!doctype html>\n${
    html`<html lang="en">
      <title>The ${name} is not built</title>
      <h1>The ${name} is not built</h1>
      <p>
        Run <code>npm run build</code> on the server, then reload this page. This requires the development dependencies
        (<code>npm ci</code>).
      </p>
      <p>The API works without the ${name}: <a href="/api/docs/">/api/docs/</a>.</p>
    </html>`.markup
  }\n`;

interface BuiltPages {
  /** What the pages are, in messages: `console`. */
  name: string;
  address: string;
  /** The output folder of the build. */
  folder: string;
  /** The file of a page, for the part of its address below `address`. */
  fileOf: (path: string) => string;
}

/** Serves pages that `npm run build` writes. Their policy forbids inline code. */
export function builtPages(logger: Pick<Logger, 'warn'>, pages: BuiltPages): Router {
  const router = Router();
  router.use(contentPolicy({ imgSrc: ["'self'"], requireTrustedTypesFor: ["'script'"], trustedTypes: ["'none'"] }));
  router.use(builtFiles(logger, pages));
  return router;
}

/** Serves the files of pages without a policy. Files in assets/ have hashed names and are cached forever. */
export function builtFiles(
  logger: Pick<Logger, 'warn'>,
  { name, address, folder, fileOf }: BuiltPages,
): RequestHandler {
  let files: Promise<Map<string, StaticFile> | undefined> | undefined;
  return async (req, res, next) => {
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      next();
      return;
    }
    const built = await (files ??= readBuiltFiles(folder));
    if (!built) {
      // Look again at the next request: the pages may be built while the service runs.
      files = undefined;
      logger.warn({ operation: address, message: `The ${name} is not built. Run npm run build.` });
      res
        .status(503)
        .set({ 'Content-Type': 'text/html; charset=utf-8', 'Cache-Control': 'no-store' })
        .end(notBuiltPage(name));
      return;
    }
    const path = req.path.slice(1);
    const isAsset = path.startsWith('assets/');
    const file = built.get(isAsset ? path : fileOf(path));
    if (file) sendStaticFile(req, res, file, isAsset ? 'public, max-age=31536000, immutable' : 'no-cache');
    else next(new ApiError('not_found', `There is no file ${req.originalUrl}.`));
  };
}
