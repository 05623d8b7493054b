import { beforeAll, describe, expect, test } from '@jest/globals';
import { ids, inOrder, plain, walk } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { until } from '../support/client/until.ts';
import { type Class, classHelpers, type ClassTeacher, makeYears, type Student } from '../support/fixtures/classes.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { years, gradeId, newGrade, newTeacher, newSubject, add, read, addStudent, studentsOf, statuses, teacherUser } =
  await classHelpers(service, school);

describe('classes', () => {
  test('a created class is returned with the fields that were sent and the names of its references', async () => {
    const sent = {
      name: unique('Read back'),
      section: 'B',
      grade_id: gradeId,
      academic_year_id: years.now,
      class_teacher_id: await newTeacher({ first_name: 'Ada', last_name: 'Adams' }),
      capacity: 30,
      room: 'R12',
      school_unit_id: await school.insert('school_unit', { name: 'Primary' }),
      programme_id: await school.insert('programme', { name: 'Science' }),
      medium_id: await school.insert('medium', { name: 'English' }),
    };
    const added = await school.admin.post<Class>('/api/classes', sent, 201);
    expect(added.headers.get('location')).toBe(`/api/classes/${added.data.id}`);
    const { data } = await school.admin.get<Class>(`/api/classes/${added.data.id}`);
    expect(data).toEqual({
      ...sent,
      id: added.data.id,
      home_room_id: null,
      grade_name: 'Grade 5',
      academic_year_name: 'Now',
      is_current_year: true,
      class_teacher_name: 'Ada Adams',
      school_unit_name: 'Primary',
      programme_name: 'Science',
      medium_name: 'English',
      class_name: `${sent.name} ${sent.section}`,
      student_count: 0,
      subject_count: 0,
      created_at: data.created_at,
      updated_at: data.updated_at,
    });
    expect(added.data).toEqual(data);
  });

  test('text is trimmed, and an empty section or room is stored as null', async () => {
    const name = unique('Trimmed');
    expect(await add({ name: `  ${name} `, section: ' ', room: '' })).toMatchObject({
      name,
      section: null,
      room: null,
    });
  });

  test('name and section together are unique within the academic year, ignoring case', async () => {
    const name = unique('Once');
    await add({ name, section: 'A' });
    await add({ name });
    const base = { grade_id: gradeId, academic_year_id: years.now };
    for (const same of [{ name: name.toUpperCase(), section: 'a' }, { name }]) {
      expect(await school.admin.post('/api/classes', { ...base, ...same }, 409)).toMatchObject({
        error: 'conflict',
        details: [{ path: 'name' }],
      });
    }
    const other = await add({ name, section: 'B' });
    await add({ name, section: 'A', academic_year_id: years.past });
    expect((await school.admin.put(`/api/classes/${other.id}`, { section: 'A' }, 409)).error).toBe('conflict');
    expect((await read(other.id)).section).toBe('B');
  });

  test('creating and deleting a class changes total_classes in the platform statistics of the school', async () => {
    const total = async () =>
      (await service.operator.get<{ stats: { total_classes: number } }>(`/api/platform/tenants/${school.id}`)).data
        .stats.total_classes;
    // With several servers the number arrives from the server of the school a moment later.
    const becomes = (number: number) => until(async () => (await total()) === number || undefined);
    const before = (await school.admin.get('/api/classes')).pagination.totalItems;
    await becomes(before);
    const { id } = await add();
    await becomes(before + 1);
    await school.admin.delete(`/api/classes/${id}`);
    await becomes(before);
  });
});

