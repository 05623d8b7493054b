import { migrate } from '../src/database/migrate/migrate.ts';
import { withOwner } from '../src/database/pool/pool.ts';
import type { EmbeddedServer } from '../src/database/embedded.ts';

/**
 * Measures `migrate` when every school is one small migration behind, in a clone of the database that is dropped
 * afterwards. The pending migration is the latest one of the repository; in the clone its body is replaced by adding
 * one column.
 * @returns schools migrated, seconds
 */
export async function measureFanout(
  server: EmbeddedServer,
  database: string,
): Promise<{ schools: number; seconds: number }> {
  const clone = 'bench_clone';
  const admin = (text: string) => withOwner(server.url('postgres'), (owner) => owner.query(text));
  await admin(`drop database if exists ${clone}`);
  await admin(`create database ${clone} template ${database} strategy file_copy`);
  try {
    await withOwner(server.url(clone), (owner) =>
      owner.query(`
        update platform.tenant_migration set body = 'alter table student add column bench_note text'
          where version = (select max(version) from platform.tenant_migration);
        -- Version 0 means that there is no schema yet, so use -1 if the first migration is also the latest.
        update platform.tenant set schema_version = (select coalesce(nullif(max(version) - 1, 0), -1) from platform.tenant_migration);
        checkpoint`),
    );
    const start = performance.now();
    const { tenants, failed } = await migrate({ ownerUrl: server.url(clone) });
    const seconds = (performance.now() - start) / 1000;
    if (failed[0]) throw new Error(`School ${failed[0].tenant} could not be migrated: ${failed[0].error ?? ''}`);
    return { schools: tenants.length, seconds };
  } finally {
    await admin(`drop database ${clone}`);
  }
}
