import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { populate } from '../support/fixtures/populate.ts';
import {
  findErrors,
  isForSchools,
  references,
  type Registered,
  registry,
  sampleRequest,
} from '../support/server/registry.ts';
import { type School, testService } from '../support/server/service.ts';
import { checksums } from '../support/database/traces.ts';
import { type Answered, send, type Sent } from '../support/client/wire.ts';

// A school where the roles teacher, student and guardian have every permission: only the row scope still limits teachers
// to their classes, students to their own rows and guardians to their children.
const service = await testService();
afterAll(() => service.close());
const { endpoints, document } = await registry(service);
const mine = endpoints.filter((endpoint) => isForSchools(endpoint) && endpoint.operation.access === 'tenant');

/** Ids within the scope: student, class, teacher, and their records. */
const near = 500_001;
/** Ids outside the scope. */
const far = 600_001;
/** Part of every text outside the scope. */
const marker = 'Xyzzy';

let school: School;
let teacher: Client & { id: number };
let student: Client & { id: number };
let guardian: Client & { id: number };

/** What the school stores, once the notifications of earlier requests are written. */
async function stored() {
  await service.settled();
  return checksums(service.database, school.schema);
}

/** Logs in again, with the present permissions of the roles. */
async function again(user: { id: number }): Promise<Client & { id: number }> {
  const [row] = await service.database.query<{ email: string }>(
    `select email from ${school.schema}.user_account where id = $1`,
    [user.id],
  );
  const client = await service.anonymous.login({ tenant_id: school.id, email: row?.email, password: 'test-password' });
  return Object.assign(client, { id: user.id });
}

beforeAll(async () => {
  school = await service.school();
  await populate(service, school, { endpoints, document }, near - 1, 'Plain');
  await populate(service, school, { endpoints, document }, far - 1, marker);
  teacher = await school.user(['teacher']);
  student = await school.user(['student']);
  guardian = await school.user(['guardian']);
  const { schema } = school;
  await service.database.query(`update ${schema}.teacher set user_id = $1 where id = $2`, [teacher.id, near]);
  await service.database.query(`delete from ${schema}.class_subject where class_id <> id`);
  for (const id of [near, far]) {
    await service.database.query(`delete from ${schema}.teaching_assignment where class_id = $1 or teacher_id = $1`, [
      id,
    ]);
    await service.database.query(`update ${schema}.class_subject set teacher_id = null where class_id = $1`, [id]);
    await service.database.query(`update ${schema}.class set class_teacher_id = null where class_teacher_id = $1`, [
      id,
    ]);
    await service.database.query(`update ${schema}.class set class_teacher_id = $1 where id = $1`, [id]);
    await service.database.query(`update ${schema}.student set class_id = $1, user_id = null where id = $1`, [id]);
    await service.database.query(`delete from ${schema}.enrollment where student_id = $1 and class_id <> $1`, [id]);
  }
  await service.database.query(`update ${schema}.student set user_id = $1 where id = $2`, [student.id, near]);
  await service.database.query(`delete from ${schema}.student_guardian`);
  for (const id of [near, far])
    await service.database.query(
      `insert into ${schema}.student_guardian (student_id, guardian_id, is_primary) values ($1, $1, true)`,
      [id],
    );
  await service.database.query(`update ${schema}.guardian set user_id = $1 where id = $2`, [guardian.id, near]);
  await service.database.query(
    `update ${schema}.student set first_name = $1, address = $1, parent_name = $1 where id = $2`,
    [marker, far],
  );
  await service.database.query(`update ${schema}.teacher set address = $1, phone = $1 where id = $2`, [
    `${marker} private`,
    far,
  ]);
  await service.database.query(
    `insert into ${schema}.role_permission (role_id, permission_id)
     select r.id, p.id from ${schema}.role r, core.permission p where r.is_system and r.name in ('teacher', 'student', 'guardian') on conflict do nothing`,
  );
  [teacher, student, guardian] = [await again(teacher), await again(student), await again(guardian)];
});