describe('updating a class', () => {
  test('accepts null for optional fields', async () => {
    const full = {
      section: 'D',
      capacity: 20,
      room: 'R1',
      class_teacher_id: await newTeacher(),
      school_unit_id: await school.insert('school_unit', { name: unique('Unit') }),
      programme_id: await school.insert('programme', { name: unique('Programme') }),
      medium_id: await school.insert('medium', { name: unique('Medium') }),
    };
    const known = await add(full);
    const nulls = Object.fromEntries(Object.keys(full).map((key) => [key, null]));
    expect((await school.admin.put<Class>(`/api/classes/${known.id}`, nulls)).data).toMatchObject(nulls);
  });

  test('accepts the whole record, even if its student count and the name of its grade have changed since', async () => {
    const known = await add({ class_teacher_id: await newTeacher() });
    await addStudent({ class_id: known.id });
    const sent = { ...known, room: 'R9', grade_name: 'An earlier name' };
    const { data } = await school.admin.put<Class>(`/api/classes/${known.id}`, sent);
    expect(data).toEqual({ ...known, room: 'R9', student_count: 1, updated_at: data.updated_at });
  });

  test('is a 412 if If-Match is stale; a changed student count does not make it stale', async () => {
    const known = await add();
    const path = `/api/classes/${known.id}`;
    const etag = (await school.admin.get(path)).headers.get('etag') ?? '';
    await addStudent({ class_id: known.id });
    const put = (status: number) =>
      school.admin.send('PUT', path, { body: { room: 'R3' }, headers: { 'If-Match': etag } }, status);
    await put(200);
    expect((await put(412)).error).toBe('precondition_failed');
  });

  test('with a new grade also changes the grade of its current students, but not of former ones', async () => {
    const [from, to] = [await newGrade(), await newGrade()];
    const known = await add({ grade_id: from });
    const inside = await addStudent({ class_id: known.id });
    const gone = await addStudent({ class_id: known.id });
    await school.admin.put(`/api/students/${gone.id}`, { class_id: null });
    await school.admin.put(`/api/classes/${known.id}`, { grade_id: to });
    const gradeOf = async ({ id }: Student) => (await school.admin.get<Student>(`/api/students/${id}`)).data.grade_id;
    expect([await gradeOf(inside), await gradeOf(gone)]).toEqual([to, from]);
  });

  test('with a new grade also applies to a student who joins the class concurrently', async () => {
    const to = await newGrade();
    const known = await add();
    const answers = await race(
      service.database,
      `select from ${school.schema}.class where id = ${known.id} for update`,
      2,
      () => [
        school.admin.send<{ id: number }>('PUT', `/api/classes/${known.id}`, { body: { grade_id: to } }),
        school.admin.send<{ id: number }>('POST', '/api/students', {
          body: { first_name: 'Just', last_name: 'Coming', class_id: known.id },
        }),
      ],
    );
    expect(statuses(answers)).toEqual([200, 201]);
    expect((await studentsOf(known.id)).map(({ grade_id }) => grade_id)).toEqual([to]);
  });

  test('with a new academic year is a 409 once students have been enrolled', async () => {
    const known = await add();
    expect(
      (await school.admin.put<Class>(`/api/classes/${known.id}`, { academic_year_id: years.future })).data,
    ).toMatchObject({
      academic_year_id: years.future,
      is_current_year: false,
    });
    const student = await addStudent({ class_id: known.id });
    for (const class_id of [known.id, null]) {
      await school.admin.put(`/api/students/${student.id}`, { class_id });
      const refused = await school.admin.put(`/api/classes/${known.id}`, { academic_year_id: years.now }, 409);
      expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'academic_year_id' }] });
    }
    expect(
      (await school.admin.put<Class>(`/api/classes/${known.id}`, { academic_year_id: years.future, room: 'R1' })).data
        .room,
    ).toBe('R1');
  });

  test('with a new academic year keeps the enrollment of a student who joins concurrently in the year of the class', async () => {
    const known = await add();
    await race(service.database, `select from ${school.schema}.class where id = ${known.id} for update`, 2, () => [
      school.admin.send('PUT', `/api/classes/${known.id}`, { body: { academic_year_id: years.future } }),
      school.admin.send('POST', '/api/students', {
        body: { first_name: 'Just', last_name: 'Coming', class_id: known.id },
      }),
    ]);
    const enrolled = await service.database.query(
      `select e.academic_year_id = c.academic_year_id as agree from ${school.schema}.enrollment e join ${school.schema}.class c on c.id = e.class_id where c.id = $1`,
      [known.id],
    );
    expect(enrolled).toEqual([{ agree: true }]);
  });
});

