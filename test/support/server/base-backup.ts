import { chown, mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { EmbeddedServer } from '../../../src/database/embedded.ts';
import { withOwner } from '../../../src/database/pool/pool.ts';
import { copyCluster } from './own-server.ts';

/**
 * Copies the files of a running server, as pg_basebackup does.
 * @param target  the data directory that `startEmbedded` starts later
 * @param signal  what the copy does at its start: recover from an archive, or follow the server as a replica
 */
export async function takeBaseBackup(
  server: EmbeddedServer,
  target: string,
  signal: 'recovery.signal' | 'standby.signal',
): Promise<void> {
  await mkdir(target, { mode: 0o711 });
  const cluster = join(target, 'postgres');
  await withOwner(server.url('school'), async (client) => {
    await client.query("select pg_backup_start('copy', true)");
    await copyCluster(server.cluster, cluster);
    const { rows } = await client.query<{ labelfile: string }>('select labelfile from pg_backup_stop()');
    await writeFile(join(cluster, 'backup_label'), rows[0]?.labelfile ?? '');
  });
  await rm(join(cluster, 'postmaster.pid'));
  await writeFile(join(cluster, signal), '');
  const { uid, gid } = await stat(server.cluster);
  for (const name of ['backup_label', signal]) await chown(join(cluster, name), uid, gid);
}
