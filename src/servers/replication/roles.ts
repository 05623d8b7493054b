import { randomBytes } from 'node:crypto';
import type pg from 'pg';

/** How another server logs in. */
export interface Login {
  user: string;
  password: string;
}

export const newPassword = () => randomBytes(24).toString('base64url');

/** Creates a role, or gives it a new password. Two commands may do so at once. */
async function createLogin(
  client: pg.ClientBase,
  user: string,
  attributes: string,
  group: string,
  password = newPassword(),
): Promise<Login> {
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
export const forwarderLogin = (server: pg.ClientBase, forwarder: string, password: string): Promise<Login> =>
  createLogin(server, forwarderRole(forwarder), 'noinherit noreplication nobypassrls', 'school_api', password);

export const forwarderRole = (forwarder: string) => `school_api_of_${forwarder}`;

/** Keeps another server from logging in with its role until it gets a new password. */
export const refuseLogin = async (client: pg.ClientBase, user: string): Promise<void> => {
  const { rowCount } = await client.query('select from pg_roles where rolname = $1', [user]);
  if (rowCount) await client.query(`alter role ${client.escapeIdentifier(user)} nologin`);
};

/** Drops a role that another server has used. */
export const dropLogin = async (client: pg.ClientBase, user: string): Promise<void> => {
  await client.query(`drop role if exists ${client.escapeIdentifier(user)}`);
};