describe('deleting a class', () => {
  test('is refused while it has students, enrollments or attendance', async () => {
    const known = await add();
    const student = await addStudent({ class_id: known.id });
    expect((await school.admin.delete(`/api/classes/${known.id}`, 409)).error).toBe('in_use');
    await school.admin.put(`/api/students/${student.id}`, { class_id: null });
    expect((await school.admin.delete(`/api/classes/${known.id}`, 409)).error).toBe('in_use');
    await service.database.query(`delete from ${school.schema}.enrollment where student_id = $1`, [student.id]);
    await school.insert('attendance', {
      student_id: student.id,
      class_id: known.id,
      date: '2026-01-05',
      status: 'present',
    });
    expect((await school.admin.delete(`/api/classes/${known.id}`, 409)).error).toBe('in_use');
    expect((await read(known.id)).id).toBe(known.id);
  });

  test('is refused with a message about deleted students if it has no others', async () => {
    const known = await add();
    const student = await addStudent({ class_id: known.id });
    await school.admin.delete(`/api/students/${student.id}`);
    expect((await school.admin.delete(`/api/classes/${known.id}`, 409)).message).toMatch(
      /^This is still used by a deleted student\. /,
    );
  });

  test('also deletes its subjects and teaching assignments', async () => {
    const known = await add();
    const subject = await newSubject();
    await school.insert('class_subject', { class_id: known.id, subject_id: subject.id, periods_per_week: 4 });
    await school.admin.post(`/api/classes/${known.id}/teachers`, { teacher_id: await newTeacher(), subject: 'Chess' });
    expect((await school.admin.delete<{ id: number }>(`/api/classes/${known.id}`)).data).toEqual({ id: known.id });
    await school.admin.get(`/api/classes/${known.id}`, 404);
    const left = await service.database.query(
      `select class_id from ${school.schema}.class_subject where class_id = $1 union all select class_id from ${school.schema}.teaching_assignment where class_id = $1`,
      [known.id],
    );
    expect(left).toEqual([]);
  });
});

