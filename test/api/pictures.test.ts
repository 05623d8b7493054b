import { expect, test } from '@jest/globals';
import sharp from 'sharp';
import { fileForm, jpeg, malformedPictures, png, repairablePictures } from '../support/fixtures/pictures.ts';
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
  expect(address.slice(0, address.lastIndexOf('/'))).toBe(`${service.url}/api/pictures`);
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
  const headers = { 'If-Match': read.headers.get('etag') ?? '' };
  for (const profile_picture_url of [
    address,
    new URL(address).pathname,
    '/api/pictures/1-1-1700000000-ab',
    'https://former.example/base/api/pictures/1-1-1700000000-ab',
  ]) {
    const older = { ...read.data, profile_picture_url };
    const put = await school.admin.send<Person>('PUT', path, { body: older, headers }, 200);
    expect(put.data.profile_picture_url).toBe(address);
    const { data: own } = await user.get<Person>('/api/auth/profile');
    await user.put('/api/auth/profile', { ...own, profile_picture_url });
  }
  for (const profile_picture_url of [
    'https://former.example/me.png',
    'x',
    'javascript:/api/pictures/1-1-1700000000-ab',
  ])
    expect((await school.admin.put<Person>(path, { ...read.data, profile_picture_url })).data.profile_picture_url).toBe(
      address,
    );
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

/** Uploads a picture of the user. @returns the stored one */
async function stored(content: Buffer, type: string): Promise<Buffer> {
  const body = fileForm(content, 'me', type);
  const { data } = await user.send<Person>('POST', '/api/auth/profile/picture', { body }, 200);
  return (await service.anonymous.get<Buffer>(data.profile_picture_url ?? '')).data;
}

const drawn = (width: number, height: number) =>
  sharp({ create: { width, height, channels: 3, background: '#336699' } });

test('a photo is stored upright, without the place where it was taken', async () => {
  const photo = await drawn(40, 20)
    .withExif({ IFD0: { Copyright: 'Ada' }, IFD3: { GPSLatitudeRef: 'N', GPSLatitude: '51/1 30/1 0/1' } })
    .withMetadata({ orientation: 6 })
    .jpeg()
    .toBuffer();
  expect(await sharp(photo).metadata()).toMatchObject({ width: 40, height: 20, orientation: 6 });
  const shown = await sharp(await stored(photo, 'image/jpeg')).metadata();
  expect([shown.format, shown.width, shown.height]).toEqual(['jpeg', 20, 40]);
  expect([shown.exif, shown.orientation, shown.xmp, shown.iptc]).toEqual([undefined, undefined, undefined, undefined]);
});

test('a large picture is reduced, and keeps its transparency', async () => {
  const large = await drawn(3000, 1500).ensureAlpha(0.5).png().toBuffer();
  const shown = await sharp(await stored(large, 'image/png')).metadata();
  expect(shown).toMatchObject({ format: 'png', width: 2000, height: 1000, hasAlpha: true });
});

test.each(Object.entries(malformedPictures))('a picture with %s is rejected with a 400', async (_what, content) => {
  const body = fileForm(content, 'me', 'image/png');
  const refused = await user.send('POST', '/api/auth/profile/picture', { body }, 400);
  expect([refused.error, refused.details.map(({ path }) => path)]).toEqual(['validation_error', ['picture']]);
  expect(refused.message).toMatch(/^The picture (is damaged|has 60000 × 60000 pixels)/);
});

test.each(Object.entries(repairablePictures))(
  'a picture with %s is stored without the defect',
  async (_what, content) => {
    const shown = await stored(content, 'image/png');
    expect(shown.equals(content)).toBe(false);
    expect(await sharp(shown, { failOn: 'warning' }).metadata()).toMatchObject({ format: 'png', width: 1, height: 1 });
  },
);

test('a file of another format with the signature of a PNG or JPEG is rejected', async () => {
  const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>');
  for (const start of ['89504e470d0a1a0a', 'ffd8ffe0']) {
    const body = fileForm(Buffer.concat([Buffer.from(start, 'hex'), svg]), 'me.png', 'image/png');
    expect([400, 415]).toContain((await user.send('POST', '/api/auth/profile/picture', { body })).status);
  }
});
