import { rm } from 'node:fs/promises';
import { afterAll, expect } from '@jest/globals';
import { checkNodes } from '../../src/servers/nodes/check.ts';
import { until } from '../support/client/until.ts';
import { startProgram } from '../support/server/processes.ts';
import { testPassword, unique } from '../support/server/service.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { backUp, removeServer, type TestServer } from './servers.ts';

/* What the tests of restored servers share. Each test has servers of its own. */

const { withOwner } = shared;

export const started: TestServer[] = [];
const backups: string[] = [];
afterAll(async () => {
  await Promise.all(started.map(removeServer));
  await Promise.all(backups.map((folder) => rm(folder, { recursive: true, force: true })));
});

/** A home and the nodes east and west, of this test alone. */
export async function fleet(): Promise<Fleet & { east: Fleet['nodes'][number]; west: Fleet['nodes'][number] }> {
  const servers = await startFleet(['east', 'west']);
  started.push(servers.homeServer, ...servers.nodes.map(({ server }) => server));
  const [east, west] = servers.nodes as [Fleet['nodes'][number], Fleet['nodes'][number]];
  return { ...servers, east, west };
}

export async function backup(server: TestServer): Promise<string> {
  const folder = await backUp(server);
  backups.push(folder);
  return folder;
}

export const commandAt = (url: string, ...args: string[]) =>
  startProgram('src/cli/main.ts', args, {
    DATABASE_URL: url,
    ADMIN_PASSWORD: testPassword,
    OPERATOR_PASSWORD: testPassword,
  }).ended;

/** Runs a command that succeeds. @returns its output */
export async function run(url: string, ...args: string[]): Promise<string> {
  const ended = await commandAt(url, ...args);
  expect(ended).toMatchObject({ code: 0, stderr: '' });
  return ended.stdout;
}

/** What `school node verify` says. */
export async function verify(home: string) {
  const { code, stdout } = await commandAt(home, 'node', 'verify', '--json');
  const result = JSON.parse(stdout) as {
    disagreements: { id: number; kind: string; server: string | null; others: string[] }[];
    findings: { server: string; text: string }[];
    unconfirmed_moves: { id: number; server: string; kept_on: string }[];
  };
  return { code, ...result };
}

export const agrees = (home: string) =>
  until(async () => {
    const found = await verify(home);
    return (found.code === 0 && found.disagreements.length === 0 && found.findings.length === 0) || undefined;
  });

export const rows = (url: string, text: string, values: unknown[] = []) =>
  withOwner(url, async (client) => (await client.query<Record<string, unknown>>(text, values)).rows);

export interface CreatedSchool {
  id: number;
  subdomain: string;
}

export async function createSchool(home: string, ...options: string[]): Promise<CreatedSchool> {
  const subdomain = unique('restored').toLowerCase();
  const fields = ['--name', 'Restored', '--plan', '3', '--contact-email', `head@${subdomain}.example`];
  const created = await run(home, 'tenant', 'create', subdomain, ...fields, ...options, '--json');
  return { id: (JSON.parse(created) as { id: number }).id, subdomain };
}

/** Runs the minute checks of the worker of the home. */
export async function check(home: string, times = 1): Promise<void> {
  for (let n = 0; n < times; n++) await withOwner(home, checkNodes);
}
