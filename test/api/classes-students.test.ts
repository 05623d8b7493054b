import { beforeEach, describe, expect, test } from '@jest/globals';
import { ids, walk } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { type Class, classHelpers, type Student } from '../support/fixtures/classes.ts';
import { manyConnections, serviceWithSchool, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool(manyConnections);
const { years, gradeId, newGrade, add, read, addStudent, studentsOf, enrollments, statuses } = await classHelpers(
  service,
  school,
);

describe('the capacity of a class', () => {
  let full: Class;
  let outside: Student;
  beforeEach(async () => {
    full = await add({ capacity: 2 });
    await addStudent({ class_id: full.id });
    await addStudent({ class_id: full.id });
    outside = await addStudent();
  });
  const isFull = { error: 'conflict', details: [{ path: 'class_id' }] };

  test('is enforced on creating a student, updating a student and adding a student to the class', async () => {
    expect(
      await school.admin.post('/api/students', { first_name: 'One', last_name: 'Toomany', class_id: full.id }, 409),
    ).toMatchObject(isFull);
    expect(await school.admin.put(`/api/students/${outside.id}`, { class_id: full.id }, 409)).toMatchObject(isFull);
    const refused = await school.admin.post(`/api/classes/${full.id}/students`, { student_id: outside.id }, 409);
    expect(refused).toMatchObject({ ...isFull, message: `The class ${full.name} has room for 2 students.` });
    expect(await enrollments(outside.id)).toEqual([]);
    expect((await read(full.id)).student_count).toBe(2);
  });

  test('admits another student when one leaves or is deleted, when it is raised, and when it is null', async () => {
    const [first] = await studentsOf(full.id);
    await school.admin.delete(`/api/classes/${full.id}/students/${first?.id}`);
    await school.admin.post(`/api/classes/${full.id}/students`, { student_id: outside.id });
    await school.admin.delete(`/api/students/${outside.id}`);
    await addStudent({ class_id: full.id });
    await school.admin.put(`/api/classes/${full.id}`, { capacity: 3 });
    await addStudent({ class_id: full.id });
    await school.admin.post('/api/students', { first_name: 'One', last_name: 'Toomany', class_id: full.id }, 409);
    await school.admin.put(`/api/classes/${full.id}`, { capacity: null });
    await addStudent({ class_id: full.id });
    expect((await read(full.id)).student_count).toBe(4);
  });

  test('does not prevent updates of a full class and of its students', async () => {
    await school.admin.put(`/api/classes/${full.id}`, { room: 'R1', capacity: 2 });
    const [first] = await studentsOf(full.id);
    await school.admin.put(`/api/students/${first?.id}`, { class_id: full.id, phone: '1' });
  });

  test('cannot be set below the number of students (409)', async () => {
    const refused = await school.admin.put(`/api/classes/${full.id}`, { capacity: 1 }, 409);
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'capacity' }] });
    await school.admin.put(`/api/classes/${full.id}`, { capacity: null });
    expect((await school.admin.put(`/api/classes/${full.id}`, { capacity: 1 }, 409)).error).toBe('conflict');
    expect((await school.admin.put<Class>(`/api/classes/${full.id}`, { capacity: 2 })).data.capacity).toBe(2);
  });

  test('admits only one of three concurrent students to the last seat', async () => {
    const one = await add({ capacity: 1 });
    const answers = await race(
      service.database,
      `select from ${school.schema}.class where id = ${one.id} for update`,
      3,
      () => [
        school.admin.send('POST', `/api/classes/${one.id}/students`, { body: { student_id: outside.id } }),
        school.admin.send('POST', '/api/students', {
          body: { first_name: 'Racing', last_name: 'Student', class_id: one.id },
        }),
        school.admin.send('POST', '/api/students', {
          body: { first_name: 'Racing', last_name: 'Too', class_id: one.id },
        }),
      ],
    );
    expect(statuses(answers).slice(1)).toEqual([409, 409]);
    expect((await read(one.id)).student_count).toBe(1);
  });

  test('is not exceeded if it is lowered while a student joins: one of the two requests is refused', async () => {
    const known = await add({ capacity: 2 });
    await addStudent({ class_id: known.id });
    const answers = await race(
      service.database,
      `select from ${school.schema}.class where id = ${known.id} for update`,
      2,
      () => [
        school.admin.send('PUT', `/api/classes/${known.id}`, { body: { capacity: 1 } }),
        school.admin.send('POST', `/api/classes/${known.id}/students`, { body: { student_id: outside.id } }),
      ],
    );
    expect(statuses(answers)).toEqual([200, 409]);
    const { capacity, student_count } = await read(known.id);
    expect(student_count).toBe(capacity);
  });
});

