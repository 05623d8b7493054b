import type pg from 'pg';
import { moveSubscription } from '../replication/names.ts';
import { dropSlot, hasSlot, hasSubscription, subscribe, unsubscribe } from '../replication/subscriptions.ts';
import { homeName, type Server } from '../servers.ts';
import { commandOf, type Move, schemaOf } from './school.ts';

export const subscriptionTo = (school: number, to: Server) => moveSubscription(school, to.id ?? homeName);

export const hasPublication = async (client: pg.Client, name: string) =>
  (await client.query('select from pg_publication where pubname = $1', [name])).rowCount === 1;

/** Whether a publication contains all tables of a school, so that rows may have been copied. */
const publishesSchool = async (client: pg.Client, name: string) =>
  (
    await client.query(
      'select from pg_publication p join pg_publication_namespace n on n.pnpubid = p.oid where p.pubname = $1',
      [name],
    )
  ).rowCount === 1;

/** Whether a move was stopped after it had begun to copy rows, and can go on. */
export const isBegun = async ({ source, target, name }: Move) =>
  (await hasSubscription(target, name)) && (await hasSlot(source, name)) && (await publishesSchool(source, name));

/**
 * Creates a publication with these tables, also instead of an earlier one. It is there from the beginning of a move to
 * its end, and its name says to which server.
 */
export async function publish({ source, target, name }: Move, tables: string[]): Promise<void> {
  const { rows: control } = await target.query<{ system: string }>(
    'select system_identifier::text as system from pg_control_system()',
  );
  // dropTableSlots reads the comment. One text with all statements is one transaction.
  await source.query(
    `drop publication if exists ${name};
     create publication ${name} ${tables.length > 0 ? `for table ${tables.join()}` : ''};
     comment on publication ${name} is ${source.escapeLiteral(control[0]?.system ?? '')}`,
  );
}

/** The tables of a school without rows, with the schema. */
async function emptyTables(source: pg.Client, school: number): Promise<string[]> {
  const { rows: tables } = await source.query<{ name: string }>(
    "select format('%I.%I', $1::text, relname) as name from core.relations_in($1) where relkind = 'r'",
    [schemaOf(school)],
  );
  const { rows } = await source.query<{ name: string }>(
    tables
      .map(({ name }) => `select ${source.escapeLiteral(name)} as name where not exists (select from ${name})`)
      .join(' union all '),
  );
  return rows.map(({ name }) => name);
}

/**
 * Subscribes to the tables of a school, most of which are empty in a new one. Postgres starts two processes for each
 * table that it copies, so the empty ones are subscribed to first, without a copy.
 */
export async function subscribeToSchool(move: Move): Promise<void> {
  const { source, target, from, name, school } = move;
  if (await isBegun(move)) {
    // Only the address can have changed.
    await subscribe(target, name, from.url, name, 'copy_data = true');
  } else {
    for (;;) {
      const empty = await emptyTables(source, school);
      await publish(move, empty);
      await subscribe(target, name, from.url, name, 'copy_data = false, enabled = false');
      // A row that was written before the slot was created would be missing. All later changes will arrive.
      const stillEmpty = new Set(await emptyTables(source, school));
      if (empty.every((table) => stillEmpty.has(table))) break;
      await endSubscription(move);
    }
    await source.query(`alter publication ${name} set tables in schema ${schemaOf(school)}`);
  }
  await target.query(`alter subscription ${name} enable`);
  await target.query(`alter subscription ${name} refresh publication with (copy_data = true)`);
}

/**
 * Ends what moves to nodes that were removed have left on the source.
 * @throws if a move of the school to another server has begun
 */
export async function requireOnlyMove(
  source: pg.Client,
  servers: Server[],
  { school, subdomain, name }: Pick<Move, 'school' | 'subdomain' | 'name'>,
): Promise<void> {
  const { rows } = await source.query<{ name: string }>(
    `select pubname as name from pg_publication where pubname like 'school\\_move\\_' || $1 || '\\_%' and pubname <> $2`,
    [String(school), name],
  );
  for (const publication of rows) {
    const other = servers.find((server) => subscriptionTo(school, server) === publication.name);
    if (other)
      throw new Error(
        `A move of the school to ${other.name} has begun. Continue it, or give it up: ${commandOf(subdomain)} ` +
          `${other.name} --cancel`,
      );
    await endPublication(source, publication.name, { isTargetLost: true });
  }
}

type Replication = Pick<Move, 'source' | 'target' | 'name'>;

/** Ends a subscription, also when a stopped command has left only a part of it. */
export async function endSubscription({ source, target, name }: Replication): Promise<void> {
  // Without its slot, which may be gone already.
  await unsubscribe(target, name);
  await dropSlot(source, name);
}

/** Ends the replication of a school, also when a stopped command had only created a part of it. */
export async function endReplication({ source, target, name }: Replication): Promise<void> {
  await unsubscribe(target, name);
  await endPublication(source, name);
}

/** @param options.isTargetLost  so that it does not drop its other slots */
export async function endPublication(source: pg.Client, name: string, { isTargetLost = false } = {}): Promise<void> {
  // A slot without its subscription would keep the WAL of the source forever.
  await dropSlot(source, name);
  if (isTargetLost) await dropTableSlots(source, name);
  await source.query(`drop publication if exists ${name}`);
}

/** Drops the slots with which the target of a publication was copying tables, also those of other schools. */
async function dropTableSlots(source: pg.Client, publication: string): Promise<void> {
  const { rows } = await source.query<{ name: string }>(
    `select s.slot_name as name
     from pg_replication_slots s
     join pg_publication p on p.pubname = $1
     where s.database = current_database()
       and s.slot_name ~ ('^pg_[0-9]+_sync_[0-9]+_' || obj_description(p.oid, 'pg_publication') || '$')`,
    [publication],
  );
  for (const { name } of rows) await dropSlot(source, name);
}