/** The kind of record that a parameter refers to, if it has an owner. */
type Kind = 'student' | 'class' | 'teacher' | 'guardian';
function kind(name: string, path: string): Kind | undefined {
  if (name === 'id')
    return /^\/api\/students\b/.test(path)
      ? 'student'
      : /^\/api\/classes\b/.test(path)
        ? 'class'
        : /^\/api\/teachers\b/.test(path)
          ? 'teacher'
          : /^\/api\/guardians\b/.test(path)
            ? 'guardian'
            : undefined;
  return /^student_ids?$/.test(name)
    ? 'student'
    : /class_ids?$/.test(name)
      ? 'class'
      : name === 'teacher_id'
        ? 'teacher'
        : name === 'guardian_id'
          ? 'guardian'
          : undefined;
}

interface Attempt {
  parameter: string;
  kind: Kind;
  request: Sent;
  isFilter: boolean;
}

/** All requests to an endpoint in which one parameter is outside the scope. */
function attempts(endpoint: Registered): Attempt[] {
  const { path, parameters, query } = endpoint;
  const inPath = parameters.flatMap((name) => {
    const of = kind(name, path);
    return of
      ? [
          {
            parameter: name,
            kind: of,
            isFilter: false,
            request: sampleRequest(document, endpoint, { id: near }, { parameters: { [name]: far } }),
          },
        ]
      : [];
  });
  const inBody = references(document, endpoint).flatMap(({ field, put }) => {
    const of = kind(field.split('.').at(-1) ?? '', path);
    // Users who may change a class may assign any teacher to it.
    return of && of !== 'teacher'
      ? [
          {
            parameter: field,
            kind: of,
            isFilter: false,
            request: sampleRequest(document, endpoint, { id: near }, { body: put(far) }),
          },
        ]
      : [];
  });
  const inQuery = query.flatMap(({ name }) => {
    const of = kind(name, path);
    const request = sampleRequest(document, endpoint, { id: near });
    return of
      ? [
          {
            parameter: name,
            kind: of,
            isFilter: true,
            request: { ...request, path: `${request.path.split('?')[0] ?? ''}?${name}=${far}` },
          },
        ]
      : [];
  });
  return [...inPath, ...inBody, ...inQuery];
}

/** Teachers can be listed by name; a test below checks that private fields are hidden. */
const directory = ['teachers_get', 'teachers_list', 'classes_available_class_teachers', 'classes_unassigned_teachers'];

const attacked = mine
  .map((endpoint) => ({ endpoint, attempts: attempts(endpoint) }))
  .filter((one) => one.attempts.length > 0);

/** Describes what a response to an out-of-scope request reveals; undefined when it is correct. */
function fault(answer: Answered, { isFilter }: Attempt): string | undefined {
  if (answer.status >= 500) return `answered ${answer.status}`;
  if (answer.text.includes(marker)) return `tells ${answer.text.slice(0, 300)}`;
  if (isFilter)
    return answer.status === 200 && (answer.json?.pagination?.totalItems ?? 0) > 0
      ? `lists ${answer.text.slice(0, 300)}`
      : undefined;
  return [400, 403, 404, 409, 422].includes(answer.status)
    ? undefined
    : `answered ${answer.status} ${answer.text.slice(0, 300)}`;
}

