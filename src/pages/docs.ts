import { join } from 'node:path';
import express, { Router } from 'express';
import { compressedFile, sendStaticFile, type StaticFile } from './static-files.ts';
import { contentPolicy } from './content-policy.ts';
import type { ReferenceDocument } from './operation-html.ts';
import { referencePages } from './reference.ts';
import { requireTrailingSlash } from './trailing-slash.ts';

/**
 * Serves the reference of the API at /api/docs: one page of HTML for each section of the OpenAPI document.
 * @param readDocument  returns the OpenAPI document
 */
export function docsRouter(readDocument: () => object): Router {
  const router = Router();
  router.use(contentPolicy());
  router.use(requireTrailingSlash);
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
