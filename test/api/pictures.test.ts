import { expect, test } from '@jest/globals';
import { fileForm, jpeg, png } from '../support/fixtures/pictures.ts';
import { serviceWithSchool, testPassword } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();

interface Person {
  id: number;
  email: string;
  profile_picture_url: string | null;
}

const user = await school.user(['teacher']);
const { data: profile } = await user.send<Person>(
  'POST',
  '/api/auth/profile/picture',
  { body: fileForm(png, 'me.png', 'image/png') },
  200,
);
const address = profile.profile_picture_url ?? '';

test('a picture has one address in every response, which needs no token and can be cached', async () => {
  const login = { tenant_id: school.id, email: profile.email, password: testPassword };
  const opened = await service.anonymous.post<{ user: Person }>('/api/auth/login', login);
  const path = `/api/users/${profile.id}`;
  const { data: listed } = await school.admin.get<Person[]>('/api/users?pageSize=100');
  expect([
    opened.data.user.profile_picture_url,
    (await user.get<Person>('/api/auth/profile')).data.profile_picture_url,
    (await school.admin.get<Person>(path)).data.profile_picture_url,
    listed.find(({ id }) => id === profile.id)?.profile_picture_url,
    (await user.put<Person>('/api/auth/profile', { phone: '1' })).data.profile_picture_url,
  ]).toEqual(Array(5).fill(address));
  const shown = await service.anonymous.get<Buffer>(address);
  expect(shown.data.equals(png)).toBe(true);
  expect(Object.fromEntries(shown.headers)).toMatchObject({
    'content-type': 'image/png',
    'content-disposition': 'inline; filename=picture.png',
    'content-security-policy': "default-src 'none'; sandbox",
    'x-content-type-options': 'nosniff',
    'cross-origin-resource-policy': 'cross-origin',
    'cache-control': 'private, max-age=3600',
  });
  const etag = shown.headers.get('etag') ?? '';
  const again = await service.anonymous.send('GET', address, { headers: { 'If-None-Match': etag } });
  expect([again.status, again.headers.get('cache-control')]).toEqual([304, 'private, max-age=3600']);
  const head = await service.anonymous.send('HEAD', address);
  expect([head.status, head.headers.get('content-length')]).toEqual([200, String(png.length)]);
});

test('a record can be sent back with an older address of its picture, and its version does not depend on the address', async () => {
  const path = `/api/users/${profile.id}`;
  const read = await school.admin.get<Person>(path);
  const older = { ...read.data, profile_picture_url: '/api/pictures/1-1-1700000000-ab' };
  const headers = { 'If-Match': read.headers.get('etag') ?? '' };
  const put = await school.admin.send<Person>('PUT', path, { body: older, headers }, 200);
  expect(put.data.profile_picture_url).toBe(address);
  const { data: own } = await user.get<Person>('/api/auth/profile');
  await user.put('/api/auth/profile', { ...own, profile_picture_url: older.profile_picture_url });
});

test('a new picture has another address', async () => {
  const { data } = await user.send<Person>(
    'POST',
    '/api/auth/profile/picture',
    { body: fileForm(jpeg, 'me.jpg', 'image/jpeg') },
    200,
  );
  expect(data.profile_picture_url).not.toBe(address);
});