describe('the students of a class', () => {
  test('are those enrolled and those who completed the year in it; moving a student back to an earlier year removes them from the later class', async () => {
    const [past, now, future] = [
      await add({ academic_year_id: years.past }),
      await add(),
      await add({ academic_year_id: years.future }),
    ];
    const moving = await addStudent({ class_id: past.id });
    const staying = await addStudent({ class_id: past.id });
    const left = await addStudent({ class_id: past.id });
    await school.admin.put(`/api/students/${left.id}`, { class_id: null });
    const counts = async () => [
      (await read(past.id)).student_count,
      (await read(now.id)).student_count,
      (await read(future.id)).student_count,
    ];
    const lists = async () => Promise.all([past, now, future].map(async ({ id }) => ids(await studentsOf(id))));
    const both = [moving.id, staying.id];
    expect(await lists()).toEqual([both, [], []]);
    await school.admin.put(`/api/students/${moving.id}`, { class_id: now.id });
    expect(await lists()).toEqual([both, [moving.id], []]);
    expect(await counts()).toEqual([2, 1, 0]);
    await school.admin.put(`/api/students/${moving.id}`, { class_id: future.id });
    expect(await lists()).toEqual([both, [moving.id], [moving.id]]);
    expect(await counts()).toEqual([2, 1, 1]);
    await school.admin.put(`/api/students/${moving.id}`, { class_id: now.id });
    expect(await lists()).toEqual([both, [moving.id], []]);
    expect(await counts()).toEqual([2, 1, 0]);
  });

  test('include a student who completed a past class twice only once', async () => {
    const [past, now] = [await add({ academic_year_id: years.past }), await add()];
    const student = await addStudent({ class_id: past.id });
    for (const class_id of [now.id, past.id, now.id])
      await school.admin.put(`/api/students/${student.id}`, { class_id });
    expect((await read(past.id)).student_count).toBe(1);
    expect(ids(await studentsOf(past.id))).toEqual([student.id]);
  });

  test('are listed as student records with search, is_active, sort and pages', async () => {
    const { id } = await add();
    const names = ['Zoë', 'Ana', 'Émile', 'Bo'];
    const students: Student[] = [];
    for (const [n, first_name] of names.entries()) {
      students.push(
        await addStudent({
          first_name,
          last_name: 'Same',
          class_id: id,
          roll_number: String(10 - n),
        }),
      );
    }
    const list = async (query: string) =>
      (await school.admin.get<Student[]>(`/api/classes/${id}/students?${query}`)).data.map(
        ({ first_name }) => first_name,
      );
    expect(await list('')).toEqual(['Ana', 'Bo', 'Émile', 'Zoë']);
    expect(await list('order=desc&sort=first_name')).toEqual(['Zoë', 'Émile', 'Bo', 'Ana']);
    expect(await list('sort=roll_number')).toEqual(['Bo', 'Émile', 'Ana', 'Zoë']);
    expect(await list('is_active=true')).toEqual(['Ana', 'Bo', 'Émile', 'Zoë']);
    // A student who has left is in no class any more.
    await addStudent({ first_name: 'Old', last_name: 'Same', class_id: id, is_active: false });
    expect(await list('is_active=false')).toEqual([]);
    expect(await list('search=EMILE')).toEqual(['Émile']);
    expect(ids(await walk<Student>(school.admin, `/api/classes/${id}/students?sort=created_at`, 3))).toEqual(
      ids(students),
    );
    expect((await studentsOf(id))[0]).toEqual(
      (await school.admin.get<Student>(`/api/students/${students[1]?.id}`)).data,
    );
    expect((await school.admin.get(`/api/classes/${id}/students?sort=password`, 400)).details).toMatchObject([
      { path: 'sort' },
    ]);
  });
});