describe.each([
  ['a teacher', () => teacher],
  ['a student', () => student],
  ['a guardian', () => guardian],
])('%s with every permission', (_user, client) => {
  test('can read own records; an admin can read the others', async () => {
    expect((await client().get<{ id: number }[]>('/api/students')).data.map(({ id }) => id)).toEqual([near]);
    expect((await client().get<{ id: number }>(`/api/students/${near}`)).data.id).toBe(near);
    expect((await school.admin.get<{ first_name: string }>(`/api/students/${far}`)).data.first_name).toBe(marker);
  });

  test('cannot access or change out-of-scope students, classes or teachers by path, body or filter at any endpoint', async () => {
    const before = await stored();
    const lines = await findErrors(
      attacked.map(({ endpoint }) => endpoint),
      async (endpoint) => {
        if (directory.includes(endpoint.operation.name)) return undefined;
        for (const attempt of attempts(endpoint)) {
          const found = fault(await send(service.url, { ...attempt.request, token: client().token }), attempt);
          if (found) return `${attempt.parameter} ${found}`;
        }
        return undefined;
      },
    );
    expect(attacked.length).toBeGreaterThan(35);
    expect(lines).toEqual([]);
    expect(await stored()).toEqual(before);
  });

  test('sees the names of teachers but none of their private fields', async () => {
    for (const path of [`/${far}`, '', `?search=${marker}`]) {
      const answer = await send(service.url, { path: `/api/teachers${path}`, token: client().token });
      expect(answer.status).toBe(200);
      expect(answer.text).toContain(marker);
      expect(answer.text).not.toContain(`${marker} private`);
    }
    const { data } = await client().get<unknown[]>(`/api/teachers?search=${encodeURIComponent(`${marker} private`)}`);
    expect(data).toEqual([]);
  });

  test('sees nothing out of scope in lists and pages without an id parameter', async () => {
    const open = mine.filter(
      ({ method, parameters, route, operation }) =>
        method === 'GET' &&
        parameters.length === 0 &&
        !('types' in route.response) &&
        !directory.includes(operation.name),
    );
    const lines = await findErrors(open, async (endpoint) => {
      const answer = await send(service.url, {
        ...sampleRequest(document, endpoint, { id: near }),
        token: client().token,
      });
      const people = /"(first_name|student_name|parent_name|address)" ?: ?"[^"]*Xyzzy/.exec(answer.text);
      return people && !/^\/api\/(users|rbac)/.test(endpoint.path) ? `reveals ${people[0]}` : undefined;
    });
    expect(lines).toEqual([]);
  });
});

describe('a teacher with every permission', () => {
  test('adds students with numbers that are unused in the whole school, not only in their classes', async () => {
    const [row] = await service.database.query<{ next: string }>(
      `select lpad((value + 1)::text, 6, '0') as next from ${school.schema}.counter where name = 'admission_number'`,
    );
    await school.admin.post(
      '/api/students',
      { first_name: 'Out', last_name: 'Ofreach', admission_number: row?.next },
      201,
    );
    const { data } = await teacher.post<{ admission_number: string }>(
      '/api/students',
      { first_name: 'In', last_name: 'Reach', class_id: near },
      201,
    );
    expect(Number(data.admission_number)).toBeGreaterThan(Number(row?.next));
  });

  test('keeps the classes of others in a fee structure, also when its academic year is to change', async () => {
    const { schema } = school;
    const [[year], structure] = await Promise.all([
      service.database.query<{ id: number }>(
        `insert into ${schema}.academic_year (name, start_date, end_date) values ('Fees', '2007-01-01', '2007-12-31') returning id::integer`,
      ),
      school.admin.post<{ id: number; academic_year_id: number }>(
        '/api/finance/fee-structures',
        { name: 'Of two classes', academic_year_id: near, class_ids: [near, far] },
        201,
      ),
    ]);
    const [taught] = await service.database.query<{ id: number }>(
      `insert into ${schema}.class (name, grade_id, academic_year_id, class_teacher_id) values ('Fees', $1, $2, $1) returning id::integer`,
      [near, year?.id],
    );
    const path = `/api/finance/fee-structures/${structure.data.id}`;
    const classes = async () =>
      (await school.admin.get<{ classes: { id: number }[] }>(path)).data.classes.map(({ id }) => id).toSorted();
    const moved = await teacher.put(path, { academic_year_id: year?.id, class_ids: [taught?.id] }, 409);
    expect(moved.details).toMatchObject([{ path: 'academic_year_id' }]);
    expect(await classes()).toEqual([near, far]);
    await teacher.put(path, { class_ids: [] });
    expect(await classes()).toEqual([far]);
    await school.admin.delete(path);
  });

  test('cannot approve their own leave, and cannot see which teachers are free for other classes', async () => {
    const leave = { leave_type: 'annual', start_date: '2031-01-01', end_date: '2031-01-31' };
    const { data } = await teacher.post<{ id: number }>('/api/teachers/leaves', leave, 201);
    expect((await teacher.put(`/api/teachers/leaves/${data.id}`, { status: 'approved' }, 403)).error).toBe('forbidden');
    expect(
      (await school.admin.put<{ status: string }>(`/api/teachers/leaves/${data.id}`, { status: 'approved' })).data
        .status,
    ).toBe('approved');
    expect((await teacher.get('/api/classes/meta/available-class-teachers', 403)).error).toBe('forbidden');
  });
});

