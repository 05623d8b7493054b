import { expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();

const call = async (operation: string, params: object, context: object) => {
  const { sid } = jwt.decode(school.admin.token) as { sid: number };
  const [row] = await service.database.query<{ answer: string | null; id: string | null }>(
    'select answer, id from core.call($1, $2, $3, $4)',
    [operation, sid, params, context],
  );
  return row;
};

test('with check_only, core.call runs neither a read nor a write', async () => {
  const subject = { name: 'Checked', code: 'CHK' };
  expect(await call('subjects_create', subject, { check_only: true })).toEqual({ answer: null, id: null });
  expect(await call('subjects_list', {}, { check_only: true })).toEqual({ answer: null, id: null });
  const { answer } = (await call('subjects_list', { search: 'Checked' }, {})) ?? {};
  expect(JSON.parse(answer ?? '')).toMatchObject({ data: [] });
});

test('with check_only, core.call refuses the same requests', async () => {
  await expect(call('platform_tenants_list', {}, { check_only: true })).rejects.toThrow(
    'This needs a platform operator',
  );
  await expect(call('subjects_update', { id: 999999 }, { check_only: true })).rejects.toThrow('There is no subject');
});
