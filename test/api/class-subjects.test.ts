import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { walk } from '../support/client/pages.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { ClassSubject as ClassSubjectSchema } from '../../src/endpoints/class-subjects.ts';

const { service, school } = await serviceWithSchool();

type ClassSubject = OutputOf<typeof ClassSubjectSchema>;

const path = '/api/class-subjects';

const addTeacher = (fields: Record<string, unknown> = {}, at = school) =>
  at.insert('teacher', { first_name: 'Tia', last_name: 'Teacher', ...fields });
const addSubject = async (fields: Record<string, unknown> = {}, at = school) =>
  (
    await at.admin.post<{ id: number; code: string }>(
      '/api/subjects',
      { name: 'Subject', code: unique('CODE'), ...fields },
      201,
    )
  ).data;

async function add(fields: Record<string, unknown> = {}, at = school): Promise<ClassSubject> {
  const class_id = fields['class_id'] ?? (await at.classroom(unique('Class'))).classId;
  const subject_id = fields['subject_id'] ?? (await addSubject({}, at)).id;
  return (await at.admin.post<ClassSubject>(path, { periods_per_week: 5, ...fields, class_id, subject_id }, 201)).data;
}
const read = async (id: number) => (await school.admin.get<ClassSubject>(`${path}/${id}`)).data;

describe('class subjects', () => {
  test('a class subject is created, returned with the names of its references, updated in part, and deleted', async () => {
    const { classId, gradeId, yearId } = await school.classroom(unique('Class'));
    const class_id = await school.insert('class', {
      name: 'Year 5',
      section: 'B',
      grade_id: gradeId,
      academic_year_id: yearId,
    });
    const subject = await addSubject({ name: 'History' });
    const teacher_id = await addTeacher({ first_name: 'Noor', last_name: 'Haddad' });
    const sent = { class_id, subject_id: subject.id, periods_per_week: 4, teacher_id };
    const added = await school.admin.post<ClassSubject>(path, sent, 201);
    expect(added.headers.get('location')).toBe(`${path}/${added.data.id}`);
    expect(await read(added.data.id)).toEqual({
      ...added.data,
      ...sent,
      class_name: 'Year 5 B',
      academic_year_id: yearId,
      subject_name: 'History',
      subject_code: subject.code,
      teacher_name: 'Noor Haddad',
    });
    const { data: changed } = await school.admin.put<ClassSubject>(`${path}/${added.data.id}`, { periods_per_week: 6 });
    expect(changed).toEqual({ ...added.data, periods_per_week: 6, updated_at: changed.updated_at });
    const { data: untaught } = await school.admin.put<ClassSubject>(`${path}/${added.data.id}`, { teacher_id: null });
    expect(untaught).toMatchObject({ periods_per_week: 6, teacher_id: null, teacher_name: null });
    expect((await school.admin.delete<{ id: number }>(`${path}/${added.data.id}`)).data).toEqual({ id: added.data.id });
    await school.admin.get(`${path}/${added.data.id}`, 404);
    // The class, the subject and the other class still exist.
    expect((await school.admin.get<{ name: string }>(`/api/subjects/${subject.id}`)).data.name).toBe('History');
    await add({ class_id: classId, subject_id: subject.id });
    await add({ class_id, subject_id: subject.id });
  });

  test('a class cannot have a subject twice (409), even if two requests add it concurrently', async () => {
    const { class_id, subject_id } = await add();
    expect(await school.admin.post(path, { class_id, subject_id, periods_per_week: 1 }, 409)).toMatchObject({
      error: 'conflict',
      message: 'The class already has this subject.',
      details: [{ path: 'subject_id' }],
    });
    const body = { class_id, subject_id: (await addSubject()).id, periods_per_week: 5 };
    const answers = await Promise.all([1, 2].map(() => school.admin.send('POST', path, { body })));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
    expect((await school.admin.get(`${path}?class_id=${class_id}`)).pagination.totalItems).toBe(2);
  });

  test('a create repeated with the same Idempotency-Key creates one class subject', async () => {
    const body = {
      class_id: (await school.classroom(unique('Class'))).classId,
      subject_id: (await addSubject()).id,
      periods_per_week: 5,
    };
    const send = () =>
      school.admin.send<ClassSubject>(
        'POST',
        path,
        { body, headers: { 'Idempotency-Key': 'class-subject-twice' } },
        201,
      );
    expect((await send()).data).toEqual((await send()).data);
  });

  test('a teacher must be active when assigned, but one who becomes inactive later is kept', async () => {
    const [active, inactive, deleted] = [
      await addTeacher(),
      await addTeacher({ is_active: false }),
      await addTeacher({ deleted_at: new Date() }),
    ];
    const classSubject = await add({ teacher_id: active });
    const body = { class_id: classSubject.class_id, subject_id: (await addSubject()).id, periods_per_week: 5 };
    for (const teacher_id of [inactive, deleted]) {
      const refusal = {
        error: 'invalid_reference',
        details: [{ path: 'teacher_id', message: `There is no active teacher ${teacher_id}.` }],
      };
      expect(await school.admin.post(path, { ...body, teacher_id }, 422)).toMatchObject(refusal);
      expect(
        await school.admin.put(`${path}/${classSubject.id}`, { periods_per_week: 1, teacher_id }, 422),
      ).toMatchObject(refusal);
    }
    expect(await read(classSubject.id)).toEqual(classSubject);
    await service.database.query(`update ${school.schema}.teacher set is_active = false where id = $1`, [active]);
    const { data } = await school.admin.put<ClassSubject>(`${path}/${classSubject.id}`, {
      ...classSubject,
      periods_per_week: 2,
    });
    expect(data).toMatchObject({ teacher_id: active, periods_per_week: 2 });
    await school.admin.put(`${path}/${classSubject.id}`, { teacher_id: await addTeacher() });
    await school.admin.put(`${path}/${classSubject.id}`, { teacher_id: active }, 422);
  });
});

