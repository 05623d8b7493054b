import type pg from 'pg';

export interface NewOperator {
  email: string;
  passwordHash: string;
  firstName: string;
  lastName: string;
  role: 'admin' | 'analyst';
  /** The schools an analyst may see; null for all. */
  tenantIds: number[] | null;
}

/** Creates a platform operator. @returns false when the email is taken; then nothing has changed */
export async function createOperator(client: pg.Client, operator: NewOperator): Promise<boolean> {
  const { rowCount } = await client.query(
    `insert into platform.user_account
       (email, password_hash, first_name, last_name, role, analyst_tenant_ids, email_verified_at)
     values (lower($1), $2, normalize($3), normalize($4), $5, $6, now())
     on conflict (email) where deleted_at is null do nothing`,
    [operator.email, operator.passwordHash, operator.firstName, operator.lastName, operator.role, operator.tenantIds],
  );
  if (rowCount === 1) {
    await client.query(
      `insert into platform.audit_log (actor_email, action, target_type, changes)
       values ('command line', 'operator.create', 'operator',
         jsonb_build_object('email', jsonb_build_object('before', null, 'after', lower($1::text))))`,
      [operator.email],
    );
  }
  return rowCount === 1;
}
