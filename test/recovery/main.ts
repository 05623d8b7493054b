// Restores a server, and then one school, to a moment before a mistake: `npm run test:recovery`. docs/backup.md has the
// same steps with pg_basebackup and pgBackRest, which are not in node_modules.
import { chown, mkdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { checksumTenant } from '../../src/database/archive.ts';
import { type EmbeddedServer, ensureDatabase, startEmbedded } from '../../src/database/embedded.ts';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { passwords } from '../../src/domain/passwords.ts';
import { loadDemo } from '../../src/process/demo.ts';
import { until } from '../support/client/until.ts';
import { takeBaseBackup } from '../support/server/base-backup.ts';
import { ownFolder } from '../support/server/own-server.ts';
import { runProgram } from '../support/server/processes.ts';
import { startRun } from '../support/server/run.ts';

const demoId = '1';
const run = await startRun();
const folder = await ownFolder('school-recovery-');
const dataDir = join(folder, 'data');
const archive = join(folder, 'archive');

const start = (name: string, settings: string[]) => startEmbedded(join(folder, name), ['fsync=off', ...settings]);

const query = <Row extends object>(server: EmbeddedServer, text: string) =>
  withOwner(server.url('school'), async (client) => (await client.query<Row>(text)).rows[0]);

/** The checksum of each table of the demo school. */
const content = (server: EmbeddedServer) =>
  withOwner(server.url('school'), async (client) =>
    JSON.stringify([...(await checksumTenant(client, demoId)).tables].sort()),
  );

/** Runs a command of `school`. @throws with its output when it fails */
async function school(server: EmbeddedServer, ...args: string[]): Promise<void> {
  const env = { DATABASE_URL: server.url('school'), DATA_DIR: dataDir };
  const { code, stdout, stderr } = await runProgram('src/cli/main.ts', args, env);
  if (code !== 0) throw new Error(`school ${args.join(' ')}: ${stdout}${stderr}`);
}

async function recover(): Promise<void> {
  await mkdir(archive);
  const copyToArchive = `test ! -f ${archive}/%f && cp %p ${archive}/%f`;
  const live = await start('live', ['archive_mode=on', `archive_command=${copyToArchive}`]);
  const { uid, gid } = await stat(live.cluster);
  await chown(archive, uid, gid);
  await ensureDatabase(live, 'school');
  await migrate({ ownerUrl: live.url('school') });
  await withOwner(live.url('school'), (client) => loadDemo(client, passwords()));
  await takeBaseBackup(live, join(folder, 'restored'), 'recovery.signal');

  await query(live, "update tenant_1.student set last_name = 'After the backup' where id % 2 = 0");
  const before = await content(live);
  const moment = (await query<{ now: string }>(live, 'select clock_timestamp()::text as now'))?.now ?? '';
  await query(live, "update tenant_1.student set last_name = 'Mistake'");
  const last = (await query<{ wal: string }>(live, 'select pg_walfile_name(pg_switch_wal()) as wal'))?.wal ?? '';
  await until(() =>
    stat(join(archive, last)).then(
      () => true,
      () => undefined,
    ),
  );

  const restored = await start('restored', [
    'archive_mode=off',
    `restore_command=cp ${archive}/%f %p`,
    `recovery_target_time=${moment}`,
    'recovery_target_action=promote',
  ]);
  await until(async () =>
    (await query<{ is_over: boolean }>(restored, 'select not pg_is_in_recovery() as is_over'))?.is_over
      ? true
      : undefined,
  );
  if ((await content(restored)) !== before) throw new Error('The restored server differs from that of the moment.');
  if ((await content(live)) === before) throw new Error('The mistake left no trace on the live server.');
  await school(restored, 'doctor', '--data');

  const file = join(folder, 'demo.jsonl.gz');
  await school(restored, 'tenant', 'export', 'demo', '--file', file);
  await school(live, 'tenant', 'import', file, '--as', 'demo-restored');
  await school(live, 'tenant', 'verify', 'demo-restored', file);
}

try {
  await recover();
  process.stdout.write('A server and a school were restored to the moment before a mistake.\n');
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
await run.end();
