import { beforeAll, describe, expect, test } from '@jest/globals';
import { pictureAddresses } from '../../src/http/credentials/picture-addresses.ts';
import type { Client } from '../support/client/client.ts';
import { fileForm, jpeg, png } from '../support/fixtures/pictures.ts';
import { type School, serviceWithSchool } from '../support/server/service.ts';

const secret = 'the secret of the tests of pictures';
const oldSecret = 'the old secret of the tests of pictures';
const { service, school } = await serviceWithSchool({ JWT_SECRETS: `${secret},${oldSecret}` });

interface Profile {
  id: number;
  profile_picture_url: string | null;
}
const hours = (count: number) => count * 60 * 60 * 1000;
const get = (address: string, status: number) => service.anonymous.get<Buffer>(address, status);
const setPicture = async (client: Client, content: Buffer) =>
  (
    await client.send<Profile>(
      'POST',
      '/api/auth/profile/picture',
      { body: fileForm(content, 'me.png', 'image/png') },
      200,
    )
  ).data.profile_picture_url ?? '';
/** The parts of an address: school, file, expiry, signature. */
const partsOf = (address: string) => address.replace(/^.*\/api\/pictures\//, '').split('-');
const addressOf = (parts: (string | number | undefined)[]) => `/api/pictures/${parts.join('-')}`;
const fileOf = (address: string) => Number(partsOf(address)[1]);

let other: School;
let owner: Client;
let address: string;
/** The picture of a user of the other school has the same file id. */
let otherAddress: string;

beforeAll(async () => {
  other = await service.school();
  owner = await school.user(['teacher']);
  address = await setPicture(owner, png);
  otherAddress = await setPicture(await other.user(['teacher']), jpeg);
});

describe('the address of a picture', () => {
  test('belongs to one school', async () => {
    expect(fileOf(otherAddress)).toBe(fileOf(address));
    const [ofSchool, ofOther] = [partsOf(address), partsOf(otherAddress)];
    await get(addressOf(ofSchool), 200);
    await get(addressOf([other.id, ...ofSchool.slice(1)]), 404);
    await get(addressOf([...ofOther.slice(0, 3), ofSchool[3]]), 404);
    await get(addressOf([0, ...ofSchool.slice(1)]), 404);
  });

  test.each<[string, (parts: string[]) => (string | number | undefined)[]]>([
    ['a later expiry', ([a, b, expiry, d]) => [a, b, Number(expiry) + 3600, d]],
    ['an earlier expiry', ([a, b, expiry, d]) => [a, b, Number(expiry) - 3600, d]],
    ['another version', ([a, file, c, d]) => [a, Number(file) + 1, c, d]],
    ['another signature', ([a, b, c, d = '']) => [a, b, c, d.replace(/^./, (one) => (one === '0' ? '1' : '0'))]],
    ['a signature in capitals', ([a, b, c, d = '']) => [a, b, c, `A${d.toUpperCase().slice(1)}`]],
    ['half a signature', ([a, b, c, d = '']) => [a, b, c, d.slice(32)]],
    ['no signature', (parts) => [...parts.slice(0, 3), '']],
    ['more after the signature', (parts) => [...parts, '1']],
    ['zeros before the id', ([a, b, c, d]) => [a, `0${b ?? ''}`, c, d]],
    ['nothing else', () => ['x']],
  ])('with %s is a 404', async (_case, changed) => {
    expect((await service.anonymous.get(addressOf(changed(partsOf(address))), 404)).error).toBe('not_found');
  });

  test('can be signed with every current secret, but not with a retired one', async () => {
    const signed = (by: string) => pictureAddresses([by]).address(school.id, fileOf(address));
    await get(signed(secret), 200);
    await get(signed(oldSecret), 200);
    await get(signed('a retired secret of the tests'), 404);
  });

  test('expires within a day, and lasts for at least 18 hours', async () => {
    const madeBefore = (age: number) =>
      pictureAddresses([secret], () => Date.now() - age).address(school.id, fileOf(address));
    await get(madeBefore(hours(17.9)), 200);
    await get(madeBefore(hours(24)), 404);
  });

  test('is the same for up to six hours, and then changes', () => {
    const start = Date.UTC(2026, 8, 1, 6);
    const at = (time: number) => pictureAddresses([secret], () => time).address(school.id, 1);
    expect(at(start + hours(5.9))).toBe(at(start));
    expect(at(start + hours(6))).not.toBe(at(start));
  });

  test('shows pictures only, even if a document is signed', async () => {
    const signed = (id: number) => pictureAddresses([secret]).address(school.id, id);
    const document = await school.insert('file', { content: png, content_type: 'image/png', name: 'passport.png' });
    await get(signed(document), 404);
    await get(signed(999_999), 404);
  });

  test('works neither for a replaced picture, nor for a removed one, nor for that of a deleted user', async () => {
    const user = await school.user(['teacher']);
    const first = await setPicture(user, png);
    const second = await setPicture(user, jpeg);
    await get(first, 404);
    expect((await get(second, 200)).data.equals(jpeg)).toBe(true);
    await school.admin.delete(`/api/users/${user.id}`);
    await get(second, 404);

    const info = async (body: unknown) =>
      (await school.admin.post<{ logo_url: string | null }>('/api/school-setup/school-info', body)).data.logo_url ?? '';
    const logo = await info(fileForm(png, 'logo.png', 'image/png', 'logo'));
    expect((await get(logo, 200)).headers.get('content-disposition')).toBe('inline; filename=logo.png');
    await info({ logo: null });
    await get(logo, 404);
  });

  test('does not work while the school is suspended, nor after it is deleted', async () => {
    const closing = await service.school();
    const shown = await setPicture(closing.admin, png);
    const path = `/api/platform/tenants/${closing.id}`;
    await service.operator.post(`${path}/suspend`);
    expect((await service.anonymous.get(shown, 404)).error).toBe('not_found');
    await service.operator.post(`${path}/activate`);
    await get(shown, 200);
    await service.operator.delete(path);
    expect((await service.anonymous.get(shown, 404)).error).toBe('not_found');
    await get(pictureAddresses([secret]).address(999_999, 1), 404);
  });

  test("the URL of an operator's picture does not open pictures of a school", async () => {
    const shown = await setPicture(service.operator, jpeg);
    expect(partsOf(shown)[0]).toBe('0');
    expect((await get(shown, 200)).data.equals(jpeg)).toBe(true);
    await get(addressOf([school.id, ...partsOf(shown).slice(1)]), 404);
  });
});

describe('the signing key that a request passes to the database', () => {
  const claimsOf = (token: string) =>
    JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as { sid: number };
  const profileWith = async (client: Client, key: string) => {
    const [row] = await school.database.query<{ answer: string }>(
      `select answer from core.call('auth_profile', $1, '{}', $2)`,
      [claimsOf(client.token).sid, { picture_key: key }],
    );
    return (JSON.parse(row?.answer ?? '') as Profile).profile_picture_url;
  };

  test('signs for the school of the request only', async () => {
    const addresses = pictureAddresses([secret], Date.now, service.url);
    expect(await profileWith(owner, addresses.signingKey(school.id))).toBe(address);
    const forged = await profileWith(owner, addresses.signingKey(other.id));
    expect(partsOf(forged ?? '')[0]).toBe(String(school.id));
    await get(forged ?? '', 404);
    await get(addressOf([other.id, ...partsOf(forged ?? '').slice(1)]), 404);
  });

  test('is stored nowhere: without it, the database creates no address', async () => {
    expect(await profileWith(owner, '')).toBeNull();
  });
});
