import { expect, test } from '@jest/globals';

test('verifying a password runs argon2 with the same cost for unknown and known accounts', async () => {
  const hash = await shared.passwords().hash('a password of an account');
  const verified: string[] = [];
  const passwords = shared.passwords({}, (digest: string) => {
    verified.push(digest);
    return Promise.resolve(true);
  });
  expect(await passwords.verify(hash, 'another password')).toBe(true);
  expect(await passwords.verify(null, 'another password')).toBe(false);
  const cost = (digest: string) => digest.split('$').slice(0, 4);
  expect(verified.map(cost)).toEqual([cost(hash), cost(hash)]);
  expect(cost(hash)).toEqual(['', 'argon2id', 'v=19', 'm=19456,t=2,p=1']);
});