describe('the list', () => {
  let lists: School;
  let all: Class[];
  const filterValues: Record<
    'academic_year_id' | 'grade_id' | 'school_unit_id' | 'programme_id' | 'medium_id' | 'class_teacher_id',
    number[]
  > = {
    academic_year_id: [],
    grade_id: [],
    school_unit_id: [],
    programme_id: [],
    medium_id: [],
    class_teacher_id: [],
  };
  const sequences = new Map<number, number | null>();

  beforeAll(async () => {
    lists = await service.school();
    const own = await makeYears(lists);
    filterValues.academic_year_id = [own.now, own.past];
    for (const [name, sequence] of [
      ['Ten', 10],
      ['Two', 2],
      ['None', null],
    ] as const) {
      const id = await lists.insert('grade', { name, sequence });
      filterValues.grade_id.push(id);
      sequences.set(id, sequence);
    }
    for (const table of ['school_unit', 'programme', 'medium'] as const) {
      for (const name of ['One', 'Other']) filterValues[`${table}_id`].push(await lists.insert(table, { name }));
    }
    for (let n = 0; n < 12; n++)
      filterValues.class_teacher_id.push(await lists.insert('teacher', { first_name: 'T', last_name: `Number ${n}` }));
    const names = ['Élan', 'elan', 'Zebra', 'Ångström'];
    for (let n = 0; n < 24; n++) {
      const { data } = await lists.admin.post<Class>(
        '/api/classes',
        {
          name: `${names[n % 4] ?? ''}${n % 8}`,
          section: [null, 'Bq', 'a'][n % 3] ?? null,
          grade_id: filterValues.grade_id[n % 3],
          academic_year_id: filterValues.academic_year_id[n < 12 ? 0 : 1],
          class_teacher_id: filterValues.class_teacher_id[n % 12],
          room: n === 7 ? 'Müllersaal' : `R${n}`,
          school_unit_id: filterValues.school_unit_id[n % 2],
          programme_id: n % 4 === 0 ? filterValues.programme_id[0] : null,
          medium_id: n % 5 === 0 ? filterValues.medium_id[n % 2] : null,
        },
        201,
      );
      for (let student = 0; student < n % 4; student++) {
        await lists.admin.post('/api/students', { first_name: 'S', last_name: `Of ${n}`, class_id: data.id }, 201);
      }
    }
    await service.database.query(
      `update ${lists.schema}.class set created_at = timestamptz '2026-01-01Z' + (id % 3) * interval '1 day'`,
    );
    all = await walk<Class>(lists.admin, '/api/classes', 100);
  });

  const found = async (query: string) => (await lists.admin.get<Class[]>(`/api/classes?pageSize=100&${query}`)).data;
  const keys: Record<string, (record: Class) => (string | number | null)[]> = {
    grade: ({ grade_id, name, section }) => [sequences.get(grade_id) ?? null, plain(name), plain(section ?? '')],
    name: ({ name, section }) => [plain(name), plain(section ?? '')],
    created_at: ({ created_at }) => [created_at],
    student_count: ({ student_count }) => [student_count],
  };

  test('is sorted by grade, name and section by default', async () => {
    const list = await lists.admin.get<Class[]>('/api/classes');
    expect(list.pagination).toEqual({ page: 1, pageSize: 20, totalItems: 24, totalPages: 2 });
    expect(ids(list.data)).toEqual(ids(inOrder(all, keys['grade'] ?? (() => []), 'asc')).slice(0, 20));
  });

  test.each(Object.keys(filterValues) as (keyof typeof filterValues)[])('filters by %s', async (filter) => {
    for (const id of filterValues[filter]) {
      const expected = all.filter((record) => record[filter] === id);
      expect(ids(await found(`${filter}=${id}`))).toEqual(ids(expected));
    }
    expect(all.some((record) => record[filter] === filterValues[filter][0])).toBe(true);
    expect(await found(`${filter}=999999`)).toEqual([]);
  });

  test('combines filters and search', async () => {
    const expected = all.filter(
      (record) =>
        record.academic_year_id === filterValues.academic_year_id[0] &&
        record.grade_id === filterValues.grade_id[1] &&
        plain(record.name).startsWith('elan'),
    );
    expect(expected.length).toBeGreaterThan(0);
    expect(
      ids(
        await found(
          `academic_year_id=${filterValues.academic_year_id[0]}&grade_id=${filterValues.grade_id[1]}&search=ELAN`,
        ),
      ),
    ).toEqual(ids(expected));
  });

  test.each([
    ['the name, ignoring case and missing accents', 'ELAN', (record: Class) => plain(record.name).startsWith('elan')],
    ['the name, ignoring additional accents', 'ébra', (record: Class) => record.name.startsWith('Zebra')],
    ['section and name together', 'BQ zebra6', (record: Class) => record.name === 'Zebra6' && record.section === 'Bq'],
    ['the room', 'mullersaal', (record: Class) => record.room === 'Müllersaal'],
    ['no class if one of the words does not occur', 'zebra nothing', () => false],
    ['% literally', '%25', () => false],
    ['every class if the text is empty', '', () => true],
  ])('search matches %s', async (_case, search, fits) => {
    expect(ids(await found(`search=${encodeURIComponent(decodeURIComponent(search))}`))).toEqual(ids(all.filter(fits)));
  });
});

