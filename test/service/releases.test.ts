import { expect, test } from '@jest/globals';
import { withOwner } from '../../src/database/pool/pool.ts';
import { fingerprint, install } from '../../src/database/migrate/install.ts';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { until } from '../support/client/until.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { recordedReleases } from '../upgrade/releases.ts';

const { service, school } = await serviceWithSchool();

/** The installed functions say that they are of another version, and which ones they serve. */
const installAnother = (served: string[]) =>
  service.database.query(
    `update platform.installation set fingerprint = 'another';
     create or replace function core.served_fingerprints() returns text[] language sql immutable
       return array[${served.map((each) => `'${each}'`).join(', ')}]::text[]`,
  );

const readyStatus = async () => (await service.anonymous.send('GET', '/api/health/ready')).status;

test('the functions serve the recorded releases', async () => {
  const rows = await service.database.query<{ served: string[] }>('select core.served_fingerprints() as served');
  expect(rows[0]?.served).toEqual((await recordedReleases()).map((release) => release.fingerprint));
});

test('a process is ready, and its release can migrate a newer database, exactly if the functions serve it', async () => {
  const options = { ownerUrl: service.database.url };
  await service.database.query(
    "insert into platform.tenant_migration (version, name, body, checksum) values (9001, '9001-later', '', '')",
  );
  await installAnother([]);
  await until(async () => ((await readyStatus()) === 503 ? true : undefined));
  await expect(migrate(options)).rejects.toThrow(
    /The database has migrations that this version does not have: tenant\/9001/,
  );

  await installAnother(['some other', await fingerprint()]);
  await until(async () => ((await readyStatus()) === 200 ? true : undefined));
  expect(await migrate(options)).toMatchObject({ failed: [], functions: 'installed' });

  // The functions are now its own, so it can start again.
  expect(await migrate(options)).toMatchObject({ functions: 'up to date' });
  // The functions require the latest migration of the database, which the school does not have.
  await service.database.query('delete from platform.tenant_migration where version = 9001');
  expect(await migrate(options)).toMatchObject({ functions: 'installed' });
});

test('requests that wait while the functions are replaced are answered', async () => {
  const paths = ['/api/students', '/api/classes', '/api/auth/profile'];
  const sendAll = () => Promise.all(paths.map((path) => school.admin.get(path)));
  // So that their connections know the functions.
  for (let n = 0; n < 10; n++) await sendAll();
  await withOwner(service.database.url, async (owner) => {
    await owner.query('begin; lock table core.operation in access exclusive mode');
    const requests = sendAll();
    await until(async () => {
      const [row] = await service.database.query<{ count: string }>(
        "select count(*) from pg_locks where not granted and relation = 'core.operation'::regclass",
      );
      return row?.count === '3' || undefined;
    });
    // In the same transaction, so that all of them have planned the old functions.
    await owner.query("update platform.installation set fingerprint = 'another'");
    await install(owner);
    await requests;
  });
});

test('a school that is being created while migrations are published gets them', async () => {
  const [first] = await service.database.query<{ name: string; body: string; checksum: string }>(
    'select name, body, checksum from platform.tenant_migration order by version desc limit 1',
  );
  const latest = Number(first?.name.slice(0, 4));
  await service.database.query('delete from platform.tenant_migration where version = $1', [latest]);
  await withOwner(service.database.url, async (owner) => {
    await owner.query('begin');
    const { rows } = await owner.query<{ id: string }>(
      `insert into platform.tenant (name, subdomain, plan_id, contact_email)
       values ('New', 'new', 1, 'office@new.example') returning id`,
    );
    await owner.query('select core.tenant_migrate($1)', [rows[0]?.id]);
    const migration = migrate({ ownerUrl: service.database.url });
    await until(async () => {
      const locks = await service.database.query(
        "select from pg_locks where not granted and relation = 'platform.tenant_migration'::regclass",
      );
      return locks.length > 0 || undefined;
    });
    await owner.query('commit');
    expect((await migration).tenants).toMatchObject([{ tenant: rows[0]?.id, applied: 1 }]);
  });
});
