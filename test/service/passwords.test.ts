import { expect, test } from '@jest/globals';

test('verifying a password takes equally long for unknown and known accounts', async () => {
  const passwords = shared.passwords();
  const somebody = await passwords.hash('a password of somebody');
  const times = { nobody: Infinity, somebody: Infinity };
  for (let round = 0; round < 5; round++) {
    for (const [who, hash] of [['nobody', null] as const, ['somebody', somebody] as const]) {
      const start = performance.now();
      expect(await passwords.verify(hash, 'another password')).toBe(false);
      times[who] = Math.min(times[who], performance.now() - start);
    }
  }
  expect(times.nobody / times.somebody).toBeGreaterThan(0.6);
  expect(times.nobody / times.somebody).toBeLessThan(1.7);
});
