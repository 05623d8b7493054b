import { passwords } from '../domain/passwords.ts';
import { email as emailSchema, password as passwordSchema } from '../http/schemas.ts';
import type { Config } from '../process/config.ts';
import { createOperator } from '../database/operator.ts';
import { formatMinute, withClient } from '../process/database-access.ts';
import { confirm, counted, type Format, print, table } from './output.ts';
import { runOperation } from './operation.ts';
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
  options: Format & { role: 'admin' | 'analyst'; firstName: string; lastName: string; tenant?: number[] },
): Promise<void> {
  const { data: email } = emailSchema.safeParse(address);
  if (!email) throw new Error(`${JSON.stringify(address)} is not an email address.`);
  if (options.tenant && options.role !== 'analyst')
    throw new Error('--tenant needs --role analyst: admins see every school.');
  const passwordHash = await passwords().hash(await askPassword(email));
  const { role, firstName, lastName, tenant } = options;
  const isNew = await withClient(config, async (client) => {
    await client.query('select core.require_schools($1)', [tenant ?? []]);
    return createOperator(client, { email, passwordHash, firstName, lastName, role, tenantIds: tenant ?? null });
  });
  if (!isNew) throw new Error(`The operator ${email} already exists.`);
  if (options.json) print(JSON.stringify({ email, role, tenant_ids: tenant ?? null }));
  else print(`Operator ${email} (${role}) can log in with is_platform: true.`);
}

interface Operator {
  id: string;
  email: string;
  first_name: string;
  last_name: string;
  role: string;
  tenant_ids: string[] | null;
  is_active: boolean;
  last_login_at: Date | null;
  sessions: string;
}

/** `school operator list` */
export async function operatorList(config: Config, { json }: Format): Promise<void> {
  const { rows } = await withClient(config, (client) => client.query<Operator>('select * from core.operators()'));
  if (json) {
    print(
      JSON.stringify(
        rows.map(({ id, tenant_ids, sessions, ...operator }) => ({
          id: Number(id),
          ...operator,
          tenant_ids: tenant_ids?.map(Number) ?? null,
          sessions: Number(sessions),
        })),
      ),
    );
    return;
  }
  process.stdout.write(
    table(
      ['EMAIL', 'ROLE', 'SCHOOLS', 'STATUS', 'LAST LOGIN', 'SESSIONS'],
      rows.map((operator) => [
        operator.email,
        operator.role,
        operator.tenant_ids?.join(', ') ?? 'all',
        operator.is_active ? 'active' : 'disabled',
        operator.last_login_at ? formatMinute(operator.last_login_at) : 'never',
        Number(operator.sessions),
      ]),
    ),
  );
}

interface OperatorChange {
  role?: 'admin' | 'analyst';
  tenant_ids?: number[] | null;
  is_active?: boolean;
}

interface ChangedOperator {
  email: string;
  role: string;
  tenant_ids: number[] | null;
  is_active: boolean;
  is_changed: boolean;
  ended_sessions: number;
}

/** `school operator disable`, `enable`, `set-role` and `set-tenants`. @throws when no active admin would be left */
export async function operatorChange(
  config: Config,
  address: string,
  action: 'disable' | 'enable' | 'set_role' | 'set_tenants',
  change: OperatorChange,
  { json, yes }: Format & { yes?: boolean },
): Promise<void> {
  const changed = await withClient(config, async (client) => {
    if (action === 'disable') await confirm(`This ends all sessions of ${address}, who can no longer log in`, yes);
    const { rows } = await client.query<{ changed: ChangedOperator }>(
      'select core.operator_change($1, $2, $3) as changed',
      [address, action, JSON.stringify(change)],
    );
    return rows[0]?.changed;
  });
  if (!changed) return;
  if (json) print(JSON.stringify(changed));
  else {
    const schools = changed.tenant_ids === null ? 'all schools' : `schools ${changed.tenant_ids.join(', ')}`;
    const state = changed.is_active ? 'active' : 'disabled';
    print(`Operator ${changed.email}: ${changed.role}, ${schools}, ${state}.`);
    if (!changed.is_changed) print('Nothing was changed.');
    else print(`Ended ${counted(changed.ended_sessions, 'session')}.`);
  }
}

/** `school operator reset-second-factor`. @throws for an unknown operator, and for one without a second factor */
export async function operatorResetSecondFactor(config: Config, email: string, { json }: Format): Promise<void> {
  await withClient(config, (client) =>
    runOperation(client, 'platform_operators_second_factor_reset', { email: email.toLowerCase() }),
  );
  if (json) print(JSON.stringify({ email, has_second_factor: false }));
  else
    print(
      `The second factor of ${email} was removed. The next login needs only the password or, with ` +
        'OPERATORS_NEED_SECOND_FACTOR=true, sets up a new one.',
    );
}
