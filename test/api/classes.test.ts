import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { ids, inOrder, plain, walk } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { type School, testService, type TestService, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type {
  Class as ClassSchema,
  ClassTeacher as ClassTeacherSchema,
  CopiedClasses as CopiedClassesSchema,
} from '../../src/endpoints/classes.ts';
import type { Student as StudentSchema } from '../../src/endpoints/students.ts';

let service: TestService;
let school: School;
/** The current academic year, one long ago, one far ahead. */
let years: { now: number; past: number; future: number };
let gradeId: number;

type Class = OutputOf<typeof ClassSchema>;
type Student = OutputOf<typeof StudentSchema>;
type ClassTeacher = OutputOf<typeof ClassTeacherSchema>;
type Copied = OutputOf<typeof CopiedClassesSchema>;

/** The current academic year, one long ago, one far ahead, all with no class. */
async function makeYears(at: School): Promise<typeof years> {
  const year = new Date().getUTCFullYear();
  return {
    now: await at.insert('academic_year', {
      name: 'Now',
      start_date: `${year}-01-01`,
      end_date: `${year}-12-31`,
      is_current: true,
    }),
    past: await at.insert('academic_year', { name: 'Long ago', start_date: '1990-01-01', end_date: '1990-12-31' }),
    future: await at.insert('academic_year', { name: 'Far ahead', start_date: '2190-01-01', end_date: '2190-12-31' }),
  };
}

beforeAll(async () => {
  service = await testService();
  school = await service.school();
  years = await makeYears(school);
  gradeId = await school.insert('grade', { name: 'Grade 5', sequence: 5 });
});
afterAll(() => service.close());

const newGrade = () => school.insert('grade', { name: unique('Grade') });
const newTeacher = (fields: Record<string, unknown> = {}) =>
  school.insert('teacher', { first_name: 'Te', last_name: unique('Acher'), ...fields });
const newSubject = async (fields: { name?: string; code?: string } = {}) => {
  const subject = { name: unique('Subject'), code: unique('CODE'), ...fields };
  return { id: await school.insert('subject', subject), ...subject };
};

const add = async (fields: Record<string, unknown> = {}) =>
  (
    await school.admin.post<Class>(
      '/api/classes',
      { name: unique('Class'), grade_id: gradeId, academic_year_id: years.now, ...fields },
      201,
    )
  ).data;
const read = async (id: number) => (await school.admin.get<Class>(`/api/classes/${id}`)).data;
const addStudent = async (fields: Record<string, unknown> = {}) =>
  (
    await school.admin.post<Student>(
      '/api/students',
      { first_name: 'Sam', last_name: unique('Student'), ...fields },
      201,
    )
  ).data;
const teachersOf = async (id: number) =>
  (await school.admin.get<ClassTeacher[]>(`/api/classes/${id}/teachers?pageSize=100`)).data;
const studentsOf = async (id: number) =>
  (await school.admin.get<Student[]>(`/api/classes/${id}/students?pageSize=100`)).data;
const enrollments = (studentId: number) =>
  service.database.query(
    `select class_id::integer, status from ${school.schema}.enrollment where student_id = $1 order by id`,
    [studentId],
  );
const classSubjects = (classId: number) =>
  service.database.query(
    `select subject_id::integer, periods_per_week, teacher_id::integer from ${school.schema}.class_subject where class_id = $1 order by subject_id`,
    [classId],
  );

const statuses = (answers: { status: number }[]) => answers.map(({ status }) => status).sort();

/** A user with the teacher role, and the teacher that they are. */
async function teacherUser(): Promise<{ client: Client; teacherId: number }> {
  const client = await school.user(['teacher']);
  return { client, teacherId: await newTeacher({ user_id: client.id }) };
}

describe('classes', () => {
  test('a class that was added is read back as it was sent, with the names beside its ids', async () => {
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

  test('name, grade and academic year are enough, and each of them is needed', async () => {
    const name = unique('Bare');
    expect(await read((await add({ name })).id)).toMatchObject({
      name,
      section: null,
      class_teacher_id: null,
      capacity: null,
      room: null,
      medium_id: null,
    });
    const refused = await school.admin.post('/api/classes', {}, 400);
    expect(refused.details.map(({ path }) => path).sort()).toEqual(['academic_year_id', 'grade_id', 'name']);
  });

  test('names are trimmed, and an empty section is none', async () => {
    const name = unique('Trimmed');
    expect(await add({ name: `  ${name} `, section: ' ', room: '' })).toMatchObject({
      name,
      section: null,
      room: null,
    });
  });

  test('what does not fit is a 400 that names each field, and nothing is written', async () => {
    const before = (await school.admin.get('/api/classes?pageSize=1')).pagination.totalItems;
    const refused = await school.admin.post(
      '/api/classes',
      {
        name: '',
        section: 'x'.repeat(51),
        grade_id: 'five',
        academic_year_id: 1.5,
        capacity: 0,
        room: 7,
        colour: 'red',
        student_count: 3,
      },
      400,
    );
    expect(refused.details.map(({ path }) => path).sort()).toEqual(
      ['academic_year_id', 'capacity', 'colour', 'grade_id', 'name', 'room', 'section', 'student_count'].sort(),
    );
    expect((await school.admin.get('/api/classes?pageSize=1')).pagination.totalItems).toBe(before);
  });

  test('a class that does not exist is a 404 everywhere below it', async () => {
    const teacher_id = await newTeacher();
    const student_id = (await addStudent()).id;
    const answers = [
      await school.admin.get('/api/classes/999999', 404),
      await school.admin.put('/api/classes/999999', { name: 'X' }, 404),
      await school.admin.delete('/api/classes/999999', 404),
      await school.admin.get('/api/classes/999999/students', 404),
      await school.admin.post('/api/classes/999999/students', { student_id }, 404),
      await school.admin.delete(`/api/classes/999999/students/${student_id}`, 404),
      await school.admin.get('/api/classes/999999/unassigned-students', 404),
      await school.admin.get('/api/classes/999999/teachers', 404),
      await school.admin.post('/api/classes/999999/teachers', { teacher_id }, 404),
      await school.admin.delete(`/api/classes/999999/teachers/${teacher_id}`, 404),
      await school.admin.get('/api/classes/999999/unassigned-teachers', 404),
    ];
    expect(new Set(answers.map(({ error }) => error))).toEqual(new Set(['not_found']));
    expect((await school.admin.get('/api/classes/first', 400)).details).toMatchObject([{ path: 'id' }]);
  });

  test.each(['grade_id', 'academic_year_id', 'class_teacher_id', 'school_unit_id', 'programme_id', 'medium_id'])(
    'a %s that does not exist is a 422 that names it, for a new class and for an old one',
    async (field) => {
      const refused = await school.admin.post(
        '/api/classes',
        { name: unique('None'), grade_id: gradeId, academic_year_id: years.now, [field]: 999_999 },
        422,
      );
      expect(refused).toMatchObject({ error: 'invalid_reference', details: [{ path: field }] });
      const known = await add();
      await addStudent({ class_id: known.id });
      const again = await school.admin.put(`/api/classes/${known.id}`, { [field]: 999_999 }, 422);
      expect(again).toMatchObject({ error: 'invalid_reference', details: [{ path: field }] });
    },
  );

  test('name and section are unique in their year, in any case; another section or another year is free', async () => {
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

  test('of two classes of one name that are added at once one is made', async () => {
    const body = { name: unique('Twin'), section: 'A', grade_id: gradeId, academic_year_id: years.now };
    const answers = await race(service.database, `lock table ${school.schema}.class in share mode`, 2, () =>
      [1, 2].map(() => school.admin.send('POST', '/api/classes', { body })),
    );
    expect(statuses(answers)).toEqual([201, 409]);
    expect((await school.admin.get(`/api/classes?search=${encodeURIComponent(body.name)}`)).pagination.totalItems).toBe(
      1,
    );
  });

  test('an Idempotency-Key adds one class however often the request comes', async () => {
    const body = { name: unique('Key'), grade_id: gradeId, academic_year_id: years.now };
    const post = () =>
      school.admin.send<Class>('POST', '/api/classes', { body, headers: { 'Idempotency-Key': 'class-1' } }, 201);
    expect((await post()).data).toEqual((await post()).data);
  });

  test('a class counts in what the platform shows of the school, from when it comes until it goes', async () => {
    const total = async () =>
      (await service.operator.get<{ stats: { total_classes: number } }>(`/api/platform/tenants/${school.id}`)).data
        .stats.total_classes;
    const before = await total();
    const { id } = await add();
    expect(await total()).toBe(before + 1);
    await school.admin.delete(`/api/classes/${id}`);
    expect(await total()).toBe(before);
  });
});

describe('a change of a class', () => {
  test('takes any subset and leaves the rest', async () => {
    const known = await add({ section: 'C', capacity: 20, room: 'R1' });
    const { data } = await school.admin.put<Class>(`/api/classes/${known.id}`, { room: 'R2' });
    expect(data).toEqual({ ...known, room: 'R2', updated_at: data.updated_at });
    expect(await read(known.id)).toEqual(data);
  });

  test('clears by null what may be empty, and refuses to clear what may not', async () => {
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
    for (const field of ['name', 'grade_id', 'academic_year_id']) {
      expect((await school.admin.put(`/api/classes/${known.id}`, { [field]: null }, 400)).details).toMatchObject([
        { path: field },
      ]);
    }
  });

  test('may be the whole record as it was read, also when students came meanwhile, and refuses to set what is counted', async () => {
    const known = await add({ class_teacher_id: await newTeacher() });
    await addStudent({ class_id: known.id });
    const { data } = await school.admin.put<Class>(`/api/classes/${known.id}`, { ...known, room: 'R9' });
    expect(data).toEqual({ ...known, room: 'R9', student_count: 1, updated_at: data.updated_at });
    expect(
      (await school.admin.put(`/api/classes/${known.id}`, { ...data, grade_name: 'Other' }, 400)).details,
    ).toMatchObject([{ path: 'grade_name' }]);
  });

  test('goes through with a fresh If-Match and is a 412 with a stale one; a student more is no other version', async () => {
    const known = await add();
    const path = `/api/classes/${known.id}`;
    const etag = (await school.admin.get(path)).headers.get('etag') ?? '';
    await addStudent({ class_id: known.id });
    const put = (status: number) =>
      school.admin.send('PUT', path, { body: { room: 'R3' }, headers: { 'If-Match': etag } }, status);
    await put(200);
    expect((await put(412)).error).toBe('precondition_failed');
  });

  test('of the grade moves its students, those who left stay', async () => {
    const [from, to] = [await newGrade(), await newGrade()];
    const known = await add({ grade_id: from });
    const inside = await addStudent({ class_id: known.id });
    const gone = await addStudent({ class_id: known.id });
    await school.admin.put(`/api/students/${gone.id}`, { class_id: null });
    await school.admin.put(`/api/classes/${known.id}`, { grade_id: to });
    const gradeOf = async ({ id }: Student) => (await school.admin.get<Student>(`/api/students/${id}`)).data.grade_id;
    expect([await gradeOf(inside), await gradeOf(gone)]).toEqual([to, from]);
  });

  test('of the grade, while a student enters, leaves the student in the grade of the class', async () => {
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

  test('of the academic year is a 409 once somebody was enrolled, and goes through before', async () => {
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

  test('of the academic year, while a student enters, never leaves an enrollment of another year than its class', async () => {
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

describe('the class teacher', () => {
  test('of one class is that of no other in the same year; in another year they may be', async () => {
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

  test('has to be active and there: else a 422; one who left meanwhile stays until another comes', async () => {
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
    await service.database.query(`update ${school.schema}.teacher set is_active = false where id = $1`, [
      known.class_teacher_id,
    ]);
    expect(
      (await school.admin.put<Class>(`/api/classes/${known.id}`, { ...known, room: 'R5' })).data.class_teacher_id,
    ).toBe(known.class_teacher_id);
  });

  test.each<[string, (id: number, teacherId: number) => [string, string, object]]>([
    ['a change of the class', (id, class_teacher_id) => ['PUT', `/api/classes/${id}`, { class_teacher_id }]],
    [
      'an assignment',
      (id, teacher_id) => ['POST', `/api/classes/${id}/teachers`, { teacher_id, is_class_teacher: true }],
    ],
  ])('of two classes that take the same one at once, by %s, one gets them', async (_how, request) => {
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

describe('the capacity', () => {
  let full: Class;
  let outside: Student;
  beforeEach(async () => {
    full = await add({ capacity: 2 });
    await addStudent({ class_id: full.id });
    await addStudent({ class_id: full.id });
    outside = await addStudent();
  });
  const isFull = { error: 'conflict', details: [{ path: 'class_id' }] };

  test('holds for a new student, a moved one and one that the class takes in', async () => {
    expect(
      await school.admin.post('/api/students', { first_name: 'One', last_name: 'Toomany', class_id: full.id }, 409),
    ).toMatchObject(isFull);
    expect(await school.admin.put(`/api/students/${outside.id}`, { class_id: full.id }, 409)).toMatchObject(isFull);
    const refused = await school.admin.post(`/api/classes/${full.id}/students`, { student_id: outside.id }, 409);
    expect(refused).toMatchObject({ ...isFull, message: `The class ${full.name} has room for 2 students.` });
    expect(await enrollments(outside.id)).toEqual([]);
    expect((await read(full.id)).student_count).toBe(2);
  });

  test('leaves room again when a student leaves, is deleted or more room is made; null is no limit', async () => {
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

  test('a full class may be changed, and so may its students', async () => {
    await school.admin.put(`/api/classes/${full.id}`, { room: 'R1', capacity: 2 });
    const [first] = await studentsOf(full.id);
    await school.admin.put(`/api/students/${first?.id}`, { class_id: full.id, phone: '1' });
  });

  test('is no less than the students of the class: 409, and as many as they are will do', async () => {
    const refused = await school.admin.put(`/api/classes/${full.id}`, { capacity: 1 }, 409);
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'capacity' }] });
    await school.admin.put(`/api/classes/${full.id}`, { capacity: null });
    expect((await school.admin.put(`/api/classes/${full.id}`, { capacity: 1 }, 409)).error).toBe('conflict');
    expect((await school.admin.put<Class>(`/api/classes/${full.id}`, { capacity: 2 })).data.capacity).toBe(2);
  });

  test('of two who take the last seat at once, one way or another, one gets it', async () => {
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

  test('that goes down while a student enters: one of the two is refused', async () => {
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

describe('a class that goes', () => {
  test('is refused while students are in it, and as long as it has a history', async () => {
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

  test('takes its subjects and teachers with it', async () => {
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
  let everybody: Class[];
  const of: Record<
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
    of.academic_year_id = [own.now, own.past];
    for (const [name, sequence] of [
      ['Ten', 10],
      ['Two', 2],
      ['None', null],
    ] as const) {
      const id = await lists.insert('grade', { name, sequence });
      of.grade_id.push(id);
      sequences.set(id, sequence);
    }
    for (const table of ['school_unit', 'programme', 'medium'] as const) {
      for (const name of ['One', 'Other']) of[`${table}_id`].push(await lists.insert(table, { name }));
    }
    for (let n = 0; n < 12; n++)
      of.class_teacher_id.push(await lists.insert('teacher', { first_name: 'T', last_name: `Number ${n}` }));
    const names = ['Élan', 'elan', 'Zebra', 'Ångström'];
    for (let n = 0; n < 24; n++) {
      const { data } = await lists.admin.post<Class>(
        '/api/classes',
        {
          name: `${names[n % 4] ?? ''}${n % 8}`,
          section: [null, 'Bq', 'a'][n % 3] ?? null,
          grade_id: of.grade_id[n % 3],
          academic_year_id: of.academic_year_id[n < 12 ? 0 : 1],
          class_teacher_id: of.class_teacher_id[n % 12],
          room: n === 7 ? 'Müllersaal' : `R${n}`,
          school_unit_id: of.school_unit_id[n % 2],
          programme_id: n % 4 === 0 ? of.programme_id[0] : null,
          medium_id: n % 5 === 0 ? of.medium_id[n % 2] : null,
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
    everybody = await walk<Class>(lists.admin, '/api/classes', 100);
  });

  const found = async (query: string) => (await lists.admin.get<Class[]>(`/api/classes?pageSize=100&${query}`)).data;
  const keys: Record<string, (record: Class) => (string | number | null)[]> = {
    grade: ({ grade_id, name, section }) => [sequences.get(grade_id) ?? null, plain(name), plain(section ?? '')],
    name: ({ name, section }) => [plain(name), plain(section ?? '')],
    created_at: ({ created_at }) => [created_at],
    student_count: ({ student_count }) => [student_count],
  };

  test('goes by grade, then name and section, when nothing is said', async () => {
    const list = await lists.admin.get<Class[]>('/api/classes');
    expect(list.pagination).toEqual({ page: 1, pageSize: 20, totalItems: 24, totalPages: 2 });
    expect(ids(list.data)).toEqual(ids(inOrder(everybody, keys['grade'] ?? (() => []), 'asc')).slice(0, 20));
  });

  test.each(Object.keys(keys).flatMap((sort) => (['asc', 'desc'] as const).map((order) => [sort, order] as const)))(
    'sorted by %s %s, its pages together are all classes once, in order, ties by id',
    async (sort, order) => {
      const walked = await walk<Class>(lists.admin, `/api/classes?sort=${sort}&order=${order}`, 5);
      expect(ids(walked)).toEqual(ids(inOrder(everybody, keys[sort] ?? (() => []), order)));
    },
  );

  test.each(Object.keys(of) as (keyof typeof of)[])('%s narrows it', async (filter) => {
    for (const id of of[filter]) {
      const expected = everybody.filter((record) => record[filter] === id);
      expect(ids(await found(`${filter}=${id}`))).toEqual(ids(expected));
    }
    expect(everybody.some((record) => record[filter] === of[filter][0])).toBe(true);
    expect(await found(`${filter}=999999`)).toEqual([]);
  });

  test('filters and search narrow it together', async () => {
    const expected = everybody.filter(
      (record) =>
        record.academic_year_id === of.academic_year_id[0] &&
        record.grade_id === of.grade_id[1] &&
        plain(record.name).startsWith('elan'),
    );
    expect(expected.length).toBeGreaterThan(0);
    expect(
      ids(await found(`academic_year_id=${of.academic_year_id[0]}&grade_id=${of.grade_id[1]}&search=ELAN`)),
    ).toEqual(ids(expected));
  });

  test.each([
    ['the name in any case, without its accents', 'ELAN', (record: Class) => plain(record.name).startsWith('elan')],
    ['the name with accents that it has not', 'ébra', (record: Class) => record.name.startsWith('Zebra')],
    ['section beside name', 'BQ zebra6', (record: Class) => record.name === 'Zebra6' && record.section === 'Bq'],
    ['the room', 'mullersaal', (record: Class) => record.room === 'Müllersaal'],
    ['words of which one does not fit', 'zebra nothing', () => false],
    ['% as itself', '%25', () => false],
    ['nothing', '', () => true],
  ])('search takes %s', async (_what, search, fits) => {
    expect(ids(await found(`search=${encodeURIComponent(decodeURIComponent(search))}`))).toEqual(
      ids(everybody.filter(fits)),
    );
  });

  test.each([
    ['sort=room', 'sort'],
    ['order=up', 'order'],
    ['page=0', 'page'],
    ['grade_id=first', 'grade_id'],
    ['colour=red', 'colour'],
  ])('%s is a 400 that names the parameter', async (query, path) => {
    expect((await lists.admin.get(`/api/classes?${query}`, 400)).details.map((detail) => detail.path)).toEqual([path]);
  });

  test('every record of it is the record that its id answers', async () => {
    for (const record of everybody.slice(0, 3))
      expect((await lists.admin.get<Class>(`/api/classes/${record.id}`)).data).toEqual(record);
  });
});

describe('who belongs to a class', () => {
  test('is who is enrolled in it, and who completed the year in it; who is put back into an earlier year was never in the later one', async () => {
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

  test('counts once who was in a past class twice', async () => {
    const [past, now] = [await add({ academic_year_id: years.past }), await add()];
    const student = await addStudent({ class_id: past.id });
    for (const class_id of [now.id, past.id, now.id])
      await school.admin.put(`/api/students/${student.id}`, { class_id });
    expect((await read(past.id)).student_count).toBe(1);
    expect(ids(await studentsOf(past.id))).toEqual([student.id]);
  });

  test('is a list of student records with search, is_active, sort and pages', async () => {
    const { id } = await add();
    const names = ['Zoë', 'Ana', 'Émile', 'Bo'];
    const students: Student[] = [];
    for (const [n, first_name] of names.entries()) {
      students.push(
        await addStudent({
          first_name,
          last_name: 'Same',
          class_id: id,
          is_active: n !== 1,
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
    expect(await list('is_active=false')).toEqual(['Ana']);
    expect(await list('search=EMILE')).toEqual(['Émile']);
    expect(ids(await walk<Student>(school.admin, `/api/classes/${id}/students?sort=created_at`, 3))).toEqual(
      ids(students),
    );
    expect((await studentsOf(id))[0]).toEqual(
      (await school.admin.get<Student>(`/api/students/${students[1]?.id}`)).data,
    );
    expect((await school.admin.get(`/api/classes/${id}/students?sort=phone`, 400)).details).toMatchObject([
      { path: 'sort' },
    ]);
  });
});

describe('a student', () => {
  test('moves into a class, the grade follows and the history is kept', async () => {
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

  test('who is in the class already is a 409; one who does not exist or was deleted a 422', async () => {
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

  test('leaves a class into none; whoever is not in it is a 404', async () => {
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

  test('who completed a past class is no longer in it: a 404', async () => {
    const [past, now] = [await add({ academic_year_id: years.past }), await add()];
    const student = await addStudent({ class_id: past.id });
    await school.admin.put(`/api/students/${student.id}`, { class_id: now.id });
    await school.admin.delete(`/api/classes/${past.id}/students/${student.id}`, 404);
    expect(ids(await studentsOf(past.id))).toEqual([student.id]);
  });

  test('is among the unassigned of every class but their own while active; without_class and grade_id narrow, search finds', async () => {
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

describe('the teachers of a class', () => {
  const assign = (id: number, body: Record<string, unknown>, status = 200) =>
    school.admin.post<ClassTeacher>(`/api/classes/${id}/teachers`, body, status);

  test('are one row each, whatever makes them that: class teacher, subjects, words', async () => {
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
      subjects: ['Art', 'Chess', 'Mathematics'],
    });
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

  test('come by an assignment that answers what they are there, as often as it is said', async () => {
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
  ])(
    'take over a subject of the class that the assignment names by %s, in any case: it is theirs alone',
    async (_by, subject) => {
      const known = await add();
      const biology = await newSubject({ name: 'Biology', code: unique('BIO-5') });
      await school.insert('class_subject', { class_id: known.id, subject_id: biology.id, periods_per_week: 4 });
      const words = subject === 'bio-5' ? biology.code.toLowerCase() : subject;
      const [first, second] = [await newTeacher(), await newTeacher()];
      await school.insert('teaching_assignment', { class_id: known.id, teacher_id: first, subject: 'biology' });
      expect((await assign(known.id, { teacher_id: first, subject: words })).data.subjects).toEqual(['Biology']);
      expect(await classSubjects(known.id)).toEqual([
        { subject_id: biology.id, periods_per_week: 4, teacher_id: first },
      ]);
      expect((await assign(known.id, { teacher_id: second, subject: words })).data.subjects).toEqual(['Biology']);
      expect(await classSubjects(known.id)).toMatchObject([{ teacher_id: second }]);
      expect(ids(await teachersOf(known.id))).toEqual([second]);
    },
  );

  test('have one class teacher among them: the next one replaces the former, who keeps what else they teach', async () => {
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

  test('are active and there: any other is a 422; one who left shows as inactive', async () => {
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

  test('go with all that they teach there, and stay in other classes', async () => {
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

  test('can be chosen from the active ones who do not teach it', async () => {
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

  test('who are class teacher nowhere in a year are available for it, the current year unless another is named', async () => {
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

  test('are also those whom the timetable of the class has, and go only after it', async () => {
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

describe('a copy', () => {
  /** Of the years, which may not overlap. */
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

  test('has the structure, subjects and teachers of the classes, and never their students', async () => {
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
    const made = await read(first?.id ?? 0);
    expect(made).toEqual({
      ...known,
      id: made.id,
      academic_year_id: to,
      academic_year_name: made.academic_year_name,
      student_count: 0,
      subject_count: 2,
      created_at: made.created_at,
      updated_at: made.updated_at,
    });
    expect(await classSubjects(made.id)).toEqual([
      { subject_id: subjects[0]?.id, periods_per_week: 6, teacher_id: two },
      { subject_id: subjects[1]?.id, periods_per_week: 3, teacher_id: null },
    ]);
    expect((await teachersOf(made.id)).map(({ id, is_class_teacher }) => [id, is_class_teacher])).toEqual([
      [one, true],
      [two, false],
    ]);
    expect((await teachersOf(made.id))[1]?.subjects.sort()).toEqual([subjects[0]?.name, 'Chess'].sort());
    expect((await read(other?.id ?? 0)).class_teacher_id).toBeNull();
    expect((await read(known.id)).student_count).toBe(1);
  });

  test('skips what the year has already by name and section, with the reason; done again it skips all', async () => {
    const name = unique('Both');
    const [a, b] = [
      await add({ academic_year_id: from, name, section: 'A' }),
      await add({ academic_year_id: from, name, section: 'B' }),
    ];
    await add({ academic_year_id: to, name: name.toUpperCase(), section: 'a' });
    const { data } = await copy();
    expect(data).toMatchObject({ copied: 1, skipped: 1, classes: [{ copied_from: b.id }] });
    expect(data.skipped_classes).toEqual([
      { class_id: a.id, name, section: 'A', reason: 'The academic year has a class of this name and section.' },
    ]);
    const again = await copy();
    expect(again.data).toMatchObject({ copied: 0, skipped: 2, classes: [] });
    expect(again.data.skipped_classes.map(({ class_id }) => class_id)).toEqual([a.id, b.id]);
    expect(await classesOf(to)).toHaveLength(2);
  });

  test('takes only the classes that are named, and neither subjects nor teachers where they are not wanted', async () => {
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
    const [made] = await classesOf(to);
    expect(await classesOf(to)).toHaveLength(1);
    expect(made).toMatchObject({ name: known.name, class_teacher_id: null, subject_count: 1 });
    expect(await teachersOf(made?.id ?? 0)).toEqual([]);
    await school.admin.delete(`/api/classes/${made?.id}`);
    await copy({ class_ids: [known.id], include_subjects: false });
    const [again] = await classesOf(to);
    expect(again).toMatchObject({ class_teacher_id: teacher, subject_count: 0 });
    expect(await teachersOf(again?.id ?? 0)).toMatchObject([{ id: teacher, subjects: ['Chess'] }]);
  });

  test('leaves a teacher who is class teacher in that year already with the class that they have', async () => {
    const class_teacher_id = await newTeacher();
    await add({ academic_year_id: from, class_teacher_id });
    const theirs = await add({ academic_year_id: to, class_teacher_id });
    const { data } = await copy();
    expect((await read(data.classes[0]?.id ?? 0)).class_teacher_id).toBeNull();
    expect((await read(theirs.id)).class_teacher_id).toBe(class_teacher_id);
  });

  test('within one year is a 400; a year or class that is not there, or a class of another year, a 422', async () => {
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

  test('that runs twice at once makes each class once', async () => {
    for (let n = 0; n < 3; n++) await add({ academic_year_id: from });
    const answers = await race(service.database, `lock table ${school.schema}.class in share mode`, 2, () => [
      copy(),
      copy(),
    ]);
    expect(answers.map(({ data }) => data.copied).sort()).toEqual([0, 3]);
    expect(answers.map(({ data }) => data.skipped).sort()).toEqual([0, 3]);
    expect(await classesOf(to)).toHaveLength(3);
  });

  test('with an Idempotency-Key answers the same when it is sent again', async () => {
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

  test('come from its template to each class; what a class has stays as it is', async () => {
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

  test('are all subjects of the school, 5 periods a week, for a grade without a template', async () => {
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

  test('go to no class of another grade: a 422 that names class_ids, and none gets any', async () => {
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

describe('permissions', () => {
  test('a teacher reaches the classes that they teach, from the next request after they come until the next after they go', async () => {
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

  test('whoever is replaced as class teacher or in a subject no longer reaches the class', async () => {
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

  test('a teacher and an accountant read and do not write; a student and a stranger do not even read', async () => {
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
    for (const who of [teacher, accountant, await school.user(['student'])]) {
      for (const [method, path, body] of writes)
        expect((await who.send(method, path, { body }, 403)).error).toBe('forbidden');
    }
    const pupil = await school.user(['student']);
    for (const path of ['', `/${known.id}`, `/${known.id}/students`, `/${known.id}/teachers`])
      await pupil.get(`/api/classes${path}`, 403);
    await service.anonymous.get('/api/classes', 401);
    expect((await studentsOf(known.id)).length).toBe(1);
  });

  test('students of a class show only to who may read both students and classes, and so does the one that is moved', async () => {
    const known = await add();
    const student = await addStudent();
    const withPermissions = async (...permissions: string[]) => school.user([await school.role(...permissions)]);
    const lists = [`/api/classes/${known.id}/students`, `/api/classes/${known.id}/unassigned-students`];
    for (const who of [await withPermissions('class.read'), await withPermissions('student.read')]) {
      for (const path of lists) expect((await who.get(path, 403)).error).toBe('forbidden');
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