describe('the list', () => {
  let lists: School;
  let all: ClassSubject[];
  let teacherId: number;
  let yearId: number;
  let before: { year: number; class: number };

  beforeAll(async () => {
    lists = await service.school();
    teacherId = await addTeacher({ first_name: 'Zoë', last_name: 'Quixote' }, lists);
    const [beta, alpha] = [await lists.classroom('Béta'), await lists.classroom('alpha')];
    yearId = beta.yearId;
    const year = await lists.insert('academic_year', {
      name: 'Before',
      start_date: '1990-01-01',
      end_date: '1990-12-31',
    });
    before = {
      year,
      class: await lists.insert('class', {
        name: 'Béta',
        section: 'Old',
        grade_id: beta.gradeId,
        academic_year_id: year,
      }),
    };
    const subjects = [];
    for (const name of ['Écology', 'drama', 'Zoology'])
      subjects.push(await addSubject({ name, code: `${name.slice(-6)}1` }, lists));
    for (const [n, { id: subject_id }] of subjects.entries()) {
      for (const class_id of [beta.classId, alpha.classId, before.class]) {
        await add(
          { class_id, subject_id, periods_per_week: 1 + (n % 2), teacher_id: n === 2 ? teacherId : null },
          lists,
        );
      }
    }
    all = await walk<ClassSubject>(lists.admin, path, 100);
  });

  const found = async (query: string) => (await lists.admin.get<ClassSubject[]>(`${path}?pageSize=100&${query}`)).data;

  test('is sorted by class and subject by default, ignoring case and accents', () => {
    expect(all.map(({ class_name, subject_name }) => `${class_name}: ${subject_name}`)).toEqual(
      ['alpha', 'Béta', 'Béta Old'].flatMap((one) =>
        ['drama', 'Écology', 'Zoology'].map((subject) => `${one}: ${subject}`),
      ),
    );
  });

  test('filters by class_id, academic_year_id, subject_id and teacher_id, also combined', async () => {
    const [first] = all;
    if (!first) throw new Error('the list is empty');
    const filters: [string, (one: ClassSubject) => boolean, number][] = [
      [`class_id=${first.class_id}`, (one) => one.class_id === first.class_id, 3],
      [`academic_year_id=${yearId}`, (one) => one.academic_year_id === yearId, 6],
      [`subject_id=${first.subject_id}`, (one) => one.subject_id === first.subject_id, 3],
      [`teacher_id=${teacherId}`, (one) => one.teacher_id === teacherId, 3],
      [
        `teacher_id=${teacherId}&academic_year_id=${before.year}`,
        (one) => one.teacher_id === teacherId && one.academic_year_id === before.year,
        1,
      ],
      [`class_id=${before.class}&academic_year_id=${yearId}`, () => false, 0],
    ];
    for (const [query, fits, count] of filters) {
      const some = await found(query);
      expect([query, some]).toEqual([query, all.filter(fits)]);
      expect(some).toHaveLength(count);
    }
  });

  test('searches class, subject and teacher', async () => {
    const search = async (words: string) =>
      (await found(`search=${words}`)).map(({ class_name, subject_name }) => `${class_name}: ${subject_name}`);
    expect(await search('ALPHA eco')).toEqual(['alpha: Écology']);
    expect(await search('beta old')).toEqual(['Béta Old: drama', 'Béta Old: Écology', 'Béta Old: Zoology']);
    expect(await search('zoe quix alpha')).toEqual(['alpha: Zoology']);
    expect(await search('drama1')).toHaveLength(3);
  });
});

