import { randomBytes } from 'node:crypto';
import type pg from 'pg';

/** How another server logs in. */
export interface Login {
  user: string;
  password: string;
}

/** Creates a role, or gives it a new password. Two commands may do so at once. */
async function createLogin(client: pg.ClientBase, user: string, attributes: string, group: string): Promise<Login> {
  const password = randomBytes(24).toString('base64url');
  const role = client.escapeIdentifier(user);
  await client.query(
    `do $$ begin
       create role ${role} noinherit;
     exception when duplicate_object or unique_violation then null;
     end $$`,
  );
  await client.query(`alter role ${role} login ${attributes} password ${client.escapeLiteral(password)}`);
  await client.query(`grant ${group} to ${role}`);
  return { user, password };
}

/**
 * The role with which a subscriber logs in to a publisher. It reads all tables, also under row security, and changes
 * nothing.
 * @param name  of the subscription
 */
export const subscriberLogin = (publisher: pg.ClientBase, name: string): Promise<Login> =>
  // Members inherit what pg_read_all_data may do.
  createLogin(publisher, name, 'inherit replication bypassrls', 'pg_read_all_data');

/** The role with which a forwarder logs in to a server. It may only become school_api. */
export const forwarderLogin = (server: pg.ClientBase, forwarder: string): Promise<Login> =>
  createLogin(server, forwarderRole(forwarder), 'noinherit noreplication nobypassrls', 'school_api');

export const forwarderRole = (forwarder: string) => `school_api_of_${forwarder}`;

/** Drops a role that another server has used. */
export const dropLogin = async (client: pg.ClientBase, user: string): Promise<void> => {
  await client.query(`drop role if exists ${client.escapeIdentifier(user)}`);
};
