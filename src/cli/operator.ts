import { passwords } from '../domain/passwords.ts';
import { email as emailSchema, password as passwordSchema } from '../http/schemas.ts';
import type { Config } from '../process/config.ts';
import { createOperator } from '../database/operator.ts';
import { withOwner } from '../database/pool.ts';
import { withDatabase } from '../process/database-access.ts';
import { ask, isInteractive } from './prompt.ts';

function checkPassword(password: string): string {
  if (!passwordSchema.safeParse(password).success)
    throw new Error('The password must have 8 to 200 characters and no control characters.');
  return password;
}

/** The password of a new operator: OPERATOR_PASSWORD, or typed twice. Not an argument, as other users can see those. */
async function askPassword(email: string): Promise<string> {
  const fromEnvironment = process.env['OPERATOR_PASSWORD'];
  if (fromEnvironment) return checkPassword(fromEnvironment);
  if (!isInteractive())
    throw new Error(
      'There is no terminal to prompt for the password. Set OPERATOR_PASSWORD to the password of the new operator.',
    );
  const password = checkPassword(await ask(`Password for ${email}: `, { hidden: true }));
  if ((await ask('Repeat the password: ', { hidden: true })) !== password)
    throw new Error('The passwords differ. Nothing was changed.');
  return password;
}

/** `school operator create`. @throws for an invalid or used email, an invalid password, or an unknown school */
export async function operatorCreate(
  config: Config,
  address: string,
  options: { role: 'admin' | 'analyst'; firstName: string; lastName: string; tenant?: number[] },
): Promise<void> {
  const { data: email } = emailSchema.safeParse(address);
  if (!email) throw new Error(`${JSON.stringify(address)} is not an email address.`);
  if (options.tenant && options.role !== 'analyst')
    throw new Error('--tenant needs --role analyst: admins see every school.');
  const passwordHash = await passwords().hash(await askPassword(email));
  const { role, firstName, lastName, tenant } = options;
  const isNew = await withDatabase(config, (ownerUrl) =>
    withOwner(ownerUrl, async (client) => {
      const { rows } = await client.query<{ id: string }>(
        `select id from unnest($1::bigint[]) id
         where not exists (select from platform.tenant t where t.id = id.id and t.status <> 'deleted')`,
        [tenant ?? []],
      );
      // An unused id will belong to a future school.
      if (rows[0]) throw new Error(`There is no school with the id ${rows[0].id}.`);
      return createOperator(client, { email, passwordHash, firstName, lastName, role, tenantIds: tenant ?? null });
    }),
  );
  if (!isNew) throw new Error(`The operator ${email} already exists.`);
  process.stdout.write(`Operator ${email} (${role}) can log in with is_platform: true.\n`);
}
