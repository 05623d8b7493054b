import { join } from 'node:path';
import type { Router } from 'express';
import type { Logger } from 'pino';
import { builtPages } from './built-pages.ts';

/**
 * Serves the operator console at /console. Every path returns the page, whose own router decides what to show.
 * @param folder  contains the built files
 */
export const consoleRouter = (
  logger: Pick<Logger, 'warn'>,
  folder = join(import.meta.dirname, '../../dist/console'),
): Router => builtPages(logger, { name: 'console', address: '/console', folder, fileOf: () => 'index.html' });
