import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Subject as SubjectSchema } from '../../src/endpoints/subjects.ts';

const { service, school } = await serviceWithSchool();

type Subject = OutputOf<typeof SubjectSchema>;

interface TemplateItem {
  subject_id: number;
  subject_name: string;
  subject_code: string;
  periods_per_week: number;
}

async function add(fields: Record<string, unknown> = {}, at = school): Promise<Subject> {
  return (await at.admin.post<Subject>('/api/subjects', { name: 'Subject', code: unique('CODE'), ...fields }, 201))
    .data;
}
const read = async (id: number) => (await school.admin.get<Subject>(`/api/subjects/${id}`)).data;
const addContext = async (name = unique('Context'), at = school) =>
  (await at.admin.post<{ id: number; name: string }>('/api/subject-contexts', { name }, 201)).data;
const addGrade = async () =>
  (await school.admin.post<{ id: number }>('/api/grades', { name: unique('Grade') }, 201)).data.id;

/** A user whose role has these permissions. */
const userWith = async (...permissions: string[]) => school.user([await school.role(...permissions)]);

describe('subjects', () => {
  test('a subject is created, returned with the fields that were sent, updated in part, and deleted', async () => {
    const context = await addContext();
    const sent = { name: 'Mathematics', code: unique('MATH'), subject_context_id: context.id, description: 'Numbers' };
    const added = await school.admin.post<Subject>('/api/subjects', sent, 201);
    expect(added.headers.get('location')).toBe(`/api/subjects/${added.data.id}`);
    expect(await read(added.data.id)).toEqual({ ...added.data, ...sent, subject_context_name: context.name });
    const { data: changed } = await school.admin.put<Subject>(`/api/subjects/${added.data.id}`, {
      name: 'Algebra',
      subject_context_id: null,
    });
    expect(changed).toEqual({
      ...added.data,
      name: 'Algebra',
      subject_context_id: null,
      subject_context_name: null,
      updated_at: changed.updated_at,
    });
    expect(await read(added.data.id)).toEqual(changed);
    expect((await school.admin.delete<{ id: number }>(`/api/subjects/${added.data.id}`)).data).toEqual({
      id: added.data.id,
    });
    await school.admin.get(`/api/subjects/${added.data.id}`, 404);
  });

  test('two subjects may share a name', async () => {
    const [one, two] = [await add({ name: 'Science' }), await add({ name: 'Science' })];
    expect(one.id).not.toBe(two.id);
  });

  test('a subject of a class cannot be deleted (409 in_use) until the class no longer has it', async () => {
    const subject = await add();
    const { classId } = await school.classroom(unique('Class'));
    const { data } = await school.admin.post<{ id: number }>(
      '/api/class-subjects',
      { class_id: classId, subject_id: subject.id, periods_per_week: 3 },
      201,
    );
    expect(await school.admin.delete(`/api/subjects/${subject.id}`, 409)).toMatchObject({
      error: 'in_use',
      message: 'This is still used by a class subject.',
    });
    await school.admin.delete(`/api/class-subjects/${data.id}`);
    await school.admin.delete(`/api/subjects/${subject.id}`);
  });

  test('a subject in a timetable cannot be deleted (409 in_use)', async () => {
    const subject = await add();
    const { classId, yearId } = await school.classroom(unique('Class'));
    await service.database.query(
      `insert into ${school.schema}.timetable_slot (class_id, academic_year_id, subject_id, day_of_week, period) values ($1, $2, $3, 1, 1)`,
      [classId, yearId, subject.id],
    );
    expect(await school.admin.delete(`/api/subjects/${subject.id}`, 409)).toMatchObject({
      error: 'in_use',
      message: 'This is still used by a timetable slot.',
    });
  });

  test('deleting a subject removes it from the templates of grades', async () => {
    const [gone, stays, grade] = [await add(), await add(), await addGrade()];
    await school.admin.put(`/api/grades/${grade}/subjects`, [{ subject_id: gone.id }, { subject_id: stays.id }]);
    await school.admin.delete(`/api/subjects/${gone.id}`);
    expect(
      (await school.admin.get<TemplateItem[]>(`/api/grades/${grade}/subjects`)).data.map(
        ({ subject_id }) => subject_id,
      ),
    ).toEqual([stays.id]);
  });

  test('each action requires its own permission', async () => {
    const subject = await add();
    const path = `/api/subjects/${subject.id}`;
    const tries: [string, (client: Client, status: number) => Promise<unknown>][] = [
      ['subject.read', (client, status) => client.get('/api/subjects', status)],
      ['subject.read', (client, status) => client.get(path, status)],
      [
        'subject.create',
        (client, status) =>
          client.post('/api/subjects', { name: 'P', code: unique('P') }, status === 200 ? 201 : status),
      ],
      ['subject.update', (client, status) => client.put(path, { description: 'P' }, status)],
      ['subject.delete', (client, status) => client.delete(path, status)],
    ];
    for (const permission of new Set(tries.map(([needed]) => needed))) {
      const user = await userWith(permission);
      for (const [needed, attempt] of tries) await attempt(user, needed === permission ? 200 : 403);
    }
    const [teacher, student] = [await school.user(['teacher']), await school.user(['student'])];
    await teacher.get('/api/subjects');
    await teacher.post('/api/subjects', { name: 'T', code: unique('T') }, 403);
    await student.get('/api/subjects', 403);
  });
});

