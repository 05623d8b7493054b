import { describe, expect, test } from '@jest/globals';
import { serviceWithSchool } from '../support/server/service.ts';
import { send } from '../support/client/wire.ts';

const { service, school } = await serviceWithSchool();

const put = (body: string) =>
  send(service.url, { method: 'PUT', path: '/api/auth/profile', token: school.admin.token, body });

describe('a malicious body', () => {
  // Quadratic processing would exceed the test timeout.
  test('with 100,000 unknown fields gets a 400 that names the first 20', async () => {
    const fields = Array.from({ length: 100_000 }, (_, n) => `"${n.toString(36)}":1`);
    const body = `{${fields.join(',')}}`;
    expect(body.length).toBeGreaterThan(800_000);
    const { status, json } = await put(body);
    expect([status, json?.error, json?.details?.length]).toEqual([400, 'validation_error', 20]);
    expect(json?.details?.[0]).toEqual({ path: '0', message: 'is not a known field' });
  });

  test('with many errors gets a 400 with at most 20 details', async () => {
    for (const body of [`{"role_ids":[${'"",'.repeat(250_000)}""]}`, `{"role_ids":[${'"",'.repeat(48)}""]}`]) {
      const { status, json } = await send(service.url, {
        method: 'PUT',
        path: '/api/users/1',
        token: school.admin.token,
        body,
      });
      expect([status, json?.error]).toEqual([400, 'validation_error']);
      expect(json?.details?.length).toBeLessThanOrEqual(20);
    }
  });

  test('with more than 50 levels of nesting gets a 400, in any field and at any depth', async () => {
    const nested = (depth: number, open: string, close: string) => `${open.repeat(depth)}1${close.repeat(depth)}`;
    for (const depth of [50, 51, 5_000, 150_000]) {
      for (const [open, close] of [
        ['[', ']'],
        ['{"a":', '}'],
      ] as const) {
        // `roles` is a read-only field, `first_name` a field of the body, `unknown` neither.
        for (const field of ['roles', 'first_name', 'unknown']) {
          const { status, json } = await put(`{"${field}":${nested(depth, open, close)}}`);
          expect([depth, field, status, json?.error]).toEqual([depth, field, 400, 'validation_error']);
          expect(json?.details).toEqual([{ path: '', message: 'is nested too deeply' }]);
        }
      }
    }
  });

  test('gets the same response without a login', async () => {
    const { status, json } = await send(service.url, {
      method: 'POST',
      path: '/api/auth/login',
      body: '['.repeat(8_000) + ']'.repeat(8_000),
    });
    expect([status, json?.message]).toEqual([400, 'The body is nested too deeply.']);
  });

  test('with 50 levels of nesting is validated normally', async () => {
    const { status, json } = await put(`{"unknown":${'['.repeat(49)}${']'.repeat(49)}}`);
    expect([status, json?.details]).toEqual([400, [{ path: 'unknown', message: 'is not a known field' }]]);
  });
});
