import { beforeAll, describe, expect, test } from '@jest/globals';
import { fileForm, malformedPictures, jpeg, palettePng, png } from '../support/fixtures/pictures.ts';
import { race } from '../support/client/race.ts';
import { type School, serviceOfFile } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { AcademicYear as AcademicYearSchema } from '../../src/endpoints/academics.ts';
import type { SchoolInfo as SchoolInfoSchema, Status as StatusSchema } from '../../src/endpoints/school-setup.ts';

const service = await serviceOfFile({}, 33);
/** A school that stays empty: every request to it is refused. */
let fresh: School;

beforeAll(async () => {
  fresh = await service.school();
});

type SchoolInfo = OutputOf<typeof SchoolInfoSchema>;
type Status = OutputOf<typeof StatusSchema>;
type Year = OutputOf<typeof AcademicYearSchema>;
interface Grade {
  id: number;
  name: string;
  sequence: number | null;
}

const base = '/api/school-setup';
const year = { name: '2026/2027', start_date: '2026-08-01', end_date: '2027-07-31' };
const status = async (school: School) => (await school.admin.get<Status>(`${base}/status`)).data;
const info = async (school: School, body: unknown) =>
  (await school.admin.post<SchoolInfo>(`${base}/school-info`, body)).data;
const setYear = async (school: School, body: unknown) =>
  (await school.admin.post<Year>(`${base}/academic-year`, body)).data;
const setGrades = async (school: School, grades: unknown) =>
  (await school.admin.post<Grade[]>(`${base}/grades`, { grades })).data;
const years = async (school: School) => (await school.admin.get<Year[]>('/api/academics/years')).data;
const dataUrl = (content: Buffer, type = 'image/png') => `data:${type};base64,${content.toString('base64')}`;
const files = (school: School) => service.database.query(`select content_type from ${school.schema}.file`);

/** The settings of a school that has changed none. */
const defaults = {
  currency: 'USD',
  currency_decimals: 2,
  locale: 'en-GB',
  invoice_reminders: true,
  payment_details: null,
  is_impersonation_allowed: true,
  is_second_factor_required: false,
  action_url_hosts: [],
  logo: null,
  logo_url: null,
};

