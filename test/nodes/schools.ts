import { setDraining } from '../../src/servers/nodes/nodes.ts';
import { type School, testPassword, type TestService, unique } from '../support/server/service.ts';
import { servers } from './servers.ts';

export type ServerName = 'home' | 'node-1' | 'node-2';

/** The body that creates a school. */
export const newSchool = () => ({
  name: 'New School',
  subdomain: unique('new').toLowerCase(),
  contact_email: 'new@school.example',
  plan_id: 3,
  admin_password: testPassword,
});

/** Adds a school on this server. */
export async function schoolOn(
  service: TestService,
  name: ServerName,
  fields: Record<string, unknown> = {},
): Promise<School> {
  const { home, nodes } = servers();
  const others = nodes.filter((node) => node.name !== name);
  const drain = (isDraining: boolean) =>
    shared.withOwner(home, async (client) => {
      for (const node of others) await setDraining(client, node.name, isDraining);
    });
  await drain(true);
  try {
    return await service.school(fields);
  } finally {
    await drain(false);
  }
}