describe('permissions', () => {
  /** A user with these roles, their teacher record, and a class subject that they teach. */
  async function teachingUser(roles: string[]): Promise<{ client: Client; teacherId: number; taught: ClassSubject }> {
    const client = await school.user(roles);
    const teacherId = await addTeacher({ user_id: client.id });
    return { client, teacherId, taught: await add({ teacher_id: teacherId }) };
  }

  test('a teacher sees all subjects of the classes that they teach, and of no other class', async () => {
    const { client, taught } = await teachingUser(['teacher']);
    const [sameClass, other] = [await add({ class_id: taught.class_id }), await add()];
    const { data, pagination } = await client.get<ClassSubject[]>(path);
    expect(data.map(({ id }) => id).sort((a, b) => a - b)).toEqual([taught.id, sameClass.id]);
    expect(pagination.totalItems).toBe(2);
    expect((await client.get<ClassSubject>(`${path}/${sameClass.id}`)).data).toEqual(sameClass);
    expect((await client.get(`${path}/${other.id}`, 404)).message).toBe(`There is no class subject ${other.id}.`);
    expect((await client.get<ClassSubject[]>(`${path}?class_id=${other.class_id}`)).data).toEqual([]);
    await client.put(`${path}/${taught.id}`, { periods_per_week: 1 }, 403);
    await client.delete(`${path}/${taught.id}`, 403);
  });

  test('a teacher whose role has class.update can change the subjects of the classes that they teach, and of no other class', async () => {
    const own = await service.school();
    const { data: roles } =
      await own.admin.get<{ id: number; name: string; permission_ids: number[] }[]>('/api/rbac/roles');
    const { data: permissions } = await own.admin.get<{ id: number; name: string }[]>('/api/rbac/permissions');
    const role = roles.find(({ name }) => name === 'teacher');
    const permission = permissions.find(({ name }) => name === 'class.update')?.id ?? 0;
    await own.admin.put(`/api/rbac/roles/${role?.id ?? 0}`, {
      permission_ids: [...(role?.permission_ids ?? []), permission],
    });
    const client = await own.user(['teacher']);
    const [taught, other] = [
      await add({ teacher_id: await addTeacher({ user_id: client.id }, own) }, own),
      await add({}, own),
    ];
    const subject_id = (await addSubject({}, own)).id;

    expect(
      (await client.put<ClassSubject>(`${path}/${taught.id}`, { periods_per_week: 9 })).data.periods_per_week,
    ).toBe(9);
    const { data: added } = await client.post<ClassSubject>(
      path,
      { class_id: taught.class_id, subject_id, periods_per_week: 1 },
      201,
    );
    await client.delete(`${path}/${added.id}`);
    await client.put(`${path}/${other.id}`, { periods_per_week: 9 }, 404);
    await client.delete(`${path}/${other.id}`, 404);
    const refused = await client.post(path, { class_id: other.class_id, subject_id, periods_per_week: 1 }, 422);
    expect(refused).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'class_id', message: `There is no class ${other.class_id}.` }],
    });
    expect((await own.admin.get<ClassSubject>(`${path}/${other.id}`)).data).toEqual(other);
  });

  test('class.read allows reading and class.update writing; a student can do neither', async () => {
    const userWith = async (permission: string) => school.user([await school.role(permission)]);
    const [reader, writer, student] = [
      await userWith('class.read'),
      await userWith('class.update'),
      await school.user(['student']),
    ];
    const { id, class_id } = await add();
    const body = { class_id, subject_id: (await addSubject()).id, periods_per_week: 1 };
    expect((await reader.get<ClassSubject>(`${path}/${id}`)).data.class_id).toBe(class_id);
    for (const client of [reader, student]) {
      await client.post(path, body, 403);
      await client.put(`${path}/${id}`, { periods_per_week: 1 }, 403);
      await client.delete(`${path}/${id}`, 403);
    }
    for (const user of [writer, student]) {
      await user.get(path, 403);
      await user.get(`${path}/${id}`, 403);
    }
    await writer.post(path, body, 201);
    await writer.put(`${path}/${id}`, { periods_per_week: 1 });
    await writer.delete(`${path}/${id}`);
  });
});
