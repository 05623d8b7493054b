import { describe, expect, test } from '@jest/globals';
import { ids, walk } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { type Class, classHelpers, type ClassTeacher } from '../support/fixtures/classes.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { years, gradeId, newTeacher, newSubject, add, read, teachersOf, classSubjects, statuses } = await classHelpers(
  service,
  school,
);

describe('a class teacher', () => {
  test('can have one class per academic year', async () => {
    const class_teacher_id = await newTeacher();
    const first = await add({ class_teacher_id });
    const refused = await school.admin.post(
      '/api/classes',
      { name: unique('Class'), grade_id: gradeId, academic_year_id: years.now, class_teacher_id },
      409,
    );
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'class_teacher_id' }] });
    expect(refused.message).toContain(first.name);
    const other = await add();
    expect((await school.admin.put(`/api/classes/${other.id}`, { class_teacher_id }, 409)).error).toBe('conflict');
    const future = await add({ class_teacher_id, academic_year_id: years.future });
    const moved = await school.admin.put(`/api/classes/${future.id}`, { academic_year_id: years.now }, 409);
    expect(moved).toMatchObject({ error: 'conflict', details: [{ path: 'class_teacher_id' }] });
  });

  test('must be active when assigned (422); one who has left is not shown until they return', async () => {
    const inactive = await newTeacher({ is_active: false });
    const deleted = await newTeacher({ deleted_at: '2026-01-01T00:00:00Z' });
    const known = await add({ class_teacher_id: await newTeacher() });
    for (const class_teacher_id of [inactive, deleted]) {
      const refused = await school.admin.put(`/api/classes/${known.id}`, { class_teacher_id }, 422);
      expect(refused).toMatchObject({ error: 'invalid_reference', details: [{ path: 'class_teacher_id' }] });
      const body = { name: unique('Class'), grade_id: gradeId, academic_year_id: years.now, class_teacher_id };
      expect((await school.admin.post('/api/classes', body, 422)).details).toMatchObject([
        { path: 'class_teacher_id' },
      ]);
    }
    const teacher = `/api/teachers/${known.class_teacher_id}`;
    await school.admin.put(teacher, { is_active: false });
    const { data } = await school.admin.put<Class>(`/api/classes/${known.id}`, { ...known, room: 'R5' });
    expect(data).toMatchObject({ room: 'R5', class_teacher_id: null, class_teacher_name: null });
    await school.admin.put(teacher, { is_active: true });
    expect((await read(known.id)).class_teacher_id).toBe(known.class_teacher_id);
  });

  test.each<[string, (id: number, teacherId: number) => [string, string, object]]>([
    ['updating the class', (id, class_teacher_id) => ['PUT', `/api/classes/${id}`, { class_teacher_id }]],
    [
      'assigning the teacher',
      (id, teacher_id) => ['POST', `/api/classes/${id}/teachers`, { teacher_id, is_class_teacher: true }],
    ],
  ])('is set by only one of two concurrent requests for two classes, when %s', async (_case, request) => {
    const teacherId = await newTeacher();
    const classes = [await add(), await add()];
    const answers = await race(
      service.database,
      `select from ${school.schema}.teacher where id = ${teacherId} for update`,
      2,
      () =>
        classes.map(({ id }) => {
          const [method, path, body] = request(id, teacherId);
          return school.admin.send(method, path, { body });
        }),
    );
    expect(statuses(answers)).toEqual([200, 409]);
    expect(answers.find(({ status }) => status === 409)?.error).toBe('conflict');
    expect((await school.admin.get(`/api/classes?class_teacher_id=${teacherId}`)).pagination.totalItems).toBe(1);
  });
});

