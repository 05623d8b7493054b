import { describe, expect, test } from '@jest/globals';
import { fileForm } from '../support/fixtures/pictures.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';

const { school } = await serviceWithSchool();
const { admin } = school;
/** The class has a double space, as earlier versions stored it. */
const stored = 'Grade  1';
const { classId, gradeId } = await school.classroom(stored);
await admin.put(`/api/classes/${String(classId)}`, { section: 'B' });
await school.database.query(`update ${school.schema}.class set name = $1 where id = $2`, [stored, classId]);
await school.database.query(`update ${school.schema}.grade set name = $1 where id = $2`, [stored, gradeId]);
await school.insert('religion', { name: 'Church of\u00a0Norway' });
await school.insert('religion', { name: 'Ethics' });

const importStudents = (columns: string, cells: string) =>
  admin.post<{ ids: number[] }>(
    '/api/students/import',
    fileForm(
      Buffer.from(`first_name,last_name,${columns}\nEve,${unique('Import')},${cells}\n`),
      'people.csv',
      'text/csv',
      'file',
    ),
    201,
  );

describe('white space of any kind and length counts as one space', () => {
  test.each(['Grade 1 B', 'Grade\u00a01\u00a0B', 'grade  1  b', 'Grade 1\u2003B', 'Grade\u202f1 B', ' Grade\t1 B '])(
    'in the name of a class in a file (%j)',
    async (name) => {
      const { data } = await importStudents('class', `"${name}"`);
      expect((await admin.get(`/api/students/${String(data.ids[0])}`)).data).toMatchObject({ class_id: classId });
    },
  );

  test('in the names of a grade and a religion in a file', async () => {
    const { data } = await importStudents('grade,religion', 'Grade\u00a01,Church\u00a0\u00a0of Norway');
    expect((await admin.get(`/api/students/${String(data.ids[0])}`)).data).toMatchObject({
      grade_id: gradeId,
      religion_name: 'Church of\u00a0Norway',
    });
  });

  test('in the subject of a teacher, which is a subject of the class', async () => {
    const { data: subject } = await admin.post<{ id: number }>(
      '/api/subjects',
      { name: 'Natural  Science', code: 'NS' },
      201,
    );
    await admin.post('/api/class-subjects', { class_id: classId, subject_id: subject.id, periods_per_week: 2 }, 201);
    const { data: teacher } = await admin.post<{ id: number }>(
      '/api/teachers',
      { first_name: 'Ada', last_name: 'B' },
      201,
    );
    const { data } = await admin.post(
      `/api/classes/${String(classId)}/teachers`,
      { teacher_id: teacher.id, subject: 'natural\u00a0science' },
      200,
    );
    expect(data).toMatchObject({ subject: 'Natural Science' });
  });

  test('in the name of the academic year of the setup', async () => {
    const year = { start_date: '2031-01-01', end_date: '2031-12-31' };
    await admin.post('/api/school-setup/academic-year', { name: 'Year 2031', ...year }, 200);
    const { data } = await admin.get<{ name: string }[]>('/api/academics/years?search=2031');
    await admin.post('/api/school-setup/academic-year', { name: 'Year\u00a02031', ...year }, 200);
    expect((await admin.get('/api/academics/years?search=2031')).data).toHaveLength(data.length);
  });

  test.each([
    ['/api/subjects', { name: 'A\u00a0 b', code: 'C\u2003 d' }, { name: 'A b', code: 'C d' }],
    ['/api/grades', { name: ' Grade \u00a0 9' }, { name: 'Grade 9' }],
    ['/api/students', { first_name: 'Anna\u00a0\u00a0Maria', last_name: 'O ' }, { first_name: 'Anna Maria' }],
    ['/api/rbac/roles', { name: 'Head\u00a0of\tstaff', permission_ids: [] }, { name: 'Head of staff' }],
  ])('in a name of %s, which is stored with single spaces', async (path, body, expected) => {
    expect((await admin.post(path, body, 201)).data).toMatchObject(expected);
  });

  test('so that a name with another space exists already', async () => {
    await admin.post('/api/religions', { name: 'New Apostolic' }, 201);
    await admin.post('/api/religions', { name: 'New\u00a0Apostolic' }, 409);
  });
});

