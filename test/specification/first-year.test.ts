import { beforeAll, describe, expect, test } from '@jest/globals';
import { serviceOfFile } from '../support/server/service.ts';
import { documentedUses, endpoints, nameOf, SpecificationClient } from './client.ts';
import { walkFirstYear } from './walk/first-year.ts';

const service = await serviceOfFile({ BASE_DOMAIN: 'school.test' });
const client = new SpecificationClient(service.url);
const names = endpoints.map(nameOf);

/** The step of the walk that failed to start, because an earlier one did not bring what it needs. */
let stop: unknown;

beforeAll(async () => {
  await walkFirstYear(client, service).catch((error: unknown) => (stop = error));
});

describe('the transcription of the specification', () => {
  test('has all 228 endpoints, each once', () => {
    expect(new Set(names).size).toBe(228);
    expect(names).toHaveLength(228);
  });
});

describe('the first year of a school, with a client that knows only the specification', () => {
  test.each(names)('%s', (name) => {
    expect(client.problems.get(name) ?? []).toEqual([]);
  });

  test('comes to its end', () => {
    expect(stop).toBeUndefined();
  });

  test('calls every endpoint', () => {
    expect(names.filter((name) => !client.called.has(name))).toEqual([]);
  });

  test('sends every documented field and every documented value', () => {
    const documented = endpoints.flatMap(({ query, body, form, ...endpoint }) => [
      ...(query ? documentedUses(query, `${nameOf(endpoint)} query`) : []),
      ...(body && body !== 'not shown' ? documentedUses(body, `${nameOf(endpoint)} body`) : []),
      ...(form && form !== 'not shown' ? documentedUses(form, `${nameOf(endpoint)} form`) : []),
    ]);
    expect(documented.filter((use) => !client.used.has(use))).toEqual([]);
  });
});
