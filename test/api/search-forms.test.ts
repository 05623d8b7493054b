import { describe, expect, test } from '@jest/globals';
import { serviceWithSchool } from '../support/server/service.ts';

const { school } = await serviceWithSchool();

/** The names by which a list answers a search. */
async function found(path: string, search: string): Promise<string[]> {
  const { data } = await school.admin.get<Record<string, string>[]>(`${path}?search=${encodeURIComponent(search)}`);
  return data.map((row) => row['last_name'] ?? row['name'] ?? '');
}

/** What is stored, and what people type to find it. */
const names: [stored: string, ...typed: string[]][] = [
  ['محمّد', 'محمد', 'مُحَمَّد', 'محـمد'],
  ['الأحمد', 'الاحمد', 'الأحمد', 'الا\u0654حمد', 'أحمد'],
  ['إبراهيم', 'ابراهيم', 'ابراهیم'],
  ['مصطفى', 'مصطفي', 'مصطفی'],
  ['فاطمة', 'فاطمه'],
  ['مؤمن', 'مومن'],
  ['کریمی', 'كريمي'],
  ['می\u200cخواهم', 'میخواهم'],
  ['דָּוִד', 'דוד', 'דּוד'],
  ['אברהם', 'אברהמ'],
  ['ז׳בוטינסקי', "ז'בוטינסקי"],
  ['Müller', 'Mu\u0308ller', 'muller', 'MÜLLER', 'Ｍüller'],
  ['Nguyễn', 'Nguye\u0302\u0303n', 'nguyen'],
  ['J\u030Cones', 'jones', 'J\u030Cones'],
  ['Ὀδυσσεύς', 'οδυσσευσ', 'ΟΔΥΣΣΕΥΣ'],
  ['O’Neill', "o'neill"],
  ['Sørensen', 'Sør\u00adensen', 'Sørensen\u200b', '\u2065sorensen', 'Sør\u3164ensen'],
];

describe('a search ignores accents, vowel points and variants of letters', () => {
  test.each(names)('%s is found among students, teachers, users, classes and subjects', async (stored, ...typed) => {
    const person = { first_name: 'Ada', last_name: stored };
    const { data: student } = await school.admin.post<{ id: number }>('/api/students', person, 201);
    await school.admin.post('/api/teachers', person, 201);
    await school.admin.post(
      '/api/users',
      { ...person, email: `u${String(student.id)}@example.org`, role_ids: [] },
      201,
    );
    await school.admin.post('/api/subjects', { name: stored, code: `S${String(student.id)}` }, 201);
    for (const search of [stored, ...typed])
      for (const path of ['/api/students', '/api/teachers', '/api/users', '/api/subjects'])
        expect({ path, search, found: await found(path, search) }).toEqual({
          path,
          search,
          found: [stored.normalize()],
        });
  });

  test('digits of Arabic and Persian count as those of ASCII', async () => {
    await school.admin.post(
      '/api/students',
      { first_name: 'Eva', last_name: 'Digits', admission_number: '90417' },
      201,
    );
    expect(await found('/api/students', '٩٠٤١٧')).toEqual(['Digits']);
    expect(await found('/api/students', '۹۰۴۱۷')).toEqual(['Digits']);
  });
});

test('the search column of names has the names and the admission number of a student, and nothing else', async () => {
  const { data } = await school.admin.post<{ id: number }>(
    '/api/students',
    {
      first_name: 'Zoë',
      last_name: 'Ångström',
      admission_number: 'A-77',
      roll_number: '12',
      email: 'zoe@example.org',
      parent_name: 'Berta',
    },
    201,
  );
  const rows = await school.database.query<{ search_name: string }>(
    `select search_name from ${school.schema}.student where id = ${String(data.id)}`,
  );
  expect(rows).toEqual([{ search_name: 'zoe angstrom a-77' }]);
});

test('a text that an earlier version stored with invisible characters is found without them', async () => {
  await school.insert('subject', { name: 'Geo\u00adgraphy\u200b of As\u2060ia', code: 'GEO' });
  expect(await found('/api/subjects', 'geography asia')).toEqual(['Geo\u00adgraphy\u200b of As\u2060ia']);
});
