import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
let manager: Client;
let userWithoutRole: Client;
let teacher: Client;
let student: Client;

beforeAll(async () => {
  manager = await school.user([await school.role('master_data.manage')]);
  userWithoutRole = await school.user([]);
  teacher = await school.user(['teacher']);
  student = await school.user(['student']);
});

interface Entry {
  id: number;
  name: string;
  sequence: number | null;
  description: string | null;
  created_at: string;
  updated_at: string;
}

/** Creates a class; `fields` may refer to an entry. */
const addClass = async (fields: Record<string, unknown> = {}) => {
  const { classId, gradeId, yearId } = await school.classroom(unique('Class'));
  return school.insert('class', {
    name: unique('Other'),
    grade_id: gradeId,
    academic_year_id: yearId,
    room: `beside ${classId}`,
    ...fields,
  });
};
const addStudent = (fields: Record<string, unknown> = {}) =>
  school.insert('student', { admission_number: unique('N'), first_name: 'S', last_name: 'T', ...fields });

/** Path, table, and the kinds of records that can refer to an entry, as the in_use message names them. */
const lists: [string, string, Record<string, (id: number) => Promise<number>>][] = [
  [
    '/api/grades',
    'grade',
    { class: (grade_id) => addClass({ grade_id }), student: (grade_id) => addStudent({ grade_id }) },
  ],
  [
    '/api/school-units',
    'school_unit',
    {
      class: (school_unit_id) => addClass({ school_unit_id }),
      room: (school_unit_id) => school.insert('room', { name: unique('Room'), school_unit_id }),
    },
  ],
  ['/api/programmes', 'programme', { class: (programme_id) => addClass({ programme_id }) }],
  ['/api/mediums', 'medium', { class: (medium_id) => addClass({ medium_id }) }],
  ['/api/religions', 'religion', { student: (religion_id) => addStudent({ religion_id }) }],
  [
    '/api/subject-contexts',
    'subject_context',
    { subject: (subject_context_id) => school.insert('subject', { name: 'S', code: unique('C'), subject_context_id }) },
  ],
  [
    '/api/document-types',
    'document_type',
    {
      'student document': async (document_type_id) =>
        school.insert('student_document', {
          document_type_id,
          student_id: await addStudent(),
          file_id: await school.insert('file', { content: Buffer.from('x'), content_type: 'text/plain' }),
        }),
    },
  ],
];

