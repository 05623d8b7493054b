import { beforeEach, describe, expect, test } from '@jest/globals';
import { race } from '../support/client/race.ts';
import { type Class, classHelpers, type Copied } from '../support/fixtures/classes.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { newGrade, newTeacher, newSubject, add, read, addStudent, teachersOf, classSubjects } = await classHelpers(
  service,
  school,
);

describe('copying classes', () => {
  /** Numbers the years of these tests, because years may not overlap. */
  let serial = 0;
  let from: number;
  let to: number;
  beforeEach(async () => {
    serial += 1;
    from = await school.insert('academic_year', {
      name: unique('From'),
      start_date: `${2200 + serial}-01-01`,
      end_date: `${2200 + serial}-12-31`,
    });
    to = await school.insert('academic_year', {
      name: unique('To'),
      start_date: `${2600 + serial}-01-01`,
      end_date: `${2600 + serial}-12-31`,
    });
  });
  const copy = async (body: Record<string, unknown> = {}, status = 200) =>
    school.admin.post<Copied>(
      '/api/classes/copy',
      { from_academic_year_id: from, to_academic_year_id: to, ...body },
      status,
    );
  const classesOf = async (yearId: number) =>
    (await school.admin.get<Class[]>(`/api/classes?academic_year_id=${yearId}&sort=name&pageSize=100`)).data;

  test('copies their fields, subjects and active teachers, but not their students', async () => {
    const subjects = [await newSubject(), await newSubject()];
    const [one, two, gone] = [await newTeacher(), await newTeacher(), await newTeacher()];
    const known = await add({
      academic_year_id: from,
      section: 'A',
      capacity: 25,
      room: 'R7',
      class_teacher_id: one,
      medium_id: await school.insert('medium', { name: unique('Medium') }),
    });
    const second = await add({ academic_year_id: from, class_teacher_id: gone });
    await school.insert('class_subject', {
      class_id: known.id,
      subject_id: subjects[0]?.id,
      periods_per_week: 6,
      teacher_id: two,
    });
    await school.insert('class_subject', {
      class_id: known.id,
      subject_id: subjects[1]?.id,
      periods_per_week: 3,
      teacher_id: gone,
    });
    await school.insert('teaching_assignment', { class_id: known.id, teacher_id: two, subject: 'Chess' });
    await school.insert('teaching_assignment', { class_id: known.id, teacher_id: gone, subject: 'Go' });
    await addStudent({ class_id: known.id });
    await service.database.query(`update ${school.schema}.teacher set is_active = false where id = $1`, [gone]);

    const { data } = await copy();
    expect(data).toMatchObject({ copied: 2, skipped: 0, skipped_classes: [] });
    expect(data.classes.map(({ name, section, copied_from }) => [name, section, copied_from])).toEqual([
      [known.name, 'A', known.id],
      [second.name, null, second.id],
    ]);
    const [first, other] = data.classes;
    const created = await read(first?.id ?? 0);
    expect(created).toEqual({
      ...known,
      id: created.id,
      academic_year_id: to,
      academic_year_name: created.academic_year_name,
      student_count: 0,
      subject_count: 2,
      created_at: created.created_at,
      updated_at: created.updated_at,
    });
    expect(await classSubjects(created.id)).toEqual([
      { subject_id: subjects[0]?.id, periods_per_week: 6, teacher_id: two },
      { subject_id: subjects[1]?.id, periods_per_week: 3, teacher_id: null },
    ]);
    expect((await teachersOf(created.id)).map(({ id, is_class_teacher }) => [id, is_class_teacher])).toEqual([
      [one, true],
      [two, false],
    ]);
    expect((await teachersOf(created.id))[1]?.subjects.sort()).toEqual([subjects[0]?.name, 'Chess'].sort());
    expect((await read(other?.id ?? 0)).class_teacher_id).toBeNull();
    expect((await read(known.id)).student_count).toBe(1);
  });

  test('skips a class whose name and section the target year already has, with the reason', async () => {
    const name = unique('Both');
    const [a, b] = [
      await add({ academic_year_id: from, name, section: 'A' }),
      await add({ academic_year_id: from, name, section: 'B' }),
    ];
    await add({ academic_year_id: to, name: name.toUpperCase(), section: 'a' });
    const { data } = await copy();
    expect(data).toMatchObject({ copied: 1, skipped: 1, classes: [{ copied_from: b.id }] });
    expect(data.skipped_classes).toEqual([
      {
        class_id: a.id,
        name,
        section: 'A',
        reason: 'The academic year already has a class with this name and section.',
      },
    ]);
    const again = await copy();
    expect(again.data).toMatchObject({ copied: 0, skipped: 2, classes: [] });
    expect(again.data.skipped_classes.map(({ class_id }) => class_id)).toEqual([a.id, b.id]);
    expect(await classesOf(to)).toHaveLength(2);
  });

  test('copies only the classes in class_ids, and omits subjects or teachers on request', async () => {
    const subject = await newSubject();
    const teacher = await newTeacher();
    const known = await add({ academic_year_id: from, class_teacher_id: teacher });
    await add({ academic_year_id: from });
    await school.insert('class_subject', {
      class_id: known.id,
      subject_id: subject.id,
      periods_per_week: 6,
      teacher_id: teacher,
    });
    await school.insert('teaching_assignment', { class_id: known.id, teacher_id: teacher, subject: 'Chess' });
    await copy({ class_ids: [known.id, known.id], include_teachers: false });
    const [created] = await classesOf(to);
    expect(await classesOf(to)).toHaveLength(1);
    expect(created).toMatchObject({ name: known.name, class_teacher_id: null, subject_count: 1 });
    expect(await teachersOf(created?.id ?? 0)).toEqual([]);
    await school.admin.delete(`/api/classes/${created?.id}`);
    await copy({ class_ids: [known.id], include_subjects: false });
    const [again] = await classesOf(to);
    expect(again).toMatchObject({ class_teacher_id: teacher, subject_count: 0 });
    expect(await teachersOf(again?.id ?? 0)).toMatchObject([{ id: teacher, subjects: ['Chess'] }]);
  });

  test('does not make a teacher class teacher of a second class in the target year', async () => {
    const class_teacher_id = await newTeacher();
    await add({ academic_year_id: from, class_teacher_id });
    const theirs = await add({ academic_year_id: to, class_teacher_id });
    const { data } = await copy();
    expect((await read(data.classes[0]?.id ?? 0)).class_teacher_id).toBeNull();
    expect((await read(theirs.id)).class_teacher_id).toBe(class_teacher_id);
  });

  test('is a 400 within one academic year, and a 422 for an unknown year or a class outside the source year', async () => {
    const known = await add({ academic_year_id: from });
    expect(await copy({ to_academic_year_id: from }, 400)).toMatchObject({
      error: 'validation_error',
      details: [{ path: 'to_academic_year_id' }],
    });
    expect(await copy({ from_academic_year_id: 999_999 }, 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'from_academic_year_id' }],
    });
    expect(await copy({ to_academic_year_id: 999_999 }, 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'to_academic_year_id' }],
    });
    for (const other of [999_999, (await add()).id]) {
      expect(await copy({ class_ids: [known.id, other] }, 422)).toMatchObject({
        error: 'invalid_reference',
        details: [{ path: 'class_ids' }],
      });
    }
    expect((await copy({ class_ids: [] }, 400)).details).toMatchObject([{ path: 'class_ids' }]);
    expect(await classesOf(to)).toEqual([]);
  });

  test('creates each class once if two requests run concurrently', async () => {
    for (let n = 0; n < 3; n++) await add({ academic_year_id: from });
    const answers = await race(service.database, `lock table ${school.schema}.class in share mode`, 2, () => [
      copy(),
      copy(),
    ]);
    expect(answers.map(({ data }) => data.copied).sort()).toEqual([0, 3]);
    expect(answers.map(({ data }) => data.skipped).sort()).toEqual([0, 3]);
    expect(await classesOf(to)).toHaveLength(3);
  });

  test('returns the same response if it is repeated with the same Idempotency-Key', async () => {
    await add({ academic_year_id: from });
    const key = { 'Idempotency-Key': 'copy-once' };
    const body = { from_academic_year_id: from, to_academic_year_id: to };
    const first = await school.admin.send<Copied>('POST', '/api/classes/copy', { body, headers: key }, 200);
    const second = await school.admin.send<Copied>('POST', '/api/classes/copy', { body, headers: key }, 200);
    expect(first.data.copied).toBe(1);
    expect(second.data).toEqual(first.data);
    expect((await copy()).data.copied).toBe(0);
  });
});

