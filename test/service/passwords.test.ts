import { expect, test } from '@jest/globals';

test('verifying a password runs argon2 with the same cost for unknown and known accounts', async () => {
  const hash = await shared.passwords().hash('a password of an account');
  const verified: string[] = [];
  const passwords = shared.passwords({}, (digest: string) => {
    verified.push(digest);
    return Promise.resolve(true);
  });
  expect(await passwords.verify(hash, 'another password')).toBe('prepared');
  expect(await passwords.verify(null, 'another password')).toBe(null);
  // The order of the parameters in a PHC string is not fixed.
  const cost = (digest: string) =>
    digest
      .split('$')
      .slice(1, 4)
      .map((part) => part.split(',').sort().join(','));
  expect(verified.map(cost)).toEqual([cost(hash), cost(hash)]);
  expect(cost(hash)).toEqual(['argon2id', 'v=19', 'm=19456,p=1,t=2']);
});
