import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { extname, join, relative, sep } from 'node:path';
import { type Request, type RequestHandler, type Response, Router } from 'express';
import helmet from 'helmet';
import type { Logger } from 'pino';
import { ApiError } from '../domain/errors.ts';

/** Where `npm run build` puts the page. */
const built = join(import.meta.dirname, '../../dist/console');

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** A file of the page, with what the build compressed of it. */
interface BuiltFile {
  type: string;
  plain: Buffer;
  br: Buffer | undefined;
  gzip: Buffer | undefined;
}

/** All files of the page by their path: together they are smaller than one picture. @returns undefined where there is none */
async function readBuilt(folder: string): Promise<Map<string, BuiltFile> | undefined> {
  if (!existsSync(join(folder, 'index.html'))) return undefined;
  const files = new Map<string, BuiltFile>();
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    const type = types[extname(entry.name)];
    if (!entry.isFile() || type === undefined) continue;
    const path = join(entry.parentPath, entry.name);
    const compressed = (ending: string) => readFile(`${path}.${ending}`).catch(() => undefined);
    files.set(relative(folder, path).replaceAll(sep, '/'), {
      type,
      plain: await readFile(path),
      br: await compressed('br'),
      gzip: await compressed('gz'),
    });
  }
  return files;
}

function answerFile(req: Request, res: Response, { type, plain, br, gzip }: BuiltFile, caching: string): void {
  res.set({ 'Content-Type': type, 'Cache-Control': caching }).vary('Accept-Encoding');
  const encoding = req.acceptsEncodings(...(br ? ['br'] : []), ...(gzip ? ['gzip'] : []), 'identity');
  const content = encoding === 'br' ? br : encoding === 'gzip' ? gzip : undefined;
  if (content && typeof encoding === 'string') res.set('Content-Encoding', encoding);
  res.set('Content-Length', String((content ?? plain).length));
  res.end(req.method === 'HEAD' ? undefined : (content ?? plain));
}

const missing = `<!doctype html>
<html lang="en">
<title>The console is not built</title>
<h1>The console is not built</h1>
<p>Run <code>npm run build</code> where the service is installed, then load this page again. It needs the development packages (<code>npm ci</code>).</p>
<p>The API works all the same: <a href="/api/docs/">/api/docs/</a>.</p>
</html>
`;

/**
 * /console: the operators’ page. Its files have hashed names and are kept by browsers for good; every other address below it answers the page
 * itself, which finds out what to show.
 * @param folder  where the built page is
 */
export function consoleRouter(logger: Pick<Logger, 'warn'>, folder = built): Router {
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
  const answer: RequestHandler = async (req, res, next) => {
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      next();
      return;
    }
    const found = await (files ??= readBuilt(folder));
    if (!found) {
      // Looked for again at the next request: it may be built while the service runs.
      files = undefined;
      logger.warn({ operation: '/console', message: 'The console is not built: npm run build' });
      res.status(503).set({ 'Content-Type': 'text/html; charset=utf-8', 'Cache-Control': 'no-store' }).end(missing);
      return;
    }
    const path = req.path.slice(1);
    const asset = path.startsWith('assets/') ? found.get(path) : undefined;
    const page = found.get('index.html');
    if (asset) answerFile(req, res, asset, 'public, max-age=31536000, immutable');
    else if (page && !path.startsWith('assets/')) answerFile(req, res, page, 'no-cache');
    else next(new ApiError('not_found', `There is no file ${req.originalUrl}.`));
  };
  router.use(answer);
  return router;
}