describe('a student with every permission', () => {
  test('can read the class of last year', async () => {
    const { schema } = school;
    const [past] = await service.database.query<{ id: number }>(
      `with year as (insert into ${schema}.academic_year (name, start_date, end_date) values ('Long ago', '2001-01-01', '2001-12-31') returning id),
       past as (insert into ${schema}.class (name, grade_id, academic_year_id) select 'Long ago', $1, id from year returning id, academic_year_id)
       insert into ${schema}.enrollment (student_id, class_id, academic_year_id, starts_on, ends_on, status)
       select $1, id, academic_year_id, '2001-01-01', '2001-12-31', 'completed' from past returning class_id::integer as id`,
      [near],
    );
    expect((await student.get<{ name: string }>(`/api/classes/${past?.id ?? 0}`)).data.name).toBe('Long ago');
    await teacher.get(`/api/classes/${past?.id ?? 0}`, 404);
  });

  test('can no longer read a class that they have left', async () => {
    const { schema } = school;
    const left = await service.database.query<{ id: number; status: string }>(
      `with year as (insert into ${schema}.academic_year (name, start_date, end_date)
         select 'Left ' || n, make_date(2000 + n, 1, 1), make_date(2000 + n, 12, 31) from generate_series(3, 4) n returning id, start_date),
       past as (insert into ${schema}.class (name, grade_id, academic_year_id) select 'Left', $1, id from year returning id, academic_year_id)
       insert into ${schema}.enrollment (student_id, class_id, academic_year_id, starts_on, ends_on, status)
       select $1, p.id, y.id, y.start_date, y.start_date + 9, case extract(year from y.start_date) when 2003 then 'withdrawn' else 'transferred' end
       from past p join year y on y.id = p.academic_year_id returning class_id::integer as id, status`,
      [near],
    );
    expect(left.map(({ status }) => status).toSorted()).toEqual(['transferred', 'withdrawn']);
    for (const { id } of left) await student.get(`/api/classes/${id}`, 404);
    const { data } = await student.get<{ id: number }[]>('/api/classes?pageSize=100');
    expect(data.map(({ id }) => id).filter((id) => left.some((each) => each.id === id))).toEqual([]);
  });

  test('cannot move to a former class that is full, though they see no other student of it', async () => {
    const { schema } = school;
    const [full] = await service.database.query<{ id: number }>(
      `with year as (insert into ${schema}.academic_year (name, start_date, end_date) values ('Full', '2006-01-01', '2006-12-31') returning id),
       class as (insert into ${schema}.class (name, grade_id, academic_year_id, capacity) select 'Full', $1, id, 1 from year returning id, academic_year_id)
       insert into ${schema}.enrollment (student_id, class_id, academic_year_id, starts_on, ends_on, status)
       select $1, id, academic_year_id, '2006-01-01', '2006-12-31', 'completed' from class returning class_id::integer as id`,
      [near],
    );
    await school.admin.post('/api/students', { first_name: 'Only', last_name: 'One', class_id: full?.id }, 201);
    await student.put(`/api/students/${near}`, { class_id: full?.id, grade_id: null }, 409);
  });

  test('cannot change their class, whose rules depend on students they cannot see', async () => {
    await student.get(`/api/classes/${near}`);
    await student.put(`/api/classes/${near}`, { capacity: 1 }, 404);
    await student.delete(`/api/classes/${near}`, 404);
    expect((await school.admin.get<{ capacity: number | null }>(`/api/classes/${near}`)).data.capacity).not.toBe(1);
  });
});

