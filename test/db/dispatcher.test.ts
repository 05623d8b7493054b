import { expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();

const call = async (operation: string, params: object, context: object) => {
  const { sid } = jwt.decode(school.admin.token) as { sid: number };
  const [row] = await service.database.query<{ answer: string | null; version: string | null; id: string | null }>(
    'select answer, version, id from core.call($1, $2, $3, $4)',
    [operation, sid, params, context],
  );
  return row;
};

test('with check_only, core.call runs neither a read nor a write', async () => {
  const subject = { name: 'Checked', code: 'CHK' };
  expect(await call('subjects_create', subject, { check_only: true })).toEqual({
    answer: null,
    version: null,
    id: null,
  });
  expect(await call('subjects_list', {}, { check_only: true })).toEqual({ answer: null, version: null, id: null });
  const { answer } = (await call('subjects_list', { search: 'Checked' }, {})) ?? {};
  expect(JSON.parse(answer ?? '')).toMatchObject({ data: [] });
});

test('with check_only, core.call refuses the same requests', async () => {
  await expect(call('platform_tenants_list', {}, { check_only: true })).rejects.toThrow(
    'This needs a platform operator',
  );
  await expect(call('subjects_update', { id: 999999 }, { check_only: true })).rejects.toThrow('There is no subject');
});

test('core.call computes the version of a record only if the context asks for it, also for a repeated request', async () => {
  const subject = { name: 'Versioned', code: 'VER' };
  const key = { idempotency_key: 'versioned', request_hash: 'hash' };
  const created = await call('subjects_create', subject, { ...key, needs_version: true });
  expect(created?.version).toMatch(/^[0-9a-f]{32}$/);
  expect(await call('subjects_create', subject, { ...key, needs_version: true })).toEqual(created);
  expect(await call('subjects_create', subject, key)).toEqual({ ...created, version: null });
  expect(await call('subjects_get', { id: Number(created?.id) }, { needs_version: true })).toMatchObject({
    version: created?.version,
  });
  expect(await call('subjects_get', { id: Number(created?.id) }, {})).toMatchObject({ version: null });
});

test('core.run_operation refuses an operation that it was not generated for', async () => {
  await expect(service.database.query("select core.run_operation('public', 'students_geu', '{}')")).rejects.toThrow(
    'The operation students_geu is not part of core.run_operation.',
  );
});
