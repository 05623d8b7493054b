import type pg from 'pg';
import type { Server } from '../servers.ts';
import { isOpenOn, type Move, schemaOf } from './school.ts';

/** A table outside the schemas of schools that has rows of them. */
export interface SharedTable {
  name: string;
  /** Selects the rows of the school. */
  condition: string;
  is_copied_home: boolean;
}

/** The tables of a school outside its schema, those that others refer to first. */
export const sharedTables = async (client: pg.Client, school: number) =>
  (await client.query<SharedTable>('select name, condition, is_copied_home from core.shared_tables($1)', [school]))
    .rows;

/** The names of the tables in the schema of a school. */
export const schoolTables = async (client: pg.Client, school: number) =>
  (await client.query<{ name: string }>('select name from core.archive_tables($1)', [school])).rows.map(
    ({ name }) => name,
  );

/** Deletes the rows of a school outside its schema. At home, those stay that nodes copy there. */
export async function deleteSharedRows(client: pg.Client, { id }: Server, school: number): Promise<void> {
  const tables = await sharedTables(client, school);
  for (const { name, condition, is_copied_home: isCopiedHome } of tables.toReversed())
    if (id !== null || !isCopiedHome) await client.query(`delete from ${name} where ${condition}`);
  if (id !== null) await client.query('delete from platform.tenant where id = $1', [school]);
}

/** Drops a schema some tables at a time, because of the locks. */
export async function dropSchema(client: pg.Client, schema: string): Promise<void> {
  for (;;) {
    const { rows } = await client.query<{ has_more: boolean }>('select core.drop_tables($1) as has_more', [schema]);
    if (rows[0]?.has_more !== true) return;
  }
}

/** Writes the row of a school on the target, paused: with node_id, no request, job or migration enters it. */
export async function writeTenant({ source, target, from, to, school }: Move): Promise<void> {
  const { rows } = await source.query<{ row: string }>(
    'select to_json(t)::text as row from platform.tenant t where id = $1',
    [school],
  );
  await target.query('delete from platform.tenant where id = $1', [school]);
  await target.query(
    `insert into platform.tenant
     select * from jsonb_populate_record(null::platform.tenant,
       $1::jsonb || jsonb_build_object('schema_version', 0, 'node_id', $2::bigint))`,
    [rows[0]?.row, to.id ?? from.id],
  );
}

/**
 * @throws if the target has the school open. Then the directory is wrong, for example because a server was restored to a
 * moment before an earlier move, and what the target has may be newer than what would replace it
 */
export async function requireClosed({ target, from, to, school }: Move): Promise<void> {
  if (await isOpenOn(target, school))
    throw new Error(
      `The school is open on ${to.name} too, and the move would replace its rows there by those of ${from.name}. ` +
        'Nothing was changed. One of the servers, or the home, was probably restored to a moment before an earlier ' +
        'move. Find out which one has the newer rows.',
    );
}

/**
 * Locks the row of a school on the source, so that changes by operators wait, until the transaction ends.
 * @throws if the source no longer has the school, or has migrated it since its tables were created on the target; or if
 * the target has the school open
 */
export async function lockSchool(move: Move): Promise<void> {
  const { source, target, school } = move;
  const { rows } = await source.query<{ version: number }>(
    `select schema_version as version from platform.tenant
     where id = $1 and node_id is null and schema_version > 0
     for no key update`,
    [school],
  );
  if (!rows[0]) throw new Error('The school is no longer on the server from which it moves.');
  await requireClosed(move);
  const { rows: copies } = await target.query<{ version: number | null }>('select core.move_version($1) as version', [
    schemaOf(school),
  ]);
  if (copies[0]?.version !== rows[0].version)
    throw new Error('The school was migrated after the move began. Give up the move with --cancel, and begin again.');
}