describe('a user who is both a teacher and a student, with every permission', () => {
  const classmate = 'Qwfpg';
  /** Operations that name a class, in a calendar or a fee structure, or bill the user's own record. */
  const naming = [
    ...['students_promotion_preview', 'timetable_check_conflicts', 'schedule_feeds_create'],
    ...['fee_structures_create', 'fee_structures_update', 'fee_structures_assign_classes', 'student_fees_generate'],
  ];
  /** A subject of the class that the user attends. */
  let attendedSubjectId: number;
  let both: Client & { id: number };
  let ownStudentId: number;
  beforeAll(async () => {
    // Teaches the class near, and attends the class far.
    const { schema } = school;
    const user = await school.user(['teacher', 'student']);
    const [own] = await service.database.query<{ id: number }>(
      `insert into ${schema}.student (first_name, last_name, admission_number, class_id, user_id) values ('Own', 'Record', 'own', $1, $2) returning id::integer`,
      [far, user.id],
    );
    ownStudentId = own?.id ?? 0;
    const [assistant] = await service.database.query<{ id: number }>(
      `insert into ${schema}.teacher (first_name, last_name, user_id) values ('Assistant', 'Teacher', $1) returning id::integer`,
      [user.id],
    );
    await service.database.query(`insert into ${schema}.teaching_assignment (class_id, teacher_id) values ($1, $2)`, [
      near,
      assistant?.id,
    ]);
    await service.database.query(
      `update ${schema}.student set first_name = $1, last_name = $1, parent_name = $1, address = $1, phone = $1 where id = $2`,
      [classmate, far],
    );
    await service.database.query(
      `insert into ${schema}.attendance (student_id, class_id, date, status) values ($1, $1, '2031-03-03', 'absent'), ($2, $1, '2031-03-03', 'late')`,
      [far, ownStudentId],
    );
    const [subject] = await service.database.query<{ id: number }>(
      `select id::integer from ${schema}.class_subject where class_id = $1 limit 1`,
      [far],
    );
    attendedSubjectId = subject?.id ?? 0;
    both = await again(user);
  });

  test('sees the students whom they teach and themselves, and the names of the classes that they teach or attend', async () => {
    const ids = async (path: string) => (await both.get<{ id: number }[]>(path)).data.map(({ id }) => id);
    const students = await ids('/api/students');
    expect(students).toEqual(expect.arrayContaining([near, ownStudentId]));
    expect(students).not.toContain(far);
    expect((await ids('/api/classes')).toSorted()).toEqual([near, far]);
    expect((await both.get<{ id: number }>(`/api/classes/${far}`)).data.id).toBe(far);
    expect(await ids(`/api/classes/${far}/students`)).toEqual([ownStudentId]);
    // The figures of the classes that they teach.
    const figures = async (client: Client) => ({
      ...(await client.get<object>('/api/dashboard')).data,
      recent_notifications: [],
      // Of their own teacher record.
      pending_leaves: 0,
      overview: (await client.get<object>('/api/academics/overview')).data,
    });
    expect(await figures(both)).toEqual(await figures(teacher));
  });

  test('sees only their own marks of a class that they attend', async () => {
    const { data } = await both.get<{ student_id: number; status: string }[]>(
      `/api/attendance/class/${far}?date=2031-03-03`,
    );
    expect(data).toMatchObject([{ student_id: ownStudentId, status: 'late' }]);
    expect(
      (await both.get(`/api/attendance/class/${far}/summary?from_date=2031-03-01&to_date=2031-03-31`)).data,
    ).toMatchObject({ summary: { absent: 0, late: 1, total: 1 }, students: [{ student_id: ownStudentId }] });
    const taught = await both.get<{ students: { student_id: number }[] }>(`/api/attendance/class/${near}/summary`);
    expect(taught.data.students.map(({ student_id }) => student_id)).toContain(near);
    await both.get(`/api/attendance/student/${far}`, 404);
  });

  /** What answers to the attempts of an endpoint tell about a classmate, or that they succeed although they write. */
  async function faults(endpoint: Registered, mayWrite: boolean): Promise<string | undefined> {
    for (const attempt of attempts(endpoint)) {
      const { status, text } = await send(service.url, { ...attempt.request, token: both.token });
      if (status >= 500) return `${attempt.parameter} answered ${status} ${text}`;
      if (text.includes(classmate) || new RegExp(`"student_id" ?: ?${far}\\b`).test(text))
        return `${attempt.parameter} tells ${text.slice(0, 300)}`;
      if (endpoint.method !== 'GET' && status < 400 && !mayWrite)
        return `${attempt.parameter} answered ${status} ${text.slice(0, 300)}`;
    }
    return undefined;
  }

  test('reads no classmate, and changes nothing of the class that they attend, at any endpoint', async () => {
    const endpointsOf = (areNaming: boolean) =>
      attacked
        .map(({ endpoint }) => endpoint)
        .filter(({ operation: { name } }) => !directory.includes(name) && naming.includes(name) === areNaming);
    const before = await stored();
    expect(await findErrors(endpointsOf(false), (endpoint) => faults(endpoint, false))).toEqual([]);
    const path = `/api/class-subjects/${attendedSubjectId}`;
    await both.get(path);
    await both.put(path, { periods_per_week: 9 }, 404);
    await both.delete(path, 404);
    expect(await stored()).toEqual(before);
    expect(endpointsOf(true)).toHaveLength(naming.length);
    expect(await findErrors(endpointsOf(true), (endpoint) => faults(endpoint, true))).toEqual([]);
  });
});