describe('the setup of a school', () => {
  test('is completed after all steps, in any order, and every step may be repeated', async () => {
    const school = await service.school({ name: 'New School' });
    expect(await status(school)).toMatchObject({
      is_complete: false,
      steps_completed: [],
      steps_missing: ['school_info', 'academic_year', 'grades'],
      school: {
        name: 'New School',
        address: null,
        phone: null,
        email: null,
        website: null,
        ...defaults,
      },
      academic_year: null,
      grade_count: 0,
    });
    await setGrades(school, [{ name: 'One', sequence: 1 }]);
    expect((await status(school)).steps_completed).toEqual(['grades']);
    await info(school, { address: '1 Hill' });
    expect((await status(school)).steps_missing).toEqual(['academic_year']);

    const refused = await school.admin.post(`${base}/complete`, undefined, 409);
    expect([refused.error, refused.message]).toEqual([
      'setup_incomplete',
      'The setup is not complete. Create the current academic year: POST /api/school-setup/academic-year.',
    ]);
    expect(refused.details).toEqual([
      { path: 'academic_year', message: 'Create the current academic year: POST /api/school-setup/academic-year.' },
    ]);
    expect((await status(school)).is_complete).toBe(false);

    const created = await setYear(school, year);
    const complete = (await school.admin.post<Status>(`${base}/complete`)).data;
    expect(complete).toEqual({
      is_complete: true,
      steps_completed: ['school_info', 'academic_year', 'grades'],
      steps_missing: [],
      steps: ['school_info', 'academic_year', 'grades'].map((name) => ({ name, is_complete: true, missing: null })),
      school: {
        name: 'New School',
        address: '1 Hill',
        phone: null,
        email: null,
        website: null,
        ...defaults,
      },
      academic_year: { id: created.id, ...year },
      grade_count: 1,
      today: new Date().toISOString().slice(0, 10),
      time_zone: 'UTC',
    });
    await setGrades(school, [{ name: 'One', sequence: 1 }]);
    await info(school, { address: '1 Hill' });
    await setYear(school, year);
    expect((await school.admin.post<Status>(`${base}/complete`)).data).toEqual(complete);
    expect(
      (await school.admin.get<{ tenant: { is_setup_complete: boolean } }>('/api/auth/profile')).data.tenant
        .is_setup_complete,
    ).toBe(true);
  });

  test('cannot be completed while steps are missing: the 409 names each of them', async () => {
    const school = await service.school();
    const refused = await school.admin.post(`${base}/complete`, undefined, 409);
    expect(refused.details.map(({ path }) => path)).toEqual(['school_info', 'academic_year', 'grades']);
    expect((await status(school)).steps.map(({ missing }) => missing)).toEqual(
      refused.details.map(({ message }) => message),
    );
  });

  test('stays complete if all grades are deleted later, and the status names the missing step', async () => {
    const school = await service.school();
    await info(school, {});
    await setYear(school, year);
    await setGrades(school, [{ name: 'One' }]);
    await school.admin.post(`${base}/complete`);
    await service.database.query(`delete from ${school.schema}.grade`);
    expect(await status(school)).toMatchObject({ is_complete: true, steps_missing: ['grades'] });
    expect((await school.admin.post<Status>(`${base}/complete`)).data).toMatchObject({ is_complete: true });
  });

  test('can be read by every user of the school, and changed only with setup.manage', async () => {
    const school = await service.school({ name: 'Untouched' });
    for (const role of ['teacher', 'student']) {
      const user = await school.user([role]);
      expect((await user.get<Status>(`${base}/status`)).data).toEqual(await status(school));
      for (const [step, body] of [
        ['complete', undefined],
        ['school-info', { name: 'Mine' }],
        ['academic-year', year],
        ['grades', { grades: [{ name: 'One', sequence: 1 }] }],
      ] as const) {
        expect((await user.post(`${base}/${step}`, body, 403)).error).toBe('forbidden');
      }
    }
    expect((await service.operator.get(`${base}/status`, 403)).error).toBe('forbidden');
    expect(await status(school)).toMatchObject({ steps_completed: [], school: { name: 'Untouched' } });
  });
});