describe('the list', () => {
  let lists: School;
  let context: { id: number };

  beforeAll(async () => {
    lists = await service.school();
    context = await addContext('Core', lists);
    const subjects = [
      ['Économie', 'c3', null],
      ['economics', 'B2', context.id],
      ['Zoology', 'a1', context.id],
      ['Álgebra', 'D_4', null],
      ['Zoology', 'E5', null],
    ] as const;
    for (const [name, code, subject_context_id] of subjects)
      await add({ name, code, subject_context_id, description: 'Undescribed' }, lists);
    await service.database.query(
      `update ${lists.schema}.subject set created_at = timestamptz '2026-01-01Z' + (id % 2) * interval '1 day'`,
    );
  });

  const found = async (query: string) =>
    (await lists.admin.get<Subject[]>(`/api/subjects?${query}`)).data.map(({ code }) => code);

  test('is sorted by name by default, ignoring case and accents', async () => {
    expect(await found('')).toEqual(['D_4', 'B2', 'c3', 'a1', 'E5']);
    expect((await lists.admin.get('/api/subjects?pageSize=2&page=2')).pagination).toEqual({
      page: 2,
      pageSize: 2,
      totalItems: 5,
      totalPages: 3,
    });
  });

  test('searches only name and code', async () => {
    expect(await found('search=ECONOM')).toEqual(['B2', 'c3']);
    expect(await found('search=algébra')).toEqual(['D_4']);
    expect(await found('search=A1')).toEqual(['a1']);
    expect(await found('search=d_4 alg')).toEqual(['D_4']);
    expect(await found('search=undescribed')).toEqual([]);
    expect(await found('search=core')).toEqual([]);
  });

  test('filters by subject_context_id, also combined with search', async () => {
    expect(await found(`subject_context_id=${context.id}`)).toEqual(['B2', 'a1']);
    expect(await found(`subject_context_id=${context.id}&search=zoo`)).toEqual(['a1']);
    expect(await found('subject_context_id=999999')).toEqual([]);
    expect((await lists.admin.get('/api/subjects?subject_context_id=core', 400)).details).toMatchObject([
      { path: 'subject_context_id' },
    ]);
    expect((await lists.admin.get('/api/subjects?sort=text', 400)).details).toMatchObject([{ path: 'sort' }]);
  });
});