test('a permission that an operation needs too, and that a user has only as a teacher, limits it to their students', async () => {
  const { schema } = school;
  /** A teacher of no class, with every permission of the role teacher, and this one for the whole school. */
  const teacherWith = async (permission: string) => {
    const user = await school.user(['teacher', await school.role(permission)]);
    await service.database.query(
      `insert into ${schema}.teacher (first_name, last_name, user_id) values ('Class', 'Planner', $1)`,
      [user.id],
    );
    return again(user);
  };
  const planner = await teacherWith('class.update');
  await planner.put(`/api/classes/${near}`, { room: 'A1' });
  await planner.post(`/api/classes/${near}/students`, { student_id: far }, 404);
  const [deleted] = await service.database.query<{ id: number }>(
    `insert into ${schema}.student (first_name, last_name, admission_number, class_id, deleted_at)
     values ('Deleted', 'Student', 'deleted', $1, now()) returning id::integer`,
    [far],
  );
  const reader = await teacherWith('student.read');
  const ids = async (client: Client) =>
    (await client.get<{ id: number }[]>('/api/students?is_deleted=true&pageSize=100')).data.map(({ id }) => id);
  expect(await ids(school.admin)).toContain(deleted?.id);
  expect((await reader.get<{ id: number }>(`/api/students/${far}`)).data.id).toBe(far);
  expect(await ids(reader)).toEqual([]);
  // class.read, which the user has only as a teacher, admits to a list of students but does not limit it.
  const roll = await reader.get<{ id: number }[]>(`/api/classes/${far}/students`);
  expect(roll.data.map((each) => each.id)).toContain(far);
});

test('a user without any permission has the scope of a user who sees only their own rows', async () => {
  const role = await school.role();
  const { id } = await school.user([role]);
  const [session] = await school.database.query<{ id: string; permissions: string[] }>(
    'select id, permissions from platform.session where tenant_id = $1 and user_id = $2',
    [school.id, id],
  );
  expect(session?.permissions).toEqual([]);
  const connectionString = await school.database.addressFor();
  const client = new shared.pg.Client({ connectionString, options: '-c role=school_api' });
  await client.connect();
  try {
    await client.query('begin');
    await client.query(`select core.call('notifications_list', $1, '{}', '{}')`, [session?.id]);
    const { rows } = await client.query<{ scope: string }>(`select current_setting('app.scope') as scope`);
    expect(rows).toEqual([{ scope: 'own' }]);
  } finally {
    await client.end();
  }
});
