import { removeServer } from './servers.ts';

export default async function teardown(): Promise<void> {
  await Promise.all((globalThis.nodeServers ?? []).map(removeServer));
}
