import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { ensureDatabase, scratchSettings, startEmbedded } from '../../../src/database/embedded.ts';
import { migrate } from '../../../src/database/migrate/migrate.ts';
import { withOwner } from '../../../src/database/pool/pool.ts';
import { copyCluster } from './own-server.ts';
import { makeTemplateSchools } from './template-schools.ts';

const root = join(import.meta.dirname, '../../..');
const cache = join(root, 'node_modules/.cache/test-clusters');

/** The files that determine the content of a prepared cluster. `src/domain` has the errors that installation stores. */
const sources = ['db', 'migrations', 'src/database', 'src/domain', 'test/support/server', 'package-lock.json'];

const maxKept = 3;
/** Longer than a run needs to copy a cluster. */
const maxCopyMs = 5 * 60 * 1000;
/** A cluster that is kept needs no old WAL segments. They would double its size. */
const settings = [...scratchSettings, 'wal_recycle=off', 'min_wal_size=32MB'];

/** A name for the present content of the sources and these counts of template schools. */
async function keyOf(schools: readonly number[]): Promise<string> {
  const hash = createHash('sha256').update(
    JSON.stringify([process.arch, process.env['POSTGRES_BIN'], process.getuid?.(), schools]),
  );
  for (const source of sources) {
    const entries = await readdir(join(root, source), { recursive: true, withFileTypes: true }).catch(() => undefined);
    const files = entries?.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
    for (const file of (files ?? [join(root, source)]).sort())
      hash
        .update(relative(root, file))
        .update('\0')
        .update(await readFile(file))
        .update('\0');
  }
  return hash.digest('hex').slice(0, 16);
}

/**
 * Puts two stopped clusters into a folder: `migrated` has the migrated database `school`, and `postgres` has the
 * templates of setup.ts. Creating them takes several seconds. They are therefore kept in node_modules/.cache, by a hash
 * of the SQL and the code that create them, and copied by later runs. The last three are kept.
 * @param schools  see makeTemplateSchools
 */
export async function prepareClusters(folder: string, schools: readonly number[]): Promise<void> {
  const kept = join(cache, await keyOf(schools));
  const clusters = ['migrated', 'postgres'];
  if (await markUsed(kept)) {
    for (const name of clusters) await copyCluster(join(kept, name), join(folder, name));
    return;
  }
  await createClusters(folder, schools);
  await removeUnused();
  const draft = `${kept}.${String(process.pid)}`;
  await mkdir(draft, { recursive: true });
  for (const name of clusters) await copyCluster(join(folder, name), join(draft, name));
  // Another run may have been faster.
  await rename(draft, kept).catch(() => rm(draft, { recursive: true, force: true }));
}

/** Whether the folder exists. Its time of modification becomes now. */
const markUsed = (path: string) =>
  utimes(path, new Date(), new Date()).then(
    () => true,
    () => false,
  );

/** Removes the least recently used clusters. A recently used one may be in use: a parallel run copies it. */
async function removeUnused(): Promise<void> {
  const names = await readdir(cache).catch(() => []);
  const clusters = await Promise.all(
    names.map(async (name) => {
      const path = join(cache, name);
      return { path, usedMs: (await stat(path).catch(() => undefined))?.mtimeMs ?? Infinity };
    }),
  );
  clusters.sort((a, b) => b.usedMs - a.usedMs);
  for (const { path, usedMs } of clusters.slice(maxKept - 1))
    if (usedMs < Date.now() - maxCopyMs) await rm(path, { recursive: true, force: true });
}

async function createClusters(folder: string, schools: readonly number[]): Promise<void> {
  const first = await startEmbedded(folder, settings);
  try {
    await ensureDatabase(first, 'school');
    await migrate({ ownerUrl: first.url('school') });
  } finally {
    await first.stop();
  }
  await copyCluster(first.cluster, join(folder, 'migrated'));
  const second = await startEmbedded(folder, settings);
  try {
    await withOwner(second.url('postgres'), (owner) => owner.query('alter database school rename to template_school'));
    await makeTemplateSchools(second, schools);
  } finally {
    await second.stop();
  }
}
