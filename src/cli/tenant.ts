import { mkdir, mkdtemp, rm, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type pg from 'pg';
import {
  archiveName,
  type Checksums,
  checksumFile,
  checksumTenant,
  exportsFolder,
  exportTenant,
} from '../database/archive.ts';
import { findTenant, type NamedTenant } from '../database/find-tenant.ts';
import { onNodeOfNewSchool } from '../servers/nodes/new-schools.ts';
import { withOwner } from '../database/pool/pool.ts';
import { compareServers } from '../servers/claims.ts';
import { homeName, readServers } from '../servers/servers.ts';
import { type ImportedSchool, importSchool, onServerOfSchool } from '../servers/school-server.ts';
import { passwords } from '../domain/passwords.ts';
import { TenantInput } from '../endpoints/platform.ts';
import { normalizeText, receivedText } from '../http/received-text.ts';
import type { Config } from '../process/config.ts';
import { withClient } from '../process/database-access.ts';
import { exitCodes } from './exit-codes.ts';
import { runOperation } from './operation.ts';
import { confirm, counted, fields, type Format, print, table } from './output.ts';
import { progress } from './progress.ts';

interface ListedSchool {
  id: string;
  subdomain: string;
  name: string;
  status: string;
  plan: string;
  /** Null for a school on a node, which alone knows it. */
  schema_version: number | null;
  students: number;
  deleted_on: string | null;
  /** The node that holds the school; null for this database. */
  node: string | null;
}

/** Whether this database is a home with nodes. */
async function hasNodes(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query('select from platform.node where not is_this limit 1');
  return rows.length > 0;
}

/**
 * `school tenant list`: prints id, subdomain, status, the server where there are nodes, and the deletion date,
 * tab-separated, one school per line.
 */
export const tenantList = (config: Config, { json }: Format): Promise<void> =>
  withClient(config, async (client) => {
    const { rows } = await client.query<ListedSchool>('select * from core.school_list()');
    if (json)
      print(
        JSON.stringify(
          rows.map(({ id, schema_version, node, ...school }) => ({
            id: Number(id),
            ...school,
            ...(node === null ? { schema_version } : { node }),
          })),
        ),
      );
    else {
      const isHome = await hasNodes(client);
      for (const { id, subdomain, status, node, deleted_on } of rows)
        print(
          [
            id,
            subdomain,
            status,
            ...(isHome ? [node ?? homeName] : []),
            ...(deleted_on === null ? [] : [deleted_on]),
          ].join('\t'),
        );
    }
  });

/** The node of a school; undefined for this database. */
async function nodeOfSchool(client: pg.Client, id: number): Promise<string | undefined> {
  const { rows } = await client.query<{ name: string }>(
    'select n.name from platform.tenant t join platform.node n on n.id = t.node_id where t.id = $1 and not n.is_this',
    [id],
  );
  return rows[0]?.name;
}

interface SchoolDetail {
  id: number;
  name: string;
  subdomain: string;
  status: string;
  plan: { name: string };
  subscription: { status: string | null; current_period_end: string | null };
  stats: { total_students: number; total_teachers: number; total_classes: number };
  contact_email: string;
  time_zone: string;
  created_at: string;
  deleted_at: string | null;
}

/** `school tenant show`: one school. @throws when it does not exist */
export const tenantShow = (config: Config, school: string, { json }: Format): Promise<void> =>
  withClient(config, async (client) => {
    const { answer, storage } = await onServerOfSchool(client, school, async (server, { id }) => {
      const found = await runOperation<SchoolDetail>(server, 'platform_tenants_get', { id: Number(id) });
      const { rows } = await server.query<{ storage: { schema_version: number; size_bytes: number } }>(
        'select core.school_storage($1) as storage',
        [id],
      );
      return { answer: found, storage: rows[0]?.storage ?? { schema_version: 0, size_bytes: 0 } };
    });
    const isPurged = answer.status === 'deleted' && storage.schema_version === 0;
    // As in the list. The API has no status of its own for it.
    const detail = isPurged ? { ...answer, status: 'purged' } : answer;
    const node = await nodeOfSchool(client, detail.id);
    if (json) {
      print(JSON.stringify({ ...detail, ...storage, ...(node === undefined ? {} : { node }) }));
      return;
    }
    const server: [string, string][] = [];
    if (await hasNodes(client)) {
      const [, ...nodes] = await readServers(client, '');
      const { kept } = await compareServers(client, nodes);
      const keeping = kept.find((each) => each.school === detail.id);
      server.push(['Server', node ?? homeName]);
      if (keeping)
        server.push([
          'Kept',
          `${keeping.server.name} has its tables from before the move: school tenant move --confirm`,
        ]);
    }
    const { stats, subscription } = detail;
    process.stdout.write(
      fields([
        ['School', `${String(detail.id)} (${detail.subdomain}), ${detail.name}`],
        ['Status', detail.status],
        ...server,
        ['Plan', `${detail.plan.name}, subscription ${subscription.status ?? 'none'}`],
        ['Period ends', subscription.current_period_end?.slice(0, 10) ?? '-'],
        [
          'Size',
          `${counted(stats.total_students, 'student')}, ${counted(stats.total_teachers, 'teacher')}, ` +
            `${String(Math.ceil(storage.size_bytes / 1024 / 1024))} MB`,
        ],
        ['Version', String(storage.schema_version)],
        ['Contact', detail.contact_email],
        ['Time zone', detail.time_zone],
        ['Created', detail.created_at.slice(0, 10)],
        ...(detail.deleted_at === null ? [] : [['Deleted', detail.deleted_at.slice(0, 10)] as [string, string]]),
      ]),
    );
  });

export interface NewSchool {
  name: string;
  plan: string;
  contactEmail: string;
  adminEmail?: string;
  adminFirstName?: string;
  adminLastName?: string;
  timeZone?: string;
  trialEndsAt?: string;
  node?: string;
}

/** `school tenant create`. @throws for invalid fields, as the API would refuse them */
export const tenantCreate = (
  config: Config,
  subdomain: string,
  { json, ...school }: Format & NewSchool,
): Promise<void> =>
  withClient(config, async (client) => {
    const { rows } = await client.query<{ id: string }>(
      'select id from platform.plan where id::text = $1 or core.name_key(name) = core.name_key($1) order by id::text = $1 desc',
      [normalizeText(school.plan)],
    );
    if (!rows[0]) throw new Error(`There is no plan ${JSON.stringify(school.plan)}.`);
    const given = {
      subdomain,
      name: school.name,
      contact_email: school.contactEmail,
      plan_id: Number(rows[0].id),
      ...(school.adminEmail === undefined ? {} : { admin_email: school.adminEmail }),
      ...(school.adminFirstName === undefined ? {} : { admin_first_name: school.adminFirstName }),
      ...(school.adminLastName === undefined ? {} : { admin_last_name: school.adminLastName }),
      ...(school.timeZone === undefined ? {} : { time_zone: school.timeZone }),
      ...(school.trialEndsAt === undefined ? {} : { trial_ends_at: school.trialEndsAt }),
      // Not an argument, as other users of the machine can see those.
      ...(process.env['ADMIN_PASSWORD'] ? { admin_password: process.env['ADMIN_PASSWORD'] } : {}),
    };
    const parsed = TenantInput.safeParse(receivedText(TenantInput, given));
    if (!parsed.success)
      throw new Error(parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('\n'));
    const { admin_password, ...input } = parsed.data;
    const params = {
      ...input,
      ...(admin_password === undefined ? {} : { password_hash: await passwords().hash(admin_password) }),
    };
    const created = await onNodeOfNewSchool(client, params, school.node, (server, reserved) =>
      runOperation<{ id: number }>(server, 'platform_tenants_create', { ...params, ...reserved }),
    );
    if (json) print(JSON.stringify(created));
    else
      print(
        `School ${String(created.id)} (${input.subdomain}) was created. ${
          admin_password === undefined
            ? `${input.admin_email ?? input.contact_email} gets an invitation.`
            : `${input.admin_email ?? input.contact_email} can log in.`
        }`,
      );
  });

const outcomes = {
  suspend: 'is suspended',
  activate: 'is active',
  delete: 'is deleted. `school tenant restore` reverts this until it is purged',
  restore: 'is restored',
};

/** `school tenant suspend`, `activate`, `delete` and `restore`. @throws when the status does not allow it */
export const tenantChange = (
  config: Config,
  action: keyof typeof outcomes,
  school: string,
  { json, yes }: Format & { yes?: boolean },
): Promise<void> =>
  withClient(config, async (client) => {
    const { id, subdomain } = await findTenant(client, school);
    if (action === 'delete') await confirm(`This deletes school ${id} (${subdomain}) and locks out its users`, yes);
    const answer = await onServerOfSchool(client, id, (server) =>
      runOperation<{ id: number; status?: string }>(server, `platform_tenants_${action}`, { id: Number(id) }),
    );
    if (json) print(JSON.stringify({ id: Number(id), subdomain, status: answer.status ?? 'deleted' }));
    else if (answer.status === 'suspended') print(`School ${id} (${subdomain}) is suspended.`);
    else print(`School ${id} (${subdomain}) ${outcomes[action]}.`);
  });

/** Exports a school while it is in use. @returns the number of lines */
async function exportSchool(client: pg.Client, tenant: NamedTenant, file: string): Promise<number> {
  // Held until the connection closes, to keep out migrations and purges.
  await client.query('select pg_advisory_lock_shared(core.tenant_lock_key($1))', [tenant.id]);
  const bar = progress(100);
  try {
    const lines = await exportTenant(
      client,
      { text: 'select name, at_a_time from core.archive_open($1)', values: [tenant.id] },
      file,
      (done, total, name) => bar.update((100 * done) / total, `exporting ${name}`),
    );
    return lines ?? 0;
  } finally {
    bar.stop();
  }
}

/** `school tenant export`. @throws when the school does not exist or was purged */
export const tenantExport = (config: Config, school: string, { file, json }: Format & { file?: string }) =>
  withClient(config, async (client) => {
    const { tenant, target, lines } = await onServerOfSchool(client, school, async (server, found) => {
      const path = file ? resolve(file) : join(exportsFolder(config), archiveName(found));
      return { tenant: found, target: path, lines: await exportSchool(server, found, path) };
    });
    if (json) print(JSON.stringify({ id: Number(tenant.id), subdomain: tenant.subdomain, lines, file: target }));
    else print(`School ${tenant.id} (${tenant.subdomain}): ${String(lines)} lines in ${target}`);
  });

async function importFile(
  home: pg.Client,
  file: string,
  { subdomain, node }: { subdomain?: string | undefined; node?: string | undefined },
): Promise<ImportedSchool> {
  const found = await stat(file).catch(() => undefined);
  if (!found?.isFile()) throw new Error(`There is no file ${file}.`);
  const bar = progress(found.size);
  try {
    return await importSchool(home, file, { subdomain, node, onProgress: (bytes) => bar.update(bytes, 'importing') });
  } finally {
    bar.stop();
  }
}

const suspendedNote = (subdomain: string) =>
  `It is suspended, so that it sends no messages. To start it: school tenant activate ${subdomain}`;

/** ` on east`; nothing for the home. */
const onServer = (server: string) => (server === 'home' ? '' : ` on ${server}`);

/**
 * `school tenant import`.
 * @throws when the file is invalid or conflicts with the database; then nothing has changed, unless the error says that
 *   a node no longer answers
 */
export const tenantImport = (
  config: Config,
  file: string,
  { as, node, json }: Format & { as?: string; node?: string },
): Promise<void> =>
  withClient(config, async (client) => {
    const { id, subdomain, rows, status, server } = await importFile(client, file, { subdomain: as, node });
    if (json) print(JSON.stringify({ id, subdomain, status, rows, server }));
    else {
      print(`School ${String(id)} (${subdomain}) was imported${onServer(server)}: ${String(rows)} rows`);
      if (as !== undefined && status === 'suspended') print(suspendedNote(subdomain));
    }
  });

/** `school tenant clone`: an export and an import under another subdomain. */
export const tenantClone = (
  config: Config,
  from: string,
  to: string,
  { node, json }: Format & { node?: string },
): Promise<void> =>
  withClient(config, async (client, ownerUrl) => {
    await mkdir(exportsFolder(config), { recursive: true, mode: 0o700 });
    const folder = await mkdtemp(join(exportsFolder(config), '.clone-'));
    try {
      const { tenant, file } = await withOwner(ownerUrl, (home) =>
        onServerOfSchool(home, from, async (exporter, found) => {
          const path = join(folder, archiveName(found));
          await exportSchool(exporter, found, path);
          return { tenant: found, file: path };
        }),
      );
      const { id, subdomain, rows, status, server } = await importFile(client, file, { subdomain: to, node });
      if (json) print(JSON.stringify({ id, subdomain, status, rows, server, copy_of: Number(tenant.id) }));
      else {
        print(
          `School ${tenant.id} (${tenant.subdomain}) was copied to school ${String(id)} (${subdomain})` +
            `${onServer(server)}: ${String(rows)} rows`,
        );
        print(suspendedNote(subdomain));
      }
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

/** The tables that differ, with the number of rows on each side; null where the table has none. */
const compare = (a: Checksums, b: Checksums) =>
  [...new Set([...a.tables.keys(), ...b.tables.keys()])]
    .map((name) => ({ table: name, left: a.tables.get(name), right: b.tables.get(name) }))
    .filter(({ left, right }) => left?.sha256 !== right?.sha256)
    .map(({ table: name, left, right }) => ({ table: name, left: left?.rows ?? 0, right: right?.rows ?? 0 }))
    .sort((one, other) => one.table.localeCompare(other.table));

/** `school tenant verify`: compares two schools, or a school and a file. @returns the exit code: 1 if they differ */
export const tenantVerify = (config: Config, school: string, other: string, { json }: Format): Promise<number> =>
  withClient(config, async (client) => {
    const checksums = (name: string) =>
      onServerOfSchool(client, name, async (server, tenant) => ({
        name: `school ${tenant.id} (${tenant.subdomain})`,
        ...(await checksumTenant(server, tenant.id)),
      }));
    const isFile = await stat(other).then(
      (found) => found.isFile(),
      () => false,
    );
    const left = await checksums(school);
    const right = isFile ? { name: other, ...(await checksumFile(other)) } : await checksums(other);
    const differences = compare(left, right);
    const isSameVersion = left.schemaVersion === right.schemaVersion;
    const total = new Set([...left.tables.keys(), ...right.tables.keys()]).size;
    if (json)
      print(
        JSON.stringify({
          schema_versions: [left.schemaVersion, right.schemaVersion],
          tables: total,
          differences,
        }),
      );
    else {
      if (!isSameVersion)
        print(`${left.name} has version ${String(left.schemaVersion)}, ${right.name} ${String(right.schemaVersion)}.`);
      if (differences.length > 0)
        process.stdout.write(
          table(
            ['TABLE', 'ROWS HERE', 'ROWS THERE'],
            differences.map(({ table: name, left: here, right: there }) => [name, here, there]),
          ),
        );
      print(
        differences.length === 0
          ? `${left.name} and ${right.name} have the same content: ${String(total)} tables.`
          : `${left.name} and ${right.name} differ in ${String(differences.length)} of ${String(total)} tables.`,
      );
    }
    return differences.length > 0 || !isSameVersion ? exitCodes.failed : exitCodes.done;
  });
