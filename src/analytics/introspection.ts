import type pg from 'pg';

/** The condition of pg-introspection on the schemas that it reads. */
const allSchemas = "where nspname <> 'information_schema'\n";

/**
 * The query with which PostGraphile reads the catalog, without the schemas of schools. It would return all of their
 * tables: with 440 schools it runs for more than ten minutes, without them for a second.
 * @throws if pg-introspection has changed its query
 */
export function withoutSchools(introspection: string): string {
  if (!introspection.includes(allSchemas)) throw new Error('The query of pg-introspection has an unknown form.');
  return introspection.replace(allSchemas, () => `${allSchemas.trimEnd()} and nspname !~ '^tenant_[0-9]+$'\n`);
}

/** A pool with which PostGraphile reads the catalog. */
export function introspectionPool(pool: pg.Pool): pg.Pool {
  const connect = async () => {
    const client = await pool.connect();
    return new Proxy(client, {
      get(target, name) {
        if (name === 'query')
          return (query: string | pg.QueryConfig) =>
            typeof query === 'object' && query.text.includes('pg_catalog.pg_namespace')
              ? target.query({ ...query, text: withoutSchools(query.text) })
              : target.query(query);
        const value: unknown = Reflect.get(target, name);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
  };
  return Object.create(pool, { connect: { value: connect } }) as pg.Pool;
}
