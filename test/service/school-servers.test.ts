import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type pg from 'pg';
import type { SchoolPool } from '../../src/database/pool/school-pool.ts';
import { schoolServers } from '../../src/servers/school-servers.ts';

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

interface Entry {
  id: string;
  subdomain: string;
  server: string;
}

/** A directory of schools as the forwarder has it, and the statements that it got. */
function directory(...entries: Entry[]) {
  const asked: { ids: string[]; subdomains: string[] }[] = [];
  const state = { isDown: false };
  const query = ({ values }: pg.QueryConfig) => {
    const [ids, subdomains] = values as [string[], string[]];
    asked.push({ ids, subdomains });
    if (state.isDown) return Promise.reject(new Error('down'));
    return Promise.resolve({
      rows: entries.filter(({ id, subdomain }) => ids.includes(id) || subdomains.includes(subdomain)),
    });
  };
  const serverOf = schoolServers(query as unknown as SchoolPool['query']);
  return {
    entries,
    asked,
    state,
    of: (school: number | string | undefined, isVerified = true) => serverOf({ school, isVerified }),
    serverOf,
  };
}
const north = { id: '1', subdomain: 'north', server: 'home' };
const south = { id: '2', subdomain: 'south', server: 'node_3' };
const seconds = (count: number) => jest.advanceTimersByTimeAsync(count * 1000);

test('the servers of all schools that send requests are asked with one statement, by number or by subdomain', async () => {
  const { of, asked } = directory(north, south);
  expect([of(1), of('subdomain south', false), of(7)]).toEqual([undefined, undefined, undefined]);
  await seconds(0);
  expect(asked).toEqual([{ ids: ['1', '7'], subdomains: ['south'] }]);
  expect([of(1), of('subdomain north'), of(2), of('subdomain south'), of(7)]).toEqual([
    'home',
    'home',
    'node_3',
    'node_3',
    undefined,
  ]);
  // What is known is not asked again, and the others not at once.
  await seconds(0.4);
  expect(asked).toHaveLength(1);
  await seconds(0.2);
  expect(asked.slice(1)).toEqual([{ ids: ['7'], subdomains: [] }]);
});

test('a school that moves gets its new server, and keeps the earlier one while it is asked', async () => {
  const { of, asked, entries } = directory(north);
  of(1);
  await seconds(1);
  entries[0] = { ...north, server: 'node_3' };
  await seconds(31);
  expect(of(1)).toBe('home');
  await seconds(1);
  expect(of(1)).toBe('node_3');
  entries.length = 0;
  await seconds(31);
  of(1);
  await seconds(1);
  expect(of(1)).toBeUndefined();
  expect(asked.length).toBeGreaterThan(2);
});

test('while the forwarder does not answer, servers stay known, and are asked again', async () => {
  const { of, asked, state } = directory(north, south);
  of(1);
  await seconds(1);
  state.isDown = true;
  await seconds(31);
  expect([of(1), of(2)]).toEqual(['home', undefined]);
  await seconds(1);
  expect([of(1), of(2)]).toEqual(['home', undefined]);
  state.isDown = false;
  await seconds(1);
  expect(of(2)).toBe('node_3');
  expect(asked.at(-1)?.ids).toEqual(['1', '2']);
});

test('names that a client invents leave room for schools, and those that no school can have are not asked', async () => {
  const { of, asked } = directory(north);
  for (let n = 0; n < 5000; n++) of(`subdomain invented-${n}`, false);
  of(1);
  for (const name of ['subdomain \0', `subdomain ${'a'.repeat(64)}`, '9'.repeat(16), '-1', 'service', 'platform'])
    expect(of(name)).toBeUndefined();
  await seconds(0);
  expect(asked.map(({ ids, subdomains }) => [ids, subdomains.length])).toEqual([[['1'], 500]]);
  expect(of(1)).toBe('home');
});

test('requests that name a server, or no school, are for that server or the home', () => {
  const { of, serverOf, asked } = directory();
  expect(of(undefined)).toBe('home');
  expect(serverOf({ school: 'rate limits', isVerified: true, server: 'home' })).toBe('home');
  expect(serverOf({ school: 'service', isVerified: true, server: 'forwarder' })).toBe('forwarder');
  expect(of('platform')).toBeUndefined();
  expect(asked).toEqual([]);
});