describe('the teachers of a class', () => {
  const assign = (id: number, body: Record<string, unknown>, status = 200) =>
    school.admin.post<ClassTeacher>(`/api/classes/${id}/teachers`, body, status);

  test('are listed once each, whether they are class teacher, teach a subject or have a text assignment', async () => {
    const maths = await newSubject({ name: 'Mathematics' });
    const art = await newSubject({ name: 'Art' });
    const [one, two, three] = [
      await newTeacher({ first_name: 'Zoë', last_name: 'Öberg', email: 'zoe@school.example' }),
      await newTeacher({ first_name: 'Bo', last_name: 'Adams' }),
      await newTeacher({ first_name: 'Cy', last_name: 'Zola' }),
    ];
    const known = await add({ class_teacher_id: one });
    for (const { id: subject_id } of [maths, art])
      await school.insert('class_subject', { class_id: known.id, subject_id, periods_per_week: 4, teacher_id: one });
    await school.insert('teaching_assignment', { class_id: known.id, teacher_id: one, subject: 'Chess' });
    await school.insert('teaching_assignment', { class_id: known.id, teacher_id: two });
    await school.insert('teaching_assignment', { class_id: known.id, teacher_id: three, subject: 'Art' });
    const list = await teachersOf(known.id);
    expect(list.map(({ last_name }) => last_name)).toEqual(['Adams', 'Öberg', 'Zola']);
    expect(list[1]).toEqual({
      id: one,
      teacher_id: one,
      first_name: 'Zoë',
      last_name: 'Öberg',
      email: 'zoe@school.example',
      is_active: true,
      is_class_teacher: true,
      subject: 'Art, Chess, Mathematics',
      subjects: ['Art', 'Chess', 'Mathematics'],
    });
    expect(list.map(({ subject }) => subject)).toEqual([null, 'Art, Chess, Mathematics', 'Art']);
    expect(list.map(({ is_class_teacher, subjects }) => [is_class_teacher, subjects])).toEqual([
      [false, []],
      [true, ['Art', 'Chess', 'Mathematics']],
      [false, ['Art']],
    ]);
    const path = `/api/classes/${known.id}/teachers`;
    expect(ids((await school.admin.get<ClassTeacher[]>(`${path}?sort=first_name&order=desc`)).data)).toEqual([
      one,
      three,
      two,
    ]);
    expect(ids((await school.admin.get<ClassTeacher[]>(`${path}?search=OBERG+zoe`)).data)).toEqual([one]);
    expect(ids(await walk<ClassTeacher>(school.admin, path, 2))).toEqual([two, one, three]);
  });

  test('are assigned by a request that returns their roles in the class and can be repeated', async () => {
    const known = await add();
    const teacher_id = await newTeacher();
    expect((await assign(known.id, { teacher_id })).data).toMatchObject({
      id: teacher_id,
      is_class_teacher: false,
      subjects: [],
    });
    expect((await assign(known.id, { teacher_id, subject: 'Chess' })).data).toMatchObject({ subjects: ['Chess'] });
    expect((await assign(known.id, { teacher_id, subject: 'CHESS' })).data).toMatchObject({ subjects: ['Chess'] });
    expect((await assign(known.id, { teacher_id, is_class_teacher: true })).data).toMatchObject({
      is_class_teacher: true,
      subjects: ['Chess'],
    });
    expect(await teachersOf(known.id)).toHaveLength(1);
    expect((await read(known.id)).class_teacher_id).toBe(teacher_id);
  });

  test.each([
    ['name', 'bIOLOGY'],
    ['code', 'bio-5'],
  ])('replace the teacher of a class subject that the assignment names by %s, ignoring case', async (_by, subject) => {
    const known = await add();
    const biology = await newSubject({ name: 'Biology', code: unique('BIO-5') });
    await school.insert('class_subject', { class_id: known.id, subject_id: biology.id, periods_per_week: 4 });
    const words = subject === 'bio-5' ? biology.code.toLowerCase() : subject;
    const [first, second] = [await newTeacher(), await newTeacher()];
    await school.insert('teaching_assignment', { class_id: known.id, teacher_id: first, subject: 'biology' });
    expect((await assign(known.id, { teacher_id: first, subject: words })).data.subjects).toEqual(['Biology']);
    expect(await classSubjects(known.id)).toEqual([{ subject_id: biology.id, periods_per_week: 4, teacher_id: first }]);
    expect((await assign(known.id, { teacher_id: second, subject: words })).data.subjects).toEqual(['Biology']);
    expect(await classSubjects(known.id)).toMatchObject([{ teacher_id: second }]);
    expect(ids(await teachersOf(known.id))).toEqual([second]);
  });

  test('are returned by an assignment with its subject, as it is stored', async () => {
    const known = await add();
    const biology = await newSubject({ name: 'Biology', code: unique('BIO-7') });
    await school.insert('class_subject', { class_id: known.id, subject_id: biology.id, periods_per_week: 4 });
    const teacher_id = await newTeacher();
    const subjectOf = async (fields: object) => (await assign(known.id, { teacher_id, ...fields })).data.subject;
    expect(await subjectOf({})).toBeNull();
    expect(await subjectOf({ subject: 'Chess' })).toBe('Chess');
    expect(await subjectOf({ subject: biology.code.toLowerCase() })).toBe('Biology');
    expect(await subjectOf({ subject: 'chess' })).toBe('Chess');
    expect(await subjectOf({ is_class_teacher: true })).toBe('Biology, Chess');
  });

  describe('who were assigned with a subject that the class does not have', () => {
    const create = (class_id: number, subject_id: number, fields: object = {}) =>
      school.admin.post<{ teacher_id: number | null; teacher_name: string | null }>(
        '/api/class-subjects',
        { class_id, subject_id, periods_per_week: 2, ...fields },
        201,
      );

    test.each(['name', 'code'] as const)('become its teacher when the class gets a subject of that %s', async (by) => {
      const [known, other] = [await add(), await add()];
      const [teacher_id, second] = [await newTeacher(), await newTeacher()];
      const subject = await newSubject({ name: unique('Latin'), code: unique('LAT') });
      await assign(known.id, { teacher_id, subject: subject[by].toUpperCase() });
      await assign(known.id, { teacher_id: second, subject: subject[by] });
      await assign(known.id, { teacher_id, subject: 'Chess' });
      expect((await create(other.id, subject.id)).data.teacher_id).toBeNull();
      expect((await create(known.id, subject.id)).data).toMatchObject({ teacher_id, teacher_name: expect.any(String) });
      const list = await teachersOf(known.id);
      expect(list.find(({ id }) => id === teacher_id)?.subjects.sort()).toEqual(['Chess', subject.name]);
      expect(list.map(({ id }) => id).sort()).toEqual([teacher_id, second].sort());
      await school.admin.delete(`/api/classes/${known.id}/teachers/${teacher_id}`);
      expect(await classSubjects(known.id)).toMatchObject([{ teacher_id: null }]);
      expect(ids(await teachersOf(known.id))).toEqual([second]);
    });

    test('do not become its teacher when the request names another one, or when they are no longer active', async () => {
      const known = await add();
      const [assigned, named, inactive] = [await newTeacher(), await newTeacher(), await newTeacher()];
      const [greek, drama] = [await newSubject({ name: unique('Greek') }), await newSubject({ name: unique('Drama') })];
      await assign(known.id, { teacher_id: assigned, subject: greek.name });
      expect((await create(known.id, greek.id, { teacher_id: named })).data.teacher_id).toBe(named);
      expect(ids(await teachersOf(known.id)).sort()).toEqual([assigned, named].sort());
      await assign(known.id, { teacher_id: inactive, subject: drama.name });
      await service.database.query(`update ${school.schema}.teacher set is_active = false where id = $1`, [inactive]);
      expect((await create(known.id, drama.id)).data.teacher_id).toBeNull();
    });

    test('become the teachers of subjects that the class gets from the template of its grade', async () => {
      const known = await add();
      const teacher_id = await newTeacher();
      const subject = await newSubject({ name: unique('Botany') });
      await assign(known.id, { teacher_id, subject: subject.name });
      await school.admin.post('/api/classes/subjects/by-grade', { grade_id: gradeId, class_ids: [known.id] });
      expect((await classSubjects(known.id)).filter((row) => row.teacher_id !== null)).toMatchObject([
        { subject_id: subject.id, teacher_id },
      ]);
    });

    test('become its teacher too when both requests arrive at the same time', async () => {
      const known = await add();
      const teacher_id = await newTeacher();
      const subject = await newSubject({ name: unique('Music') });
      const answers = await race(
        service.database,
        `select from ${school.schema}.class where id = ${known.id} for update`,
        2,
        () => [
          school.admin.send('POST', `/api/classes/${known.id}/teachers`, {
            body: { teacher_id, subject: subject.name },
          }),
          school.admin.send('POST', '/api/class-subjects', {
            body: { class_id: known.id, subject_id: subject.id, periods_per_week: 1 },
          }),
        ],
      );
      expect(statuses(answers)).toEqual([200, 201]);
      expect(await classSubjects(known.id)).toMatchObject([{ subject_id: subject.id, teacher_id }]);
    });
  });

  test('include one class teacher: a new one replaces the previous one, who keeps their other subjects', async () => {
    const known = await add();
    const [first, second] = [await newTeacher(), await newTeacher()];
    await assign(known.id, { teacher_id: first, is_class_teacher: true, subject: 'Chess' });
    await assign(known.id, { teacher_id: second, is_class_teacher: true });
    expect(
      (await teachersOf(known.id)).map(({ id, is_class_teacher, subjects }) => [id, is_class_teacher, subjects]),
    ).toEqual([
      [first, false, ['Chess']],
      [second, true, []],
    ]);
    const other = await add();
    expect(await assign(other.id, { teacher_id: second, is_class_teacher: true, subject: 'Go' }, 409)).toMatchObject({
      error: 'conflict',
      details: [{ path: 'teacher_id' }],
    });
    expect(await teachersOf(other.id)).toEqual([]);
    const future = await add({ academic_year_id: years.future });
    await assign(future.id, { teacher_id: second, is_class_teacher: true });
  });

  test('must be active when assigned (422); one who becomes inactive later is shown as inactive', async () => {
    const known = await add();
    for (const teacher_id of [
      await newTeacher({ is_active: false }),
      await newTeacher({ deleted_at: '2026-01-01T00:00:00Z' }),
      999_999,
    ]) {
      expect(await assign(known.id, { teacher_id }, 422)).toMatchObject({
        error: 'invalid_reference',
        details: [{ path: 'teacher_id' }],
      });
    }
    expect(await teachersOf(known.id)).toEqual([]);
    const teacher_id = await newTeacher();
    await assign(known.id, { teacher_id });
    await service.database.query(`update ${school.schema}.teacher set is_active = false where id = $1`, [teacher_id]);
    expect(await teachersOf(known.id)).toMatchObject([{ id: teacher_id, is_active: false }]);
  });

  test('are removed from all their subjects of the class, but not from other classes', async () => {
    const [known, other] = [await add(), await add()];
    const subject = await newSubject();
    for (const { id } of [known, other])
      await school.insert('class_subject', { class_id: id, subject_id: subject.id, periods_per_week: 4 });
    const teacher_id = await newTeacher();
    await assign(known.id, { teacher_id, is_class_teacher: true, subject: subject.code });
    await assign(known.id, { teacher_id, subject: 'Chess' });
    await assign(other.id, { teacher_id, subject: subject.name });
    expect((await school.admin.delete<{ id: number }>(`/api/classes/${known.id}/teachers/${teacher_id}`)).data).toEqual(
      { id: teacher_id },
    );
    expect(await teachersOf(known.id)).toEqual([]);
    expect((await read(known.id)).class_teacher_id).toBeNull();
    expect(await classSubjects(known.id)).toMatchObject([{ subject_id: subject.id, teacher_id: null }]);
    expect(await teachersOf(other.id)).toMatchObject([{ id: teacher_id, subjects: [subject.name] }]);
    expect((await school.admin.delete(`/api/classes/${known.id}/teachers/${teacher_id}`, 404)).error).toBe('not_found');
    await school.admin.delete(`/api/classes/${known.id}/teachers/999999`, 404);
  });

  test('can be chosen from the list of active teachers who do not teach the class', async () => {
    const known = await add();
    const last_name = unique('Choice');
    const [one, two] = [
      await newTeacher({ last_name, first_name: 'Åsa', email: 'asa@school.example', specialization: 'Art' }),
      await newTeacher({ last_name }),
    ];
    await newTeacher({ last_name, is_active: false });
    await newTeacher({ last_name, deleted_at: '2026-01-01T00:00:00Z' });
    const path = `/api/classes/${known.id}/unassigned-teachers?search=${encodeURIComponent(last_name)}`;
    const list = async (query = '') => (await school.admin.get<{ id: number }[]>(`${path}${query}`)).data;
    expect(await list()).toEqual([
      { id: one, first_name: 'Åsa', last_name, email: 'asa@school.example', specialization: 'Art' },
      { id: two, first_name: 'Te', last_name, email: null, specialization: null },
    ]);
    expect(ids(await list('&order=desc'))).toEqual([two, one]);
    expect(ids(await list('+asa%40school'))).toEqual([one]);
    expect(ids(await walk<{ id: number }>(school.admin, path, 1))).toEqual([one, two]);
    await assign(known.id, { teacher_id: one, subject: 'Chess' });
    expect(ids(await list())).toEqual([two]);
  });

  test('are available as class teacher if they have no class in the academic year, by default the current one', async () => {
    const last_name = unique('Available');
    const [one, two] = [
      await newTeacher({ last_name, first_name: 'A' }),
      await newTeacher({ last_name, first_name: 'B' }),
    ];
    await newTeacher({ last_name, is_active: false });
    const list = async (query = '') =>
      ids(
        (
          await school.admin.get<{ id: number }[]>(
            `/api/classes/meta/available-class-teachers?search=${encodeURIComponent(last_name)}${query}`,
          )
        ).data,
      );
    expect(await list()).toEqual([one, two]);
    await add({ class_teacher_id: one });
    await add({ class_teacher_id: two, academic_year_id: years.past });
    expect(await list()).toEqual([two]);
    expect(await list(`&academic_year_id=${years.past}`)).toEqual([one]);
    expect(await list(`&academic_year_id=${years.future}&order=desc`)).toEqual([two, one]);
    expect(await list('&academic_year_id=999999')).toEqual([]);
  });

  test('include those in its timetable, who cannot be removed while they are in it (409)', async () => {
    const { id } = await add();
    const teacherId = await newTeacher();
    const subject = await newSubject();
    await school.insert('timetable_slot', {
      class_id: id,
      academic_year_id: years.now,
      subject_id: subject.id,
      teacher_id: teacherId,
      day_of_week: 1,
      period: 1,
    });
    expect(await teachersOf(id)).toMatchObject([{ id: teacherId, is_class_teacher: false, subjects: [subject.name] }]);
    expect((await school.admin.delete(`/api/classes/${id}/teachers/${teacherId}`, 409)).error).toBe('in_use');
    await service.database.query(`delete from ${school.schema}.timetable_slot where class_id = $1`, [id]);
    await school.admin.delete(`/api/classes/${id}/teachers/${teacherId}`, 404);
  });
});