describe('the school information', () => {
  test('changes only the fields that are sent; a new name applies everywhere, and to no other school', async () => {
    const [school, other] = [await service.school(), await service.school()];
    const theirs = (await status(other)).school.name;
    const sent = {
      name: ' Green Valley ',
      address: '1 Hill',
      phone: '+1 2',
      email: 'Office@Green.example',
      website: 'https://green.example',
    };
    const stored = {
      ...sent,
      name: 'Green Valley',
      email: 'office@green.example',
      ...defaults,
    };
    expect(await info(school, sent)).toEqual(stored);
    expect(await info(school, { phone: null, website: '' })).toEqual({ ...stored, phone: null, website: null });
    expect(await info(school, {})).toEqual({ ...stored, phone: null, website: null });
    expect((await status(school)).school).toEqual({ ...stored, phone: null, website: null });
    expect((await service.operator.get<{ name: string }>(`/api/platform/tenants/${school.id}`)).data.name).toBe(
      'Green Valley',
    );
    expect((await school.admin.get<{ tenant: { name: string } }>('/api/auth/profile')).data.tenant.name).toBe(
      'Green Valley',
    );
    expect((await status(other)).school.name).toBe(theirs);
  });

  test.each<[Record<string, unknown>, string]>([
    [{ name: '' }, 'name'],
    [{ name: 'x'.repeat(201) }, 'name'],
    [{ email: 'nobody' }, 'email'],
    [{ website: 'x'.repeat(301) }, 'website'],
    [{ invoice_reminders: 'maybe' }, 'invoice_reminders'],
    ...[
      'https://a.example',
      'a.example/b',
      'a.example:80',
      'user@a.example',
      'localhost',
      '*.a.example',
      'a..example',
      '',
    ].map((host): [Record<string, unknown>, string] => [{ action_url_hosts: [host] }, 'action_url_hosts.0']),
    [{ action_url_hosts: ['a.example', 'A.example'] }, 'action_url_hosts.1'],
    [{ logo: 'picture' }, 'logo'],
    [{ logo: 'http://green.example/logo.png' }, 'logo'],
    [{ logo: 'https://' }, 'logo'],
    [{ logo: 'https://green.example/"><script>' }, 'logo'],
    [{ logo: `https://green.example/${'x'.repeat(2000)}` }, 'logo'],
    [{ logo: 'javascript:alert(1)' }, 'logo'],
    [{ logo: '/api/pictures/1-1-1790000000-ab' }, 'logo'],
    [{ logo: 'https://elsewhere.example/api/pictures/1-1-1790000000-ab' }, 'logo'],
    [{ logo: 'data:image/png;base64,' }, 'logo'],
    [{ logo: 'data:image/png,%89PNG' }, 'logo'],
    [{ logo: dataUrl(Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>'), 'image/png') }, 'logo'],
    [{ logo: dataUrl(malformedPictures['a picture of 2 GB'] ?? png) }, 'logo'],
    [{ logo: 1 }, 'logo'],
    [{ logo_id: 1 }, 'logo_id'],
    [{ file_id: 1 }, 'file_id'],
  ])('with %j is a 400 that names the field, and nothing changes', async (body, path) => {
    expect((await fresh.admin.post(`${base}/school-info`, { address: 'Nowhere', ...body }, 400)).details).toMatchObject(
      [{ path }],
    );
    expect((await status(fresh)).steps_completed).toEqual([]);
  });

  test('reports a wrong logo in the same form for a data URL and for a file', async () => {
    const broken = malformedPictures['a picture of 2 GB'] ?? png;
    const file = fileForm(broken, 'logo.png', 'image/png', 'logo');
    const [asText, asFile] = [
      await fresh.admin.post(`${base}/school-info`, { logo: dataUrl(broken) }, 400),
      await fresh.admin.post(`${base}/school-info`, file, 400),
    ];
    expect(asText.message).toMatch(/^The picture is damaged/);
    expect(asText.details).toEqual([{ path: 'logo', message: expect.stringMatching(/^is damaged/) }]);
    expect([asFile.message, asFile.details]).toEqual([asText.message, asText.details]);
    expect((await fresh.admin.post(`${base}/school-info`, { logo: 'data:image/png,%89PNG' }, 400)).message).toBe(
      'The picture must be a data URL of image/jpeg or image/png, in base64.',
    );
  });

  test('is one record after two concurrent first requests', async () => {
    const school = await service.school();
    const answers = await race(service.database, `lock table ${school.schema}.school in share mode`, 2, () =>
      [{ phone: '1' }, { address: 'A' }].map((body) =>
        school.admin.send<SchoolInfo>('POST', `${base}/school-info`, { body }),
      ),
    );
    expect(answers.map((answer) => answer.status)).toEqual([200, 200]);
    expect((await status(school)).school).toMatchObject({ phone: '1', address: 'A' });
  });
});

describe('the logo', () => {
  const webp = Buffer.from('524946461a000000574542505650384c0d0000002f00000010071011118888fe0700', 'hex');
  const form = (content: Buffer, fields: Record<string, string> = {}) => {
    const form = fileForm(content, 'logo.bin', 'application/octet-stream', 'logo');
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    return form;
  };

  test('is sent in a form with the other fields, can be read by every user, is replaced, and is deleted by null', async () => {
    const school = await service.school();
    expect((await school.admin.get(`${base}/logo`, 404)).error).toBe('not_found');
    const student = await school.user(['student']);
    const first = await info(school, form(png, { name: 'With logo', phone: '7', email: '' }));
    expect(first).toMatchObject({ name: 'With logo', phone: '7', email: null });
    expect(
      await info(school, form(png, { invoice_reminders: 'false', action_url_hosts: 'a.example, b.example' })),
    ).toMatchObject({
      invoice_reminders: false,
      action_url_hosts: ['a.example', 'b.example'],
      name: 'With logo',
    });
    expect(await info(school, { invoice_reminders: true, action_url_hosts: [] })).toMatchObject({
      invoice_reminders: true,
      action_url_hosts: [],
    });
    expect(first.logo_url?.replace(service.url, '')).toMatch(/^\/api\/pictures\/[\w-]+$/);
    expect(first.logo).toBe(first.logo_url);
    const shown = await student.get<Buffer>((await status(school)).school.logo_url ?? '');
    expect(shown.data.equals(png)).toBe(true);
    expect([shown.headers.get('content-type'), shown.headers.get('content-disposition')]).toEqual([
      'image/png',
      'inline; filename=logo.png',
    ]);
    const second = await info(school, form(jpeg));
    expect(second).toEqual({ ...first, logo: second.logo_url, logo_url: second.logo_url });
    expect(second.logo_url).not.toBe(first.logo_url);
    expect((await student.get<Buffer>(`${base}/logo`)).data.equals(jpeg)).toBe(true);
    expect(await files(school)).toEqual([{ content_type: 'image/jpeg' }]);
    expect((await info(school, { phone: '8' })).logo_url).toBe(second.logo_url);
    expect(await info(school, { logo: null })).toEqual({ ...first, phone: '8', logo: null, logo_url: null });
    expect(await files(school)).toEqual([]);
    await student.get(`${base}/logo`, 404);
  });

  test('is sent in JSON as a data URL, whose content decides its type, or as an https address, and is removed by null or ""', async () => {
    const school = await service.school();
    const uploaded = await info(school, { name: 'By data URL', logo: dataUrl(jpeg, 'image/png') });
    expect(uploaded).toMatchObject({ name: 'By data URL', logo: uploaded.logo_url });
    const shown = await service.anonymous.get<Buffer>(uploaded.logo ?? '');
    expect([shown.headers.get('content-type'), shown.data.equals(jpeg)]).toEqual(['image/jpeg', true]);
    for (const same of [uploaded.logo, new URL(uploaded.logo ?? '').pathname])
      expect(await info(school, { phone: '9', logo: same })).toEqual({ ...uploaded, phone: '9' });
    expect(await files(school)).toEqual([{ content_type: 'image/jpeg' }]);

    const address = 'https://green.example/logo.png?size=2';
    expect(await info(school, { logo: address })).toMatchObject({ logo: address, logo_url: address });
    expect(await files(school)).toEqual([]);
    await school.admin.get(`${base}/logo`, 404);
    expect(await info(school, { phone: '1', logo: address })).toMatchObject({ logo: address, phone: '1' });
    expect((await status(school)).school.logo).toBe(address);

    await info(school, form(png));
    expect((await service.anonymous.get<Buffer>((await status(school)).school.logo ?? '')).data.equals(png)).toBe(true);
    for (const none of [null, '']) {
      await info(school, { logo: dataUrl(png) });
      expect(await info(school, { logo: none })).toMatchObject({ logo: null, logo_url: null });
      expect(await files(school)).toEqual([]);
    }
    await info(school, { logo: address });
    expect((await info(school, { logo: '' })).logo).toBeNull();
  });

  test('has at most 1 MB as a data URL', async () => {
    const school = await service.school();
    const limit = Buffer.concat([png, Buffer.alloc(1024 * 1024 - png.length)]);
    expect((await info(school, { logo: dataUrl(limit) })).logo).not.toBeNull();
    const larger = Buffer.concat([limit, Buffer.alloc(1)]);
    expect((await school.admin.post(`${base}/school-info`, { logo: dataUrl(larger) }, 413)).error).toBe(
      'payload_too_large',
    );
  });

  test('must be JPEG, PNG or WebP by its content, regardless of its name', async () => {
    const school = await service.school();
    for (const [content, type] of [
      [jpeg, 'image/jpeg'],
      [png, 'image/png'],
      [webp, 'image/webp'],
    ] as const) {
      await info(school, form(content));
      expect((await school.admin.get(`${base}/logo`)).headers.get('content-type')).toBe(type);
    }
    const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>');
    for (const content of [svg, Buffer.from('GIF89a'), Buffer.alloc(0)]) {
      expect((await school.admin.post(`${base}/school-info`, form(content, { name: 'Renamed' }), 415)).error).toBe(
        'unsupported_media_type',
      );
    }
    expect((await status(school)).school.name).not.toBe('Renamed');
    expect(await files(school)).toEqual([{ content_type: 'image/webp' }]);
  });

  test.each(Object.entries(malformedPictures))(
    'rejects %s with a 400 for the field logo, and keeps the previous logo',
    async (_case, picture) => {
      const school = await service.school();
      const { logo_url } = await info(school, form(palettePng));
      const refused = await school.admin.post(`${base}/school-info`, form(picture), 400);
      expect([refused.error, refused.details.map((detail) => detail.path)]).toEqual(['validation_error', ['logo']]);
      expect(refused.message).toMatch(/^The picture (is|has) /);
      expect((await status(school)).school.logo_url).toBe(logo_url);
    },
  );

  test('has at most 5 MB, and a form without a logo keeps the existing one', async () => {
    const school = await service.school();
    const { logo_url } = await info(school, form(Buffer.concat([png, Buffer.alloc(5 * 1024 * 1024 - png.length)])));
    const large = form(Buffer.concat([png, Buffer.alloc(5 * 1024 * 1024 - png.length + 1)]));
    expect((await school.admin.post(`${base}/school-info`, large, 413)).error).toBe('payload_too_large');
    const bare = new FormData();
    bare.append('address', 'By form');
    expect(await info(school, bare)).toMatchObject({ address: 'By form', logo_url });
  });
});

describe('the academic year', () => {
  test('becomes the current one; a year with the same name, ignoring case, is updated instead of created', async () => {
    const school = await service.school();
    const created = await setYear(school, year);
    expect(created).toMatchObject({ ...year, is_current: true });
    expect(await setYear(school, year)).toMatchObject({ id: created.id, ...year });
    const jubilee = await setYear(school, { name: 'Jubilee', start_date: '2027-08-01', end_date: '2028-07-31' });
    expect((await years(school)).map(({ id, is_current }) => [id, is_current])).toEqual([
      [jubilee.id, true],
      [created.id, false],
    ]);
    const again = { name: 'JUBILEE', start_date: '2027-08-02', end_date: '2028-07-30' };
    expect(await setYear(school, again)).toMatchObject({ id: jubilee.id, ...again, is_current: true });
    expect(await setYear(school, year)).toMatchObject({ id: created.id, is_current: true });
    expect(await years(school)).toMatchObject([
      { id: jubilee.id, is_current: false },
      { id: created.id, is_current: true },
    ]);
  });

  test('stays the current one when a school that has completed its setup adds a year that has not begun', async () => {
    const school = await service.school();
    const [{ today } = { today: '' }] = await service.database.query<{ today: string }>(
      'select current_date::text as today',
    );
    const from = (offset: number) => new Date(Date.parse(today) + offset * 86_400_000).toISOString().slice(0, 10);
    const current = await setYear(school, { name: 'Current', start_date: from(-100), end_date: from(200) });
    await school.database.query('update platform.tenant set is_setup_complete = true where id = $1', [school.id]);
    const next = await setYear(school, { name: 'Next', start_date: from(201), end_date: from(500) });
    expect(next.is_current).toBe(false);
    expect((await years(school)).find(({ is_current }) => is_current)?.id).toBe(current.id);
  });

  test('cannot overlap another one: a 409, and the current year does not change', async () => {
    const school = await service.school();
    const created = await setYear(school, year);
    const refused = await school.admin.post(`${base}/academic-year`, { ...year, name: 'Other' }, 409);
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'start_date' }] });
    expect(await years(school)).toMatchObject([{ id: created.id, is_current: true }]);
  });

  test('with an invalid field is a 400 that names the field', async () => {
    const school = await service.school();
    for (const [fields, path] of [
      [{ name: '' }, 'name'],
      [{ start_date: '2026-13-01' }, 'start_date'],
      [{ end_date: '2026-08-01' }, 'end_date'],
      [{ is_current: false }, 'is_current'],
    ] as const) {
      expect((await school.admin.post(`${base}/academic-year`, { ...year, ...fields }, 400)).details).toMatchObject([
        { path },
      ]);
    }
    expect(await years(school)).toEqual([]);
  });

  test('is created once by two concurrent requests', async () => {
    const school = await service.school();
    const answers = await race(
      service.database,
      `select pg_advisory_xact_lock('${school.schema}.academic_year'::regclass::bigint)`,
      2,
      () => [1, 2].map(() => school.admin.send<Year>('POST', `${base}/academic-year`, { body: year })),
    );
    expect(answers.map((answer) => answer.status)).toEqual([200, 200]);
    expect(await years(school)).toMatchObject([{ ...year, is_current: true }]);
  });
});