describe.each(lists)('%s', (path, table, users) => {
  const add = async (fields: Record<string, unknown> = {}) =>
    (await school.admin.post<Entry>(path, { name: unique('Entry'), ...fields }, 201)).data;
  const read = async (id: number) => (await school.admin.get<Entry>(`${path}/${id}`)).data;
  const found = async (query: string) => (await school.admin.get<Entry[]>(`${path}?pageSize=100&${query}`)).data;
  const names = (entries: Entry[]) => entries.map(({ name }) => name);

  test('an entry is created, returned with the fields that were sent, updated in part, and deleted', async () => {
    const sent = { name: unique('Whole'), sequence: 7, description: 'What it is' };
    const added = await school.admin.post<Entry>(path, sent, 201);
    expect(added.headers.get('location')).toBe(`${path}/${added.data.id}`);
    expect(await read(added.data.id)).toEqual({ ...added.data, ...sent });
    const { data: changed } = await school.admin.put<Entry>(`${path}/${added.data.id}`, {
      sequence: -2,
      description: null,
    });
    expect(changed).toEqual({ ...added.data, sequence: -2, description: null, updated_at: changed.updated_at });
    expect(await read(added.data.id)).toEqual(changed);
    expect((await school.admin.delete<{ id: number }>(`${path}/${added.data.id}`)).data).toEqual({ id: added.data.id });
    expect((await school.admin.get(`${path}/${added.data.id}`, 404)).error).toBe('not_found');
    expect(names(await found(`search=${encodeURIComponent(sent.name)}`))).toEqual([]);
  });

  test('every user of the school can read it; writing requires master_data.manage', async () => {
    const entry = await add();
    for (const client of [userWithoutRole, teacher, student, manager]) {
      expect((await client.get<Entry>(`${path}/${entry.id}`)).data).toEqual(entry);
      expect((await client.get<Entry[]>(`${path}?search=${encodeURIComponent(entry.name)}`)).data).toEqual([entry]);
    }
    for (const user of [userWithoutRole, teacher, student]) {
      await user.post(path, { name: unique('No') }, 403);
      await user.put(`${path}/${entry.id}`, { sequence: 9 }, 403);
      expect(await user.delete(`${path}/${entry.id}`, 403)).toMatchObject({
        error: 'forbidden',
        message: 'This needs the permission master_data.manage.',
      });
    }
    expect(await read(entry.id)).toEqual(entry);
    const { data } = await manager.post<Entry>(path, { name: unique('Managed') }, 201);
    expect((await manager.put<Entry>(`${path}/${data.id}`, { sequence: 9 })).data.sequence).toBe(9);
    await manager.delete(`${path}/${data.id}`);
  });

  test.each(Object.keys(users))('an entry that a %s refers to cannot be deleted (409 in_use)', async (user) => {
    const entry = await add();
    await users[user]?.(entry.id);
    expect(await school.admin.delete(`${path}/${entry.id}`, 409)).toMatchObject({
      error: 'in_use',
      message: `This is still used by a ${user}.`,
    });
    expect(await read(entry.id)).toEqual(entry);
  });

  test('no other table refers to it, apart from the subject template of a grade', async () => {
    const referring = await school.database.query<{ name: string }>(
      `select distinct conrelid::regclass::text as name from pg_constraint where confrelid = $1::regclass and contype = 'f' and confdeltype <> 'c'`,
      [`${school.schema}.${table}`],
    );
    expect(referring.map(({ name }) => name.replace(`${school.schema}.`, '').replaceAll('_', ' ')).sort()).toEqual(
      Object.keys(users).sort(),
    );
  });

  describe('the list', () => {
    beforeAll(async () => {
      for (const [name, sequence] of [
        ['Öland', 3],
        ['zebra', 3],
        ['Oslo', 3],
        ['Älv', null],
        ['alpha', null],
        ['Beta', 1],
      ] as const) {
        await add({ name, sequence, description: `List of ${name === 'Beta' ? 'ÉCLAIRS' : 'names'}` });
      }
      await service.database.query(
        `update ${school.schema}.${table} set created_at = timestamptz '2026-01-01Z' + (id % 3) * interval '1 day'`,
      );
    });

    test('is sorted by sequence, entries without a sequence last, then by name, ignoring case and accents', async () => {
      expect(names(await found('search=list of'))).toEqual(['Beta', 'Öland', 'Oslo', 'zebra', 'alpha', 'Älv']);
      expect(names(await found('search=list of&sort=sequence&order=desc'))).toEqual([
        'zebra',
        'Oslo',
        'Öland',
        'Beta',
        'Älv',
        'alpha',
      ]);
    });

    test('searches name and description, ignoring case and accents', async () => {
      expect(names(await found('search=OLAND'))).toEqual(['Öland']);
      expect(names(await found('search=eclair'))).toEqual(['Beta']);
      expect(names(await found('search=álv list'))).toEqual(['Älv']);
      expect(await found('search=100%25')).toEqual([]);
    });
  });
});

test.each([
  ['/api/grades', 'grade_id'],
  ['/api/religions', 'religion_id'],
])('an entry of %s that deleted students have cannot be deleted, and the message says so', async (path, column) => {
  const { data: entry } = await school.admin.post<Entry>(path, { name: unique('Entry') }, 201);
  const deleted = await addStudent({ [column]: entry.id });
  const present = await addStudent({ [column]: entry.id });
  await school.admin.delete(`/api/students/${deleted}`);
  expect((await school.admin.delete(`${path}/${entry.id}`, 409)).message).toBe('This is still used by a student.');
  await school.admin.delete(`/api/students/${present}`);
  expect(await school.admin.delete(`${path}/${entry.id}`, 409)).toMatchObject({
    error: 'in_use',
    message:
      'This is still used by a deleted student. Deleted records stay stored together with everything that they refer to.',
  });
});

test('a document type that only documents of deleted students have cannot be deleted, and the message says so', async () => {
  const { data: entry } = await school.admin.post<Entry>('/api/document-types', { name: unique('Entry') }, 201);
  const student_id = await addStudent();
  await school.insert('student_document', {
    document_type_id: entry.id,
    student_id,
    file_id: await school.insert('file', { content: Buffer.from('x'), content_type: 'text/plain' }),
  });
  await school.admin.delete(`/api/students/${student_id}`);
  expect((await school.admin.delete(`/api/document-types/${entry.id}`, 409)).message).toMatch(
    /^This is still used by a deleted student document\. /,
  );
});

test('a new school has the default document types in order', async () => {
  const fresh = await service.school();
  const { data } = await fresh.admin.get<Entry[]>('/api/document-types');
  expect(data.map(({ name, sequence }) => [sequence, name])).toEqual([
    [1, 'Birth certificate'],
    [2, 'Transfer certificate'],
    [3, 'Report card'],
    [4, 'Identity document'],
    [5, 'Medical record'],
    [6, 'Other'],
  ]);
});
