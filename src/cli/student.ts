import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { strToU8, zipSync } from 'fflate';
import type pg from 'pg';
import { exportsFolder } from '../database/archive.ts';
import type { NamedTenant } from '../database/find-tenant.ts';
import { retryLockConflicts } from '../database/lock-conflicts.ts';
import { onServerOfSchool } from '../servers/school-server.ts';
import type { Config } from '../process/config.ts';
import { withClient } from '../process/database-access.ts';
import { confirm, counted, type Format, print } from './output.ts';

/** Runs `work` with a school that no migration and no purge changes meanwhile. */
const withSchool = <T>(config: Config, school: string, work: (client: pg.Client, tenant: NamedTenant) => Promise<T>) =>
  withClient(config, (home) =>
    onServerOfSchool(home, school, async (client, tenant) => {
      // Held until the connection closes.
      await client.query('select pg_advisory_lock_shared(core.tenant_lock_key($1))', [tenant.id]);
      return work(client, tenant);
    }),
  );

/** A name that is safe in a file system and unique in the archive. */
const entryName = ({ id, name }: { id: string; name: string | null }) =>
  `files/${id}-${(name ?? 'file').replace(/[^\p{L}\p{N}._-]+/gu, '_').slice(-80)}`;

/** `school student export`: all data of a student in a zip file, readable only by its owner. */
export const studentExport = (
  config: Config,
  school: string,
  id: number,
  { file, json }: Format & { file?: string },
): Promise<void> =>
  withSchool(config, school, async (client, tenant) => {
    await client.query('begin isolation level repeatable read read only');
    const { rows } = await client.query<{ data: string }>('select jsonb_pretty(core.student_export($1, $2)) as data', [
      tenant.id,
      id,
    ]);
    const files = await client.query<{ id: string; name: string | null; content: Buffer }>(
      'select id, name, content from core.student_files($1, $2)',
      [tenant.id, id],
    );
    await client.query('commit');
    const time = new Date().toISOString().replace(/[:.]/g, '');
    const target = file
      ? resolve(file)
      : join(exportsFolder(config), `${tenant.subdomain}-${tenant.id}-student-${String(id)}-${time}.zip`);
    const archive = zipSync({
      'student.json': strToU8(`${rows[0]?.data ?? '{}'}\n`),
      ...Object.fromEntries(files.rows.map((row) => [entryName(row), new Uint8Array(row.content)])),
    });
    await mkdir(dirname(target), { recursive: true, mode: 0o700 });
    const draft = join(dirname(target), `.${basename(target)}.${String(process.pid)}`);
    try {
      await writeFile(draft, archive, { flag: 'wx', mode: 0o600, flush: true });
      await rename(draft, target);
    } catch (error) {
      await rm(draft, { force: true });
      throw error;
    }
    if (json)
      print(JSON.stringify({ tenant_id: Number(tenant.id), student_id: id, file: target, files: files.rows.length }));
    else
      print(
        `Student ${String(id)} of school ${tenant.id}: data and ${counted(files.rows.length, 'file')} in ${target}`,
      );
  });

/** `school student erase`. @throws when the student does not exist, or without a confirmation */
export const studentErase = (
  config: Config,
  school: string,
  id: number,
  { yes, json }: Format & { yes?: boolean },
): Promise<void> =>
  withSchool(config, school, async (client, tenant) => {
    await confirm(
      `This erases the personal data of student ${String(id)} of school ${tenant.id} (${tenant.subdomain}) for good`,
      yes,
    );
    const { rows } = await retryLockConflicts(() =>
      client.query<{ counts: Record<string, number> }>('select core.student_erase($1, $2) as counts', [tenant.id, id]),
    );
    const counts = rows[0]?.counts ?? {};
    if (json) print(JSON.stringify({ tenant_id: Number(tenant.id), student_id: id, changed_rows: counts }));
    else {
      const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
      print(`Erased the personal data of student ${String(id)}: ${counted(total, 'row')} changed or deleted.`);
      print('Backups, export files and emails in DATA_DIR/outbox still contain it until they are deleted.');
    }
  });