describe('a student', () => {
  test('gets the grade of a class on joining it, and the previous enrollment is kept as transferred', async () => {
    const [from, to] = [await add(), await add({ grade_id: await newGrade() })];
    const student = await addStudent({ class_id: from.id });
    const { data } = await school.admin.post<Student>(`/api/classes/${to.id}/students`, { student_id: student.id });
    expect(data).toMatchObject({ id: student.id, class_id: to.id, grade_id: to.grade_id, academic_year_id: years.now });
    expect(data).toEqual((await school.admin.get<Student>(`/api/students/${student.id}`)).data);
    expect(await enrollments(student.id)).toEqual([
      { class_id: from.id, status: 'transferred' },
      { class_id: to.id, status: 'active' },
    ]);
    expect([(await studentsOf(from.id)).length, (await studentsOf(to.id)).length]).toEqual([0, 1]);
  });

  test('cannot be added if already in the class (409), unknown or deleted (422)', async () => {
    const known = await add();
    const student = await addStudent({ class_id: known.id });
    const path = `/api/classes/${known.id}/students`;
    expect(await school.admin.post(path, { student_id: student.id }, 409)).toMatchObject({
      error: 'conflict',
      details: [{ path: 'student_id' }],
    });
    expect(await enrollments(student.id)).toHaveLength(1);
    await school.admin.delete(`/api/students/${student.id}`);
    for (const student_id of [student.id, 999_999]) {
      expect(await school.admin.post(path, { student_id }, 422)).toMatchObject({
        error: 'invalid_reference',
        details: [{ path: 'student_id' }],
      });
    }
    expect((await school.admin.post(path, {}, 400)).details).toMatchObject([{ path: 'student_id' }]);
  });

  test('has no class after being removed from it; a second removal is a 404', async () => {
    const [known, other] = [await add(), await add()];
    const student = await addStudent({ class_id: known.id });
    expect((await school.admin.delete(`/api/classes/${other.id}/students/${student.id}`, 404)).error).toBe('not_found');
    expect((await school.admin.delete<{ id: number }>(`/api/classes/${known.id}/students/${student.id}`)).data).toEqual(
      { id: student.id },
    );
    await school.admin.delete(`/api/classes/${known.id}/students/${student.id}`, 404);
    await school.admin.delete(`/api/classes/${known.id}/students/999999`, 404);
    expect(await enrollments(student.id)).toEqual([{ class_id: known.id, status: 'withdrawn' }]);
    expect((await school.admin.get<Student>(`/api/students/${student.id}`)).data).toMatchObject({
      class_id: null,
      grade_id: known.grade_id,
    });
  });

  test('cannot be removed from a past class after completing it (404)', async () => {
    const [past, now] = [await add({ academic_year_id: years.past }), await add()];
    const student = await addStudent({ class_id: past.id });
    await school.admin.put(`/api/students/${student.id}`, { class_id: now.id });
    await school.admin.delete(`/api/classes/${past.id}/students/${student.id}`, 404);
    expect(ids(await studentsOf(past.id))).toEqual([student.id]);
  });

  test('is listed as unassigned for every class but their own while active; the list filters by without_class and grade_id', async () => {
    const [known, other] = [await add(), await add()];
    const mark = unique('Loose');
    const inside = await addStudent({ class_id: known.id, last_name: mark });
    const elsewhere = await addStudent({ class_id: other.id, last_name: mark });
    const free = await addStudent({ last_name: mark, grade_id: await newGrade(), first_name: 'Zoë' });
    await addStudent({ last_name: mark, is_active: false });
    const deleted = await addStudent({ last_name: mark });
    await school.admin.delete(`/api/students/${deleted.id}`);
    const list = async (query = '', id = known.id) =>
      ids(
        (
          await school.admin.get<Student[]>(
            `/api/classes/${id}/unassigned-students?search=${encodeURIComponent(mark)}&${query}`,
          )
        ).data,
      );
    expect(await list()).toEqual([elsewhere.id, free.id]);
    expect(await list('order=desc&sort=first_name')).toEqual([free.id, elsewhere.id]);
    expect(await list('', other.id)).toEqual([inside.id, free.id]);
    expect(await list('without_class=true')).toEqual([free.id]);
    expect(await list('without_class=false')).toEqual([elsewhere.id]);
    expect(await list(`grade_id=${gradeId}`)).toEqual([elsewhere.id]);
    expect(
      ids(
        await walk<Student>(
          school.admin,
          `/api/classes/${known.id}/unassigned-students?search=${encodeURIComponent(mark)}`,
          1,
        ),
      ),
    ).toEqual([elsewhere.id, free.id]);
  });
});