describe('invisible characters do not count', () => {
  test.each(['Grade\u200b 1', '\u2060Grade 1\u00ad\ufeff', '\u200eGrade 1\u200f', 'Gra\u200dde 1', 'Grade \u31641'])(
    'in the name of a grade in a file (%j)',
    async (name) => {
      const { data } = await importStudents('grade', name);
      expect((await admin.get(`/api/students/${String(data.ids[0])}`)).data).toMatchObject({ grade_id: gradeId });
    },
  );

  test.each([
    '\u200eEthics',
    'Eth\u00adics',
    'Eth\u200bics',
    'Ethics\u2060',
    'Eth\u200dics',
    'Eth\u034fics',
    'Ethics \u3164',
  ])('in a name that exists already (%j)', async (name) => {
    const subject = { code: unique('CODE') };
    const { data } = await admin.post<{ id: number }>('/api/subjects', { ...subject, name }, 201);
    expect((await admin.get(`/api/subjects/${String(data.id)}`)).data).toMatchObject({ ...subject, name: 'Ethics' });
    await admin.post('/api/religions', { name }, 409);
  });

  test('in a name that an earlier version stored', async () => {
    await school.insert('religion', { name: 'Old\u200b Catholic' });
    const { data } = await importStudents('religion', 'old catholic');
    expect((await admin.get(`/api/students/${String(data.ids[0])}`)).data).toMatchObject({
      religion_name: 'Old\u200b Catholic',
    });
  });

  test.each([' eve.trim@example.org ', '\u200beve.trim@example.org\u00a0', 'Eve.Trim@Example.org\t'])(
    'and spaces do not, around an email (%j)',
    async (email) => {
      const { data } = await admin.post('/api/students', { first_name: 'Eve', last_name: 'Trim', email }, 201);
      expect(data).toMatchObject({ email: 'eve.trim@example.org' });
    },
  );

  test.each(['\u202a+49 30 1234\u202c', '+49\u00a030  1234', '\u200e+49 30 1234'])(
    'in a phone number (%j)',
    async (phone) => {
      const { data } = await admin.post(
        '/api/students',
        { first_name: 'Eve', last_name: 'Phone', phone, parent_phone: phone },
        201,
      );
      expect(data).toMatchObject({ phone: '+49 30 1234', parent_phone: '+49 30 1234' });
    },
  );

  test.each([
    ['a Persian word', 'علی\u200cرضا'],
    ['a Bengali word', 'র\u200d্যা'],
    ['a Kannada word', 'ರ\u200d್ಯಾಂಕ್'],
    ['an Arabic abbreviation', 'ه\u200d.ش'],
    ['a Mongolian vowel', 'ᠬᠠᠭ\u180eᠠ'],
    ['a Hindi word', 'क्\u200dष'],
    ['a family', '👩\u200d👩\u200d👧'],
    ['a heart on fire', '❤\ufe0f\u200d🔥'],
    ['a shrugging person', '🤷🏽\u200d♀\ufe0f'],
    ['a key', '1\ufe0f\u20e3'],
    ['the flag of Wales', '🏴\u{e0067}\u{e0062}\u{e0077}\u{e006c}\u{e0073}\u{e007f}'],
    ['a variant of a Japanese letter', '葛\u{e0100}城'],
    ['a variant of a Mongolian letter', 'ᠮᠣᠩ\u180b'],
  ])('but those that shape %s stay', async (_what, name) => {
    const { data } = await admin.post<{ id: number }>('/api/students', { first_name: name, last_name: 'Shaped' }, 201);
    expect(data).toMatchObject({ first_name: name });
    const { data: imported } = await importStudents('address', name);
    expect((await admin.get(`/api/students/${String(imported.ids[0])}`)).data).toMatchObject({ address: name });
  });
});

test('a name is in NFC also after it has lost an invisible character', async () => {
  const { data } = await admin.post(
    '/api/students',
    { first_name: 'Jose\u200b\u0301', last_name: 'Jose\u034f\u0301' },
    201,
  );
  expect(data).toMatchObject({ first_name: 'José', last_name: 'José' });
});

test('a name of very many invisible characters is refused, and takes no longer than others', async () => {
  for (const character of ['\u{e0061}', '\u200d', '\u0301\u200d', '\ufe0f', '👩\u200d', '\u{1f3f4}\u{e0061}'])
    await admin.post('/api/students', { first_name: character.repeat(100_000), last_name: 'Long' }, 400);
});

test('notes keep their lines and spaces', async () => {
  const address = 'Street 1\n  2nd  floor';
  const { data } = await admin.post('/api/students', { first_name: 'Eve', last_name: 'Lines', address }, 201);
  expect(data).toMatchObject({ address });
});
