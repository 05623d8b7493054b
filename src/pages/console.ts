import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { extname, join, relative, sep } from 'node:path';
import { type Request, type RequestHandler, type Response, Router } from 'express';
import helmet from 'helmet';
import type { Logger } from 'pino';
import { ApiError } from '../domain/errors.ts';

/** The output folder of `npm run build`. */
const defaultFolder = join(import.meta.dirname, '../../dist/console');

const contentTypes: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** A built file and its compressed versions. */
interface BuiltFile {
  type: string;
  plain: Buffer;
  br: Buffer | undefined;
  gzip: Buffer | undefined;
}

/** Reads all built files into memory (150 kB), by path. @returns undefined when the console is not built */
async function readBuiltFiles(folder: string): Promise<Map<string, BuiltFile> | undefined> {
  if (!existsSync(join(folder, 'index.html'))) return undefined;
  const files = new Map<string, BuiltFile>();
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    const type = contentTypes[extname(entry.name)];
    if (!entry.isFile() || type === undefined) continue;
    const path = join(entry.parentPath, entry.name);
    const compressed = (extension: string) => readFile(`${path}.${extension}`).catch(() => undefined);
    files.set(relative(folder, path).replaceAll(sep, '/'), {
      type,
      plain: await readFile(path),
      br: await compressed('br'),
      gzip: await compressed('gz'),
    });
  }
  return files;
}

function sendFile(req: Request, res: Response, { type, plain, br, gzip }: BuiltFile, cacheControl: string): void {
  res.set({ 'Content-Type': type, 'Cache-Control': cacheControl }).vary('Accept-Encoding');
  const encoding = req.acceptsEncodings(...(br ? ['br'] : []), ...(gzip ? ['gzip'] : []), 'identity');
  const content = encoding === 'br' ? br : encoding === 'gzip' ? gzip : undefined;
  if (content && typeof encoding === 'string') res.set('Content-Encoding', encoding);
  res.set('Content-Length', String((content ?? plain).length));
  res.end(req.method === 'HEAD' ? undefined : (content ?? plain));
}

const notBuiltPage = `<!doctype html>
<html lang="en">
<title>The console is not built</title>
<h1>The console is not built</h1>
<p>Run <code>npm run build</code> on the server, then reload this page. This requires the development dependencies (<code>npm ci</code>).</p>
<p>The API works without the console: <a href="/api/docs/">/api/docs/</a>.</p>
</html>
`;

/**
 * Serves the operator console at /console. Assets have hashed names and are cached forever. Every other path returns
 * the page, whose own router decides what to show.
 * @param folder  contains the built files
 */
export function consoleRouter(logger: Pick<Logger, 'warn'>, folder = defaultFolder): Router {
  let files: Promise<Map<string, BuiltFile> | undefined> | undefined;
  const router = Router();
  router.use(
    helmet.contentSecurityPolicy({
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        styleSrc: ["'self'"],
        imgSrc: ["'self'"],
        connectSrc: ["'self'"],
        frameAncestors: ["'none'"],
        baseUri: ["'none'"],
        formAction: ["'none'"],
        requireTrustedTypesFor: ["'script'"],
        trustedTypes: ["'none'"],
      },
    }),
  );
  const serve: RequestHandler = async (req, res, next) => {
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      next();
      return;
    }
    const built = await (files ??= readBuiltFiles(folder));
    if (!built) {
      // Look again at the next request: the console may be built while the service runs.
      files = undefined;
      logger.warn({ operation: '/console', message: 'The console is not built. Run npm run build.' });
      res
        .status(503)
        .set({ 'Content-Type': 'text/html; charset=utf-8', 'Cache-Control': 'no-store' })
        .end(notBuiltPage);
      return;
    }
    const path = req.path.slice(1);
    const asset = path.startsWith('assets/') ? built.get(path) : undefined;
    const page = built.get('index.html');
    if (asset) sendFile(req, res, asset, 'public, max-age=31536000, immutable');
    else if (page && !path.startsWith('assets/')) sendFile(req, res, page, 'no-cache');
    else next(new ApiError('not_found', `There is no file ${req.originalUrl}.`));
  };
  router.use(serve);
  return router;
}