describe('grades', () => {
  const listed = (grades: Grade[]) => grades.map(({ name, sequence }) => [name, sequence]);

  test('are matched by name, ignoring case: new ones are created, existing ones get the new sequence, and all are returned in order', async () => {
    const school = await service.school();
    const first = await setGrades(school, [
      { name: 'Grade 1', sequence: 1 },
      { name: 'Grade 2', sequence: 2 },
    ]);
    expect(listed(first)).toEqual([
      ['Grade 1', 1],
      ['Grade 2', 2],
    ]);
    const second = await setGrades(school, [
      { name: 'GRADE 2', sequence: 0 },
      { name: 'Grade 1' },
      { name: 'Nursery' },
      { name: 'Grade 10', sequence: 10 },
    ]);
    expect(listed(second)).toEqual([
      ['Grade 2', 0],
      ['Grade 1', 1],
      ['Grade 10', 10],
      ['Nursery', null],
    ]);
    expect(second.filter(({ name }) => /Grade [12]$/.test(name)).map(({ id }) => id)).toEqual([
      first[1]?.id,
      first[0]?.id,
    ]);
    expect((await status(school)).grade_count).toBe(4);
  });

  test('listed twice in one request are a 400 that names the second one, and none is created', async () => {
    const school = await service.school();
    const refused = await school.admin.post(
      `${base}/grades`,
      { grades: [{ name: 'A' }, { name: 'Ä' }, { name: 'ä' }, { name: ' a ' }] },
      400,
    );
    expect(refused).toMatchObject({ error: 'validation_error', details: [{ path: 'grades.2.name' }] });
    expect((await status(school)).grade_count).toBe(0);
  });

  test.each<[unknown, string]>([
    [undefined, 'grades'],
    [[], 'grades'],
    [Array.from({ length: 101 }, (_, n) => ({ name: `G${n}` })), 'grades'],
    [[{ sequence: 1 }], 'grades.0.name'],
    [[{ name: 'A' }, { name: '' }], 'grades.1.name'],
    [[{ name: 'A', sequence: 1.5 }], 'grades.0.sequence'],
    [[{ name: 'A', sequence: 2 ** 31 }], 'grades.0.sequence'],
    [[{ name: 'A', id: 1 }], 'grades.0.id'],
  ])('%j are a 400 that names the field, and none is created', async (grades, path) => {
    expect((await fresh.admin.post(`${base}/grades`, { grades }, 400)).details).toMatchObject([{ path }]);
    expect((await status(fresh)).grade_count).toBe(0);
  });

  test('sent by two concurrent requests in opposite order are created once each', async () => {
    const school = await service.school();
    const grades = Array.from({ length: 20 }, (_, n) => ({ name: `Grade ${n}`, sequence: n }));
    const answers = await race(service.database, `lock table ${school.schema}.grade in share mode`, 2, () =>
      [grades, grades.toReversed()].map((sent) =>
        school.admin.send('POST', `${base}/grades`, { body: { grades: sent } }),
      ),
    );
    expect(answers.map((answer) => answer.status)).toEqual([200, 200]);
    expect((await status(school)).grade_count).toBe(20);
  });
});