describe('the subjects of a grade', () => {
  interface Added {
    added: number;
    skipped: number;
    classes: { class_id: number; added: string[] }[];
  }
  const apply = (body: Record<string, unknown>, status = 200) =>
    school.admin.post<Added>('/api/classes/subjects/by-grade', body, status);

  test('are added to each class from its template, without changing the subjects that a class already has', async () => {
    const grade_id = await newGrade();
    const [maths, art] = [await newSubject({ name: unique('Maths') }), await newSubject({ name: unique('Art') })];
    for (const [subject, periods_per_week] of [
      [maths, 6],
      [art, 2],
    ] as const) {
      await service.database.query(
        `insert into ${school.schema}.grade_subject (grade_id, subject_id, periods_per_week) values ($1, $2, $3)`,
        [grade_id, subject.id, periods_per_week],
      );
    }
    const [one, two] = [await add({ grade_id }), await add({ grade_id })];
    const teacher = await newTeacher();
    await school.insert('class_subject', {
      class_id: two.id,
      subject_id: art.id,
      periods_per_week: 9,
      teacher_id: teacher,
    });
    const { data } = await apply({ grade_id, class_ids: [two.id, one.id, one.id] });
    expect(data).toEqual({
      added: 3,
      skipped: 1,
      classes: [
        { class_id: one.id, added: [art.name, maths.name] },
        { class_id: two.id, added: [maths.name] },
      ],
    });
    expect(await classSubjects(one.id)).toEqual([
      { subject_id: maths.id, periods_per_week: 6, teacher_id: null },
      { subject_id: art.id, periods_per_week: 2, teacher_id: null },
    ]);
    expect(await classSubjects(two.id)).toEqual([
      { subject_id: maths.id, periods_per_week: 6, teacher_id: null },
      { subject_id: art.id, periods_per_week: 9, teacher_id: teacher },
    ]);
    expect((await apply({ grade_id, class_ids: [one.id, two.id] })).data).toMatchObject({
      added: 0,
      skipped: 4,
      classes: [{ added: [] }, { added: [] }],
    });
    expect((await read(one.id)).subject_count).toBe(2);
  });

  test('are all subjects of the school with 5 periods per week if the grade has no template', async () => {
    const grade_id = await newGrade();
    await newSubject();
    const known = await add({ grade_id });
    const subjects = await service.database.query<{ id: number }>(
      `select id::integer from ${school.schema}.subject order by id`,
    );
    const { data } = await apply({ grade_id, class_ids: [known.id] });
    expect(data.added).toBe(subjects.length);
    expect(await classSubjects(known.id)).toEqual(
      subjects.map(({ id }) => ({ subject_id: id, periods_per_week: 5, teacher_id: null })),
    );
  });

  test('cannot be added to a class of another grade: 422 for class_ids, and no class is changed', async () => {
    const grade_id = await newGrade();
    await newSubject();
    const [known, other] = [await add({ grade_id }), await add()];
    for (const id of [other.id, 999_999]) {
      const refused = await apply({ grade_id, class_ids: [known.id, id] }, 422);
      expect(refused).toMatchObject({ error: 'invalid_reference', details: [{ path: 'class_ids' }] });
      expect(refused.message).toContain(String(id));
    }
    expect(await apply({ grade_id: 999_999, class_ids: [known.id] }, 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'grade_id' }],
    });
    expect((await apply({ grade_id, class_ids: [] }, 400)).details).toMatchObject([{ path: 'class_ids' }]);
    expect(await classSubjects(known.id)).toEqual([]);
  });
});