describe('the subject template of a grade', () => {
  const get = async (grade: number) => (await school.admin.get<TemplateItem[]>(`/api/grades/${grade}/subjects`)).data;
  const put = (grade: number, items: unknown, status = 200) =>
    school.admin.put<TemplateItem[]>(`/api/grades/${grade}/subjects`, items, status);

  test('is empty at first, and is replaced by each PUT; its subjects are sorted by name', async () => {
    const grade = await addGrade();
    const [math, art, music] = [
      await add({ name: 'Éx Math' }),
      await add({ name: 'ex art' }),
      await add({ name: 'Ex Music' }),
    ];
    expect(await get(grade)).toEqual([]);
    const { data } = await put(grade, [{ subject_id: math.id }, { subject_id: art.id, periods_per_week: 2 }]);
    expect(data).toEqual([
      { subject_id: art.id, subject_name: 'ex art', subject_code: art.code, periods_per_week: 2 },
      { subject_id: math.id, subject_name: 'Éx Math', subject_code: math.code, periods_per_week: 5 },
    ]);
    expect(await get(grade)).toEqual(data);
    await put(grade, [
      { subject_id: music.id, periods_per_week: 1 },
      { subject_id: math.id, periods_per_week: 7 },
    ]);
    expect((await get(grade)).map(({ subject_id, periods_per_week }) => [subject_id, periods_per_week])).toEqual([
      [math.id, 7],
      [music.id, 1],
    ]);
    expect((await put(grade, [])).data).toEqual([]);
  });

  test('does not affect other grades or the subjects of existing classes', async () => {
    const { classId, gradeId } = await school.classroom(unique('Class'));
    const [other, subject] = [await addGrade(), await add()];
    await school.admin.post(
      '/api/class-subjects',
      { class_id: classId, subject_id: subject.id, periods_per_week: 3 },
      201,
    );
    await put(other, [{ subject_id: subject.id }]);
    await put(gradeId, [{ subject_id: subject.id, periods_per_week: 9 }]);
    await put(gradeId, []);
    expect(await get(other)).toHaveLength(1);
    const { data } = await school.admin.get<{ periods_per_week: number }[]>(`/api/class-subjects?class_id=${classId}`);
    expect(data.map(({ periods_per_week }) => periods_per_week)).toEqual([3]);
  });

  test('accepts a template that was read, also with names and codes that have changed since', async () => {
    const [grade, one, two] = [await addGrade(), await add({ name: 'One' }), await add({ name: 'Two' })];
    const { data } = await put(grade, [{ subject_id: one.id, periods_per_week: 4 }, { subject_id: two.id }]);
    expect((await put(grade, data)).data).toEqual(data);
    const stale = [data[0], { ...data[1], subject_name: 'Other', subject_code: 'O' }];
    expect((await put(grade, stale)).data).toEqual(data);
  });

  test('is unchanged by invalid items, a 400 that names the field, and by an unknown subject, a 422', async () => {
    const [grade, subject] = [await addGrade(), await add()];
    const { data } = await put(grade, [{ subject_id: subject.id }]);
    const paths = async (items: unknown) => (await put(grade, items, 400)).details.map(({ path }) => path);
    expect(await paths([{ subject_id: subject.id }, { subject_id: 'x', periods_per_week: 0, colour: 'red' }])).toEqual([
      '1.subject_id',
      '1.periods_per_week',
      '1.colour',
    ]);
    expect(await paths([{ subject_id: subject.id, periods_per_week: 61 }])).toEqual(['0.periods_per_week']);
    expect(await paths([{ subject_id: subject.id }, { subject_id: subject.id }])).toEqual(['1.subject_id']);
    await put(grade, { subject_id: subject.id }, 400);
    expect(await put(grade, [{ subject_id: subject.id }, { subject_id: 999_999 }], 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: '1.subject_id', message: 'There is no subject 999999.' }],
    });
    expect(await get(grade)).toEqual(data);
  });

  test('is one of the two templates, never a mix, after two concurrent requests', async () => {
    const grade = await addGrade();
    const subjects = [await add(), await add(), await add(), await add()].map(({ id }) => id);
    const halves = [subjects.slice(0, 3), subjects.slice(1)];
    await Promise.all(
      halves.map((half) =>
        put(
          grade,
          half.map((subject_id) => ({ subject_id })),
        ),
      ),
    );
    expect(halves).toContainEqual((await get(grade)).map(({ subject_id }) => subject_id).sort((a, b) => a - b));
  });

  test('is deleted with its grade, but its subjects are not', async () => {
    const [grade, subject] = [await addGrade(), await add()];
    await put(grade, [{ subject_id: subject.id }]);
    await school.admin.delete(`/api/grades/${grade}`);
    expect(await read(subject.id)).toEqual(subject);
  });

  test('requires subject.read for reading and subject.update for replacing', async () => {
    const grade = await addGrade();
    const [reader, writer, teacher] = [
      await userWith('subject.read'),
      await userWith('subject.update', 'master_data.manage'),
      await school.user(['teacher']),
    ];
    for (const client of [reader, teacher]) {
      await client.get(`/api/grades/${grade}/subjects`);
      await client.put(`/api/grades/${grade}/subjects`, [], 403);
    }
    await writer.put(`/api/grades/${grade}/subjects`, []);
    await writer.get(`/api/grades/${grade}/subjects`, 403);
  });
});
