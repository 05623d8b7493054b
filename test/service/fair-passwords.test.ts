import { EventEmitter } from 'node:events';
import { availableParallelism } from 'node:os';
import type { Request, Response } from 'express';
import { expect, test } from '@jest/globals';
import { fairPasswords } from '../../src/http/credentials/fair-passwords.ts';

/** The hashes at a time. */
const threads = Math.max(2, availableParallelism());

/** Passwords whose hash ends when the test says so, and the order in which the hashes began. */
function observedPasswords() {
  const started: string[] = [];
  const running: (() => void)[] = [];
  const begin = (password: string) => {
    started.push(password);
    return new Promise<string>((done) => running.push(() => done(`hash of ${password}`)));
  };
  const passwords = fairPasswords({
    hash: begin,
    verify: (_hash, password) => begin(password).then(() => 'prepared' as const),
  });
  return {
    started,
    passwords,
    /** Ends the hash that began first, and lets the next one begin. */
    finish: async () => {
      running.shift()?.();
      await new Promise(setImmediate);
    },
  };
}

const exchange = (req: object) => {
  const res = new EventEmitter();
  return { req: req as Request, res: res as unknown as Response, disconnect: () => res.emit('close') };
};
const ofSchool = (tenant_id: number, user_id = 1) => exchange({ claims: { tenant_id, user_id, sid: 1 } });
const ofAddress = (ip: string) => exchange({ ip });
const settled = () => new Promise(setImmediate);

test('the password of a second school is hashed next while the first one floods the queue', async () => {
  const { started, passwords, finish } = observedPasswords();
  const flood = Array.from({ length: 50 }, (_, n) => passwords.hash(ofSchool(1), `first ${n}`));
  await settled();
  expect(started).toHaveLength(threads);
  const second = passwords.hash(ofSchool(2), 'second');
  await finish();
  expect(started.at(-1)).toBe('second');
  for (let n = 0; n < 51; n++) await finish();
  expect(await second).toBe('hash of second');
  expect(await Promise.all(flood)).toHaveLength(50);
});

test('logins of strangers share the slots of one school, however many addresses they have', async () => {
  const { started, passwords, finish } = observedPasswords();
  const verify = (address: string) => passwords.verify(ofAddress(address), null, address);
  const strangers = Array.from({ length: 60 }, (_, n) => verify(`203.0.113.${n}`));
  const ofUsers = [1, 2].flatMap((school) =>
    Array.from({ length: 10 }, (_, n) => passwords.hash(ofSchool(school), `school ${school} ${n}`)),
  );
  for (let n = 0; n < 30; n++) await finish();
  expect(started.slice(threads, 30 + threads).filter((name) => name.startsWith('school')).length).toBeGreaterThan(18);
  for (let n = 0; n < 60; n++) await finish();
  await Promise.all([...strangers, ...ofUsers]);
});

test('an address that tries many passwords does not delay the login from another one', async () => {
  const { started, passwords, finish } = observedPasswords();
  const guesses = Array.from({ length: 50 }, (_, n) => passwords.verify(ofAddress('203.0.113.1'), null, `guess ${n}`));
  await settled();
  const login = passwords.verify(ofAddress('203.0.113.2'), 'hash', 'login');
  await finish();
  expect(started.at(-1)).toBe('login');
  for (let n = 0; n < 51; n++) await finish();
  await Promise.all([...guesses, login]);
});

test('a client that disconnects leaves the queue, and a full queue refuses the one who fills it', async () => {
  const { started, passwords, finish } = observedPasswords();
  const clients = Array.from({ length: threads * 76 }, () => ofAddress('203.0.113.1'));
  const guesses = clients.map((client) => passwords.verify(client, null, 'guess').catch((error: unknown) => error));
  await settled();
  const login = passwords.verify(ofSchool(1), 'hash', 'current password');
  expect(await guesses.at(-1)).toMatchObject({ error: 'unavailable', retryAfter: 3 });
  for (const client of clients) client.disconnect();
  await settled();
  for (let n = 0; n < threads + 1; n++) await finish();
  expect(await login).toBe('prepared');
  expect(started).toHaveLength(threads + 1);
  expect(await guesses[threads]).toMatchObject({ message: 'The client disconnected.' });
});
