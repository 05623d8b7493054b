import type pg from 'pg';

/** A school as the command line names it. */
export interface NamedTenant {
  id: string;
  subdomain: string;
}

/**
 * Finds a school by its id or its subdomain, both by index; the id comes first.
 * @throws if there is none
 */
export async function findTenant(client: pg.ClientBase, idOrSubdomain: string): Promise<NamedTenant> {
  const { rows } = await client.query<NamedTenant>(
    `select id, subdomain from platform.tenant where id = $1
     union all
     select id, subdomain from platform.tenant where subdomain = $2`,
    [/^\d{1,18}$/.test(idOrSubdomain) ? idOrSubdomain : null, idOrSubdomain],
  );
  const [tenant] = rows;
  if (!tenant) throw new Error(`No school has the id or subdomain ${idOrSubdomain}.`);
  return tenant;
}
