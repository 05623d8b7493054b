import { join } from 'node:path';
import express, { Router } from 'express';
import { compressedFile, sendStaticFile, type StaticFile } from './static-files.ts';
import { type ReferenceDocument, referencePages } from './reference.ts';
import { contentPolicy } from './content-policy.ts';

/**
 * Serves the reference of the API at /api/docs: one page of HTML for each section of the OpenAPI document.
 * @param readDocument  returns the OpenAPI document
 */
export function docsRouter(readDocument: () => object): Router {
  const router = Router();
  router.use(contentPolicy());
  // The relative URLs in the page require the trailing slash.
  router.use((req, res, next) => {
    if (req.originalUrl.split('?')[0] === req.baseUrl) res.redirect(308, `${req.baseUrl}/`);
    else next();
  });
  router.use(express.static(join(import.meta.dirname, 'docs'), { index: false }));
  let pages: Map<string, () => string> | undefined;
  const files = new Map<string, StaticFile>();
  router.get('/{:section}', async (req, res, next) => {
    const { section = '' } = req.params;
    // For the first reader: most processes have none.
    pages ??= referencePages(readDocument() as ReferenceDocument);
    const render = pages.get(section);
    if (!render) {
      next();
      return;
    }
    const file = files.get(section) ?? (await compressedFile('text/html; charset=utf-8', render()));
    files.set(section, file);
    sendStaticFile(req, res, file, 'no-cache');
  });
  return router;
}
