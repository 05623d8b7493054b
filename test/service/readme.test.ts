import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { errors } from '../../src/domain/errors.ts';

test('docs/api.md lists every error of the registry with its status and meaning, and no other', async () => {
  const guide = await readFile(join(import.meta.dirname, '../../docs/api.md'), 'utf8');
  const listed = [...guide.matchAll(/^\| `(\w+)` \| (\d{3}) \| (.+) \|$/gm)].map(([, name, status, meaning]) => [
    name,
    Number(status),
    meaning,
  ]);
  expect(listed).toEqual(Object.entries(errors).map(([name, { status, meaning }]) => [name, status, meaning]));
});

test('.env.example names every setting that the service reads, and no other', async () => {
  const [example, config] = await Promise.all([
    readFile(join(import.meta.dirname, '../../.env.example'), 'utf8'),
    readFile(join(import.meta.dirname, '../../src/process/config.ts'), 'utf8'),
  ]);
  const named = [...example.matchAll(/^([A-Z_]+)=/gm)].map(([, name]) => name).sort();
  const read = [...config.matchAll(/^ {2}([A-Z_]+): /gm)].map(([, name]) => name).sort();
  expect(named).toEqual(read);
});
