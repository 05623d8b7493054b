import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

/** The folder of the program that packaging/analytics.ts builds. */
export const prebuiltFolder = join(root, 'dist/analytics');

/** The hashes of source files of the program, by their paths below the root of the project. */
export type SourceHashes = Record<string, string>;

/** The hash of a source file. @throws when there is no such file */
export const sourceHash = (path: string): string =>
  createHash('sha256')
    .update(readFileSync(join(root, path)))
    .digest('hex');

/**
 * The program with the prebuilt schema. Undefined if it is missing, or if a source has changed since it was built: a
 * developer's change must not wait for the next build. The package has no sources; its build makes everything at once.
 */
export function prebuiltProgram(folder: string): string | undefined {
  try {
    const hashes = JSON.parse(readFileSync(join(folder, 'sources.json'), 'utf8')) as SourceHashes;
    const hasSources = import.meta.filename.endsWith('.ts');
    const isCurrent = !hasSources || Object.entries(hashes).every(([path, hash]) => sourceHash(path) === hash);
    return isCurrent ? join(folder, 'main.mjs') : undefined;
  } catch {
    return undefined;
  }
}
