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

test('a password that was typed in another form is compared twice, for unknown and known accounts', async () => {
  let compared: string[] = [];
  const passwords = shared.passwords({}, (_digest: string, password: string | Buffer) => {
    compared.push(String(password));
    return Promise.resolve(false);
  });
  for (const hash of ['the hash of an account', null]) {
    compared = [];
    expect(await passwords.verify(hash, 'Zoe\u0308\u00a0Byron')).toBe(null);
    expect(compared).toEqual(['Zo\u00eb Byron', 'Zoe\u0308\u00a0Byron']);
  }
});
