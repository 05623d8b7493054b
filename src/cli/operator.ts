import { createInterface } from 'node:readline/promises';
import { passwords } from '../api/passwords.ts';
import type { Config } from '../config.ts';
import { createOperator } from '../database/operator.ts';
import { withOwner } from '../database/pool.ts';
import { withDatabase } from './database.ts';

/** The password of a new operator: OPERATOR_PASSWORD, else what is typed. It never stands on the command line. */
async function askPassword(): Promise<string> {
  const given = process.env['OPERATOR_PASSWORD'];
  if (given) return given;
  const prompt = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return await prompt.question('Password of the operator: ');
  } finally {
    prompt.close();
  }
}

/** `school operator create`. @throws when the e-mail is taken or the password too short */
export async function operatorCreate(
  config: Config,
  email: string,
  options: { role: 'admin' | 'analyst'; firstName: string; lastName: string; tenant?: number[] },
): Promise<void> {
  const password = await askPassword();
  if (password.length < 8 || password.length > 200) throw new Error('A password has 8 to 200 characters.');
  const passwordHash = await (await passwords()).hash(password);
  const { role, firstName, lastName, tenant } = options;
  const isNew = await withDatabase(config, (ownerUrl) =>
    withOwner(ownerUrl, (client) => createOperator(client, { email, passwordHash, firstName, lastName, role, tenantIds: tenant ?? null })),
  );
  if (!isNew) throw new Error(`There is an operator ${email} already.`);
  process.stdout.write(`Operator ${email} (${role}) can log in with is_platform: true.\n`);
}