describe('permissions', () => {
  test('a teacher has access to a class from the request after they are assigned until they are removed', async () => {
    const [known, other] = [await add(), await add()];
    const student = await addStudent({ class_id: known.id });
    await addStudent({ class_id: other.id });
    const { client, teacherId } = await teacherUser();
    const seen = async () => ids((await client.get<Class[]>('/api/classes')).data);
    expect(await seen()).toEqual([]);
    await client.get(`/api/classes/${known.id}`, 404);
    await school.admin.post(`/api/classes/${known.id}/teachers`, { teacher_id: teacherId, subject: 'Chess' });
    expect(await seen()).toEqual([known.id]);
    expect((await client.get<Class>(`/api/classes/${known.id}`)).data).toMatchObject({
      id: known.id,
      student_count: 1,
    });
    expect(ids((await client.get<Student[]>(`/api/classes/${known.id}/students`)).data)).toEqual([student.id]);
    expect(ids((await client.get<ClassTeacher[]>(`/api/classes/${known.id}/teachers`)).data)).toEqual([teacherId]);
    expect((await client.get<unknown[]>(`/api/classes/${known.id}/unassigned-students`)).data).toEqual([]);
    for (const path of ['', '/students', '/teachers', '/unassigned-students', '/unassigned-teachers']) {
      expect((await client.get(`/api/classes/${other.id}${path}`, 404)).error).toBe('not_found');
    }
    await school.admin.delete(`/api/classes/${known.id}/teachers/${teacherId}`);
    expect(await seen()).toEqual([]);
    await client.get(`/api/classes/${known.id}/students`, 404);
  });

  test('a teacher who is replaced as class teacher or in a subject loses access to the class', async () => {
    const known = await add();
    const subject = await newSubject();
    await school.insert('class_subject', { class_id: known.id, subject_id: subject.id, periods_per_week: 4 });
    const next = await newTeacher();
    for (const role of [{ is_class_teacher: true }, { subject: subject.name }]) {
      const { client, teacherId } = await teacherUser();
      await school.admin.post(`/api/classes/${known.id}/teachers`, { teacher_id: teacherId, ...role });
      await client.get(`/api/classes/${known.id}`);
      await school.admin.post(`/api/classes/${known.id}/teachers`, { teacher_id: next, ...role });
      await client.get(`/api/classes/${known.id}`, 404);
    }
  });

  test('teachers and accountants can read but not write; students and anonymous users cannot read', async () => {
    const known = await add();
    const student = await addStudent({ class_id: known.id });
    const { client: teacher, teacherId } = await teacherUser();
    await school.admin.post(`/api/classes/${known.id}/teachers`, { teacher_id: teacherId });
    const accountant = await school.user(['accountant']);
    expect((await accountant.get<Class>(`/api/classes/${known.id}`)).data).toEqual(await read(known.id));
    expect((await accountant.get(`/api/classes/${(await add()).id}/students`)).pagination.totalItems).toBe(0);
    const writes: [string, string, object?][] = [
      ['POST', '/api/classes', { name: 'X', grade_id: gradeId, academic_year_id: years.now }],
      ['PUT', `/api/classes/${known.id}`, { name: 'X' }],
      ['DELETE', `/api/classes/${known.id}`],
      ['POST', '/api/classes/copy', { from_academic_year_id: years.now, to_academic_year_id: years.future }],
      ['POST', `/api/classes/${known.id}/students`, { student_id: student.id }],
      ['DELETE', `/api/classes/${known.id}/students/${student.id}`],
      ['POST', `/api/classes/${known.id}/teachers`, { teacher_id: teacherId }],
      ['DELETE', `/api/classes/${known.id}/teachers/${teacherId}`],
      ['POST', '/api/classes/subjects/by-grade', { grade_id: gradeId, class_ids: [known.id] }],
    ];
    for (const user of [teacher, accountant, await school.user(['student'])]) {
      for (const [method, path, body] of writes)
        expect((await user.send(method, path, { body }, 403)).error).toBe('forbidden');
    }
    const studentUser = await school.user(['student']);
    for (const path of ['', `/${known.id}`, `/${known.id}/students`, `/${known.id}/teachers`])
      await studentUser.get(`/api/classes${path}`, 403);
    await service.anonymous.get('/api/classes', 401);
    expect((await studentsOf(known.id)).length).toBe(1);
  });

  test('listing the students of a class requires class.read and student.read, and adding one class.update and student.read', async () => {
    const known = await add();
    const student = await addStudent();
    const withPermissions = async (...permissions: string[]) => school.user([await school.role(...permissions)]);
    const lists = [`/api/classes/${known.id}/students`, `/api/classes/${known.id}/unassigned-students`];
    for (const client of [await withPermissions('class.read'), await withPermissions('student.read')]) {
      for (const path of lists) expect((await client.get(path, 403)).error).toBe('forbidden');
    }
    const both = await withPermissions('class.read', 'student.read');
    for (const path of lists) await both.get(path);
    const changer = await withPermissions('class.update');
    await changer.post(`/api/classes/${known.id}/students`, { student_id: student.id }, 403);
    expect(await studentsOf(known.id)).toEqual([]);
    const mover = await withPermissions('class.update', 'student.read');
    await mover.post(`/api/classes/${known.id}/students`, { student_id: student.id });
  });
});
