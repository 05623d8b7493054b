import type { TestDatabase } from '../server/database.ts';

/**
 * The contents of a school's schema: each row of each table as text, the state of each sequence, which triggers are
 * enabled.
 */
export async function contents(
  database: Pick<TestDatabase, 'query'>,
  schema: string,
): Promise<Record<string, string[]>> {
  const tables = await database.query<{ name: string }>(
    "select relname::text as name from pg_class where relnamespace = $1::regnamespace and relkind in ('r', 'p') order by 1",
    [schema],
  );
  const found: Record<string, string[]> = {};
  const read = async (name: string, text: string, values: unknown[] = []) => {
    found[name] = (await database.query<{ line: string }>(text, values)).map(({ line }) => line);
  };
  for (const { name } of tables) await read(name, `select t::text as line from ${schema}.${name} t order by 1`);
  const sequences = await database.query<{ name: string }>(
    "select relname::text as name from pg_class where relnamespace = $1::regnamespace and relkind = 'S' order by 1",
    [schema],
  );
  for (const { name } of sequences)
    await read(name, `select format('%s %s', last_value, is_called) as line from ${schema}.${name}`);
  await read(
    'triggers',
    `select format('%s %s %s', c.relname, t.tgname, t.tgenabled) as line from pg_trigger t join pg_class c on c.oid = t.tgrelid
     where c.relnamespace = $1::regnamespace and not t.tgisinternal order by 1`,
    [schema],
  );
  return found;
}
