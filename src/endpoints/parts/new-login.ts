import { z } from 'zod';
import { password } from '../../http/schemas.ts';

interface Login {
  email?: string | null | undefined;
  create_user_account?: boolean | null | undefined;
  password?: string | null | undefined;
}
type Rule = [(person: Login) => boolean, { path: string[]; message: string }];

/** The login that can be created together with a student or a teacher. */
export const newLogin = {
  /** The request fields. `role` is the role of the new login. */
  fields: (role: string) => ({
    create_user_account: z
      .boolean()
      .nullish()
      .meta({
        description:
          `Also creates a login with the ${role} role, unless the person has one. Requires email. Without password, ` +
          'sends an invitation.',
      }),
    password: password.nullish().meta({ description: 'Only allowed with create_user_account.' }),
  }),
  /** For a new person. An update can use the stored address. */
  emailRule: [
    (person) => !person.create_user_account || Boolean(person.email),
    { path: ['email'], message: 'is required when create_user_account is true' },
  ] as Rule,
  passwordRule: [
    (person) => !person.password || person.create_user_account === true,
    { path: ['password'], message: 'requires create_user_account' },
  ] as Rule,
};
