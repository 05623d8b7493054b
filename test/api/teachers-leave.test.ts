import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { ids, inOrder, walk } from '../support/client/pages.ts';
import { steadyDay } from '../support/fixtures/days.ts';
import { type Leave, type Teacher, teacherHelpers } from '../support/fixtures/teachers.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';

await steadyDay();
const { service, school } = await serviceWithSchool();
const other = await service.school();
const { add, withLogin, staff, rows, classOfYear } = teacherHelpers(service, school);

describe('leaves', () => {
  const day = (n: number) => `2026-05-${String(n).padStart(2, '0')}`;
  const body = (from = 4, to = from, more: Record<string, unknown> = {}) => ({
    leave_type: 'sick',
    start_date: day(from),
    end_date: day(to),
    ...more,
  });
  const request = async (client: Client, given: object = body()) =>
    (await client.post<Leave>('/api/teachers/leaves', given, 201)).data;
  const decide = (id: number, status: string, expectedStatus = 200, more: object = {}) =>
    school.admin.put<Leave>(`/api/teachers/leaves/${id}`, { status, ...more }, expectedStatus);
  const readLeave = async (leave: Leave) =>
    (await school.admin.get<Leave[]>(`/api/teachers/${leave.teacher_id}/leaves?pageSize=100`)).data.find(
      ({ id }) => id === leave.id,
    );

  test('a teacher requests their own leave, which is pending', async () => {
    const { teacher, client } = await withLogin({ first_name: 'Lea', last_name: 'Ve' });
    const asked = await client.post<Leave>('/api/teachers/leaves', body(4, 6, { reason: 'Flu' }), 201);
    expect(asked.headers.get('location')).toBeNull();
    expect(asked.data).toEqual({
      ...asked.data,
      teacher_id: teacher.id,
      teacher_name: 'Lea Ve',
      leave_type: 'sick',
      start_date: day(4),
      end_date: day(6),
      days: 3,
      reason: 'Flu',
      status: 'pending',
      decided_by: null,
      decided_by_name: null,
      decided_at: null,
      decision_note: null,
    });
    expect((await client.get<Leave[]>(`/api/teachers/${teacher.id}/leaves`)).data).toEqual([asked.data]);
    expect((await request(client, body(8, 8, { teacher_id: teacher.id }))).teacher_id).toBe(teacher.id);
  });

  test('a user with leave.manage must name the teacher; a missing or unknown one is a 422', async () => {
    const teacher = await add();
    expect((await request(school.admin, body(4, 4, { teacher_id: teacher.id }))).teacher_id).toBe(teacher.id);
    const gone = await add();
    await school.admin.delete(`/api/teachers/${gone.id}`);
    for (const teacher_id of [undefined, null, 999_999, gone.id]) {
      const refused = await school.admin.post('/api/teachers/leaves', body(4, 4, { teacher_id }), 422);
      expect(refused).toMatchObject({ error: 'invalid_reference', details: [{ path: 'teacher_id' }] });
    }
    expect((await school.admin.post('/api/teachers/leaves', body(4, 4), 422)).message).toMatch(
      /^You are not a teacher/,
    );
    const manager = await staff('leave.manage');
    expect((await request(manager, body(5, 5, { teacher_id: teacher.id }))).teacher_id).toBe(teacher.id);
  });

  test('a teacher for a colleague, a student and an accountant cannot request leave', async () => {
    const { client } = await withLogin();
    const colleague = await add();
    for (const teacher_id of [colleague.id, 999_999]) {
      expect((await client.post('/api/teachers/leaves', body(4, 4, { teacher_id }), 403)).error).toBe('forbidden');
    }
    const pupil = await school.user(['student']);
    const { classId } = await school.classroom(unique('Class'));
    const { data: student } = await school.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'A', last_name: 'Pupil', class_id: classId },
      201,
    );
    await rows(`update ${school.schema}.student set user_id = $2 where id = $1`, [student.id, pupil.id]);
    const pupilAgain = await service.anonymous.login({
      tenant_id: school.id,
      email: pupil.email,
      password: 'test-password',
    });
    for (const user of [pupil, pupilAgain, await school.user(['accountant']), await school.user([])]) {
      await user.post('/api/teachers/leaves', body(), 403);
      await user.post('/api/teachers/leaves', body(4, 4, { teacher_id: colleague.id }), 403);
    }
    expect((await school.admin.get<Leave[]>(`/api/teachers/${colleague.id}/leaves`)).data).toEqual([]);
  });

  test('a leave that ends before it begins or lacks a required field is a 400 that names the field', async () => {
    const teacher = await add();
    const refused = await school.admin.post('/api/teachers/leaves', body(5, 4, { teacher_id: teacher.id }), 400);
    expect(refused.details).toEqual([{ path: 'end_date', message: 'must not be before start_date' }]);
    expect(
      (await school.admin.post('/api/teachers/leaves', { status: 'approved' }, 400)).details
        .map(({ path }) => path)
        .sort(),
    ).toEqual(['end_date', 'leave_type', 'start_date']);
    const decided = body(4, 5, { teacher_id: teacher.id, status: 'approved' });
    expect((await school.admin.post('/api/teachers/leaves', decided, 400)).details).toMatchObject([{ path: 'status' }]);
    const pending = body(4, 5, { teacher_id: teacher.id, status: 'pending' });
    expect((await school.admin.post<Leave>('/api/teachers/leaves', pending, 201)).data.status).toBe('pending');
  });

  test('repeated requests with one Idempotency-Key create one leave', async () => {
    const { teacher, client } = await withLogin();
    const post = () =>
      client.send<Leave>(
        'POST',
        '/api/teachers/leaves',
        { body: body(), headers: { 'Idempotency-Key': 'leave' } },
        201,
      );
    const answers = await Promise.all([post(), post()]);
    expect(answers[0].data).toEqual(answers[1].data);
    expect((await client.get(`/api/teachers/${teacher.id}/leaves`)).pagination.totalItems).toBe(1);
  });

  test('a decision records who made it, when and why, and the teacher can read it', async () => {
    const { teacher, client } = await withLogin();
    const admin = await school.user(['admin'], { first_name: 'Dee', last_name: 'Cider' });
    const [one, two] = [await request(client, body(4)), await request(client, body(5))];
    const approved = await admin.put<Leave>(`/api/teachers/leaves/${one.id}`, {
      status: 'approved',
      decision_note: 'Get well',
    });
    expect(approved.data).toEqual({
      ...one,
      status: 'approved',
      decided_by: admin.id,
      decided_by_name: 'Dee Cider',
      decided_at: approved.data.decided_at,
      decision_note: 'Get well',
      updated_at: approved.data.updated_at,
    });
    expect(Math.abs(Date.parse(approved.data.decided_at ?? '') - Date.parse(approved.data.updated_at))).toBeLessThan(
      1000,
    );
    const rejected = await admin.put<Leave>(`/api/teachers/leaves/${two.id}`, { ...two, status: 'rejected' });
    expect(rejected.data).toMatchObject({ status: 'rejected', decided_by: admin.id, decision_note: null });
    expect((await client.get<Leave[]>(`/api/teachers/${teacher.id}/leaves?sort=start_date&order=asc`)).data).toEqual([
      approved.data,
      rejected.data,
    ]);
  });

  test.each(['approved', 'rejected'])('a leave that is %s can be so again, which changes nothing', async (status) => {
    const teacher = await add();
    const leave = await request(school.admin, body(4, 4, { teacher_id: teacher.id }));
    expect((await school.admin.put<Leave>(`/api/teachers/leaves/${leave.id}`, leave)).data).toEqual(leave);
    const { data } = await decide(leave.id, status, 200, { decision_note: 'Once' });
    const events = async () =>
      (await service.database.query(`select id from ${school.schema}.webhook_event`)).map(({ id }) => id);
    const before = await events();
    expect((await decide(leave.id, status)).data).toEqual(data);
    expect((await school.admin.put<Leave>(`/api/teachers/leaves/${leave.id}`, data)).data).toEqual(data);
    expect(await events()).toEqual(before);
    expect(await readLeave(leave)).toEqual(data);
    expect((await decide(leave.id, status, 409, { decision_note: 'Twice' })).error).toBe('invalid_state');
    expect((await decide(leave.id, 'pending', 409)).error).toBe('invalid_state');
  });

  test.each([
    ['approved', 'rejected'],
    ['rejected', 'approved'],
  ])('a leave that was %s cannot be %s: 409 invalid_state names both states', async (from, to) => {
    const teacher = await add();
    const leave = await request(school.admin, body(4, 4, { teacher_id: teacher.id }));
    const before = (await decide(leave.id, from)).data;
    expect(await decide(leave.id, to, 409)).toMatchObject({
      error: 'invalid_state',
      message: `The leave request cannot change from ${from} to ${to}.`,
    });
    expect(await readLeave(leave)).toEqual(before);
  });

  test('only approved and rejected are accepted as a decision', async () => {
    const teacher = await add();
    const leave = await request(school.admin, body(4, 4, { teacher_id: teacher.id }));
    for (const status of ['cancelled', null, undefined]) {
      expect((await school.admin.put(`/api/teachers/leaves/${leave.id}`, { status }, 400)).details).toMatchObject([
        { path: 'status' },
      ]);
    }
    expect(
      (await school.admin.put(`/api/teachers/leaves/${leave.id}`, { status: 'approved', start_date: day(9) }, 400))
        .details,
    ).toMatchObject([{ path: 'start_date' }]);
    expect(await readLeave(leave)).toEqual(leave);
  });

  test('approved leaves of one teacher cannot overlap: 409 conflict; those of two teachers can', async () => {
    const [one, two] = [await add(), await add()];
    const leave = async (teacher: Teacher, from: number, to: number) =>
      (await request(school.admin, body(from, to, { teacher_id: teacher.id }))).id;
    await decide(await leave(one, 4, 8), 'approved');
    const overlapping = await leave(one, 8, 9);
    expect((await decide(overlapping, 'approved', 409)).error).toBe('conflict');
    await decide(overlapping, 'rejected');
    await decide(await leave(one, 9, 9), 'approved');
    await decide(await leave(two, 4, 8), 'approved');
  });

  test('only one of several concurrent approvals of overlapping leaves succeeds, and the others are a 409 conflict', async () => {
    for (let round = 0; round < 3; round++) {
      const teacher = await add();
      const asked = await Promise.all(
        [1, 2, 3, 4].map((n) => request(school.admin, body(n, 10, { teacher_id: teacher.id }))),
      );
      const answers = await Promise.all(
        asked.map(({ id }) =>
          school.admin.send<Leave>('PUT', `/api/teachers/leaves/${id}`, { body: { status: 'approved' } }),
        ),
      );
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409]);
      expect(answers.filter(({ status }) => status === 409).map(({ error }) => error)).toEqual(
        Array(3).fill('conflict'),
      );
      expect((await school.admin.get(`/api/teachers/${teacher.id}/leaves?status=approved`)).pagination.totalItems).toBe(
        1,
      );
    }
  });

  test('only one of two concurrent decisions on a leave succeeds', async () => {
    const teacher = await add();
    const leave = await request(school.admin, body(4, 4, { teacher_id: teacher.id }));
    const answers = await Promise.all(
      ['approved', 'rejected'].map((status) =>
        school.admin.send<Leave>('PUT', `/api/teachers/leaves/${leave.id}`, { body: { status } }),
      ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    expect(await readLeave(leave)).toEqual(answers.find(({ status }) => status === 200)?.data);
  });

  test('a decision succeeds with the current If-Match and is a 412 with an outdated one', async () => {
    const teacher = await add();
    const leave = await school.admin.post<Leave>('/api/teachers/leaves', body(4, 4, { teacher_id: teacher.id }), 201);
    const put = (match: string, status: number) =>
      school.admin.send(
        'PUT',
        `/api/teachers/leaves/${leave.data.id}`,
        { body: { status: 'approved' }, headers: { 'If-Match': match } },
        status,
      );
    await put('"stale"', 412);
    await put(leave.headers.get('etag') ?? '', 200);
  });

  test('a teacher deletes only their own pending leaves; a user with leave.manage deletes any leave', async () => {
    const { client } = await withLogin();
    const [pending, approved, rejected] = [
      await request(client, body(4)),
      await request(client, body(5)),
      await request(client, body(6)),
    ];
    await decide(approved.id, 'approved');
    await decide(rejected.id, 'rejected');
    expect((await client.delete<{ id: number }>(`/api/teachers/leaves/${pending.id}`)).data).toEqual({
      id: pending.id,
    });
    for (const [leave, status] of [
      [approved, 'approved'],
      [rejected, 'rejected'],
    ] as const) {
      const refused = await client.delete(`/api/teachers/leaves/${leave.id}`, 409);
      expect(refused).toMatchObject({
        error: 'invalid_state',
        message: `This leave is ${status}. You can only withdraw a pending leave.`,
      });
      await school.admin.delete(`/api/teachers/leaves/${leave.id}`);
      expect(await readLeave(leave)).toBeUndefined();
    }
    await school.admin.delete(`/api/teachers/leaves/${pending.id}`, 404);
  });

  test('colleagues, students and accountants cannot read or change leaves: 404 or 403', async () => {
    const { teacher, client } = await withLogin();
    const leave = await request(client);
    const colleague = (await withLogin()).client;
    expect((await colleague.get(`/api/teachers/${teacher.id}/leaves`, 404)).error).toBe('not_found');
    await colleague.delete(`/api/teachers/leaves/${leave.id}`, 404);
    await colleague.put(`/api/teachers/leaves/${leave.id}`, { status: 'approved' }, 403);
    await client.put(`/api/teachers/leaves/${leave.id}`, { status: 'approved' }, 403);
    await colleague.get('/api/teachers/leaves', 403);
    for (const user of [await school.user(['accountant']), await school.user(['student'])]) {
      await user.get(`/api/teachers/${teacher.id}/leaves`, 403);
      await user.get('/api/teachers/leaves', 403);
      await user.put(`/api/teachers/leaves/${leave.id}`, { status: 'approved' }, 403);
      await user.delete(`/api/teachers/leaves/${leave.id}`, 403);
    }
    await other.admin.delete(`/api/teachers/leaves/${leave.id}`, 404);
    expect(await readLeave(leave)).toEqual(leave);
    const reader = await staff('teacher.read');
    expect((await reader.get<Leave[]>(`/api/teachers/${teacher.id}/leaves`)).data).toEqual([leave]);
    await reader.get('/api/teachers/leaves', 403);
  });

  test('a teacher without a role still reads their own leaves, availability and workload', async () => {
    const { teacher, client } = await withLogin();
    await school.admin.put(`/api/users/${teacher.user_id ?? 0}`, { role_ids: [] });
    const colleague = await add();
    for (const below of ['leaves', 'availability', 'workload']) {
      await client.get(`/api/teachers/${teacher.id}/${below}`);
      await client.get(`/api/teachers/${colleague.id}/${below}`, 404);
    }
    await client.get('/api/teachers', 403);
    const leave = await request(client);
    await client.delete(`/api/teachers/leaves/${leave.id}`);
  });

  describe('the list of leaves', () => {
    let lists: School;
    let all: Leave[];
    let one: Teacher;
    let years: { past: number; current: number };

    beforeAll(async () => {
      lists = await service.school();
      const past = await classOfYear(-1, lists);
      const [row] = await rows<{ id: number; year: number }>(
        `select id::integer, extract(year from start_date)::integer as year from ${lists.schema}.academic_year where is_current`,
      );
      years = { past: past.yearId, current: row?.id ?? 0 };
      const year = row?.year ?? 0;
      one = await add({ first_name: 'Émile', last_name: 'One' }, lists);
      const two = await add({ first_name: 'Two', last_name: 'Two' }, lists);
      for (const [teacher, type, from, to] of [
        [one, 'sick', `${year}-03-01`, `${year}-03-02`],
        [one, 'annual', `${year - 1}-12-30`, `${year}-01-02`],
        [two, 'sick', `${year - 1}-05-01`, `${year - 1}-05-01`],
        [two, 'study', `${year}-03-01`, `${year}-03-09`],
        [one, 'study', `${year}-06-01`, `${year}-06-09`],
      ] as const) {
        await lists.admin.post(
          '/api/teachers/leaves',
          { leave_type: type, start_date: from, end_date: to, teacher_id: teacher.id, reason: `Réason ${type}` },
          201,
        );
      }
      all = await walk<Leave>(lists.admin, '/api/teachers/leaves', 100);
      await lists.admin.put(`/api/teachers/leaves/${all.find(({ leave_type }) => leave_type === 'annual')?.id ?? 0}`, {
        status: 'approved',
      });
      await rows(
        `update ${lists.schema}.teacher_leave set created_at = timestamptz '2026-01-01Z' + (id % 2) * interval '1 day'`,
      );
      all = await walk<Leave>(lists.admin, '/api/teachers/leaves', 100);
    });

    const found = async (query: string, path = '/api/teachers/leaves') =>
      ids((await lists.admin.get<Leave[]>(`${path}?${query}`)).data);

    test('is latest first, and sorts by start_date and created_at in both directions, page by page', async () => {
      expect(all).toHaveLength(5);
      expect(ids(all)).toEqual(ids(inOrder(all, ({ start_date }) => [start_date], 'desc')));
      for (const [sort, key] of [
        ['start_date', (leave: Leave) => [leave.start_date]],
        ['created_at', (leave: Leave) => [leave.created_at]],
      ] as const) {
        for (const order of ['asc', 'desc'] as const) {
          expect(ids(await walk<Leave>(lists.admin, `/api/teachers/leaves?sort=${sort}&order=${order}`, 2))).toEqual(
            ids(inOrder(all, key, order)),
          );
        }
      }
      const own = all.filter(({ teacher_id }) => teacher_id === one.id);
      expect(await found('', `/api/teachers/${one.id}/leaves`)).toEqual(ids(own));
      expect(await found('sort=start_date&order=asc', `/api/teachers/${one.id}/leaves`)).toEqual(ids(own).reverse());
    });

    test('filters by teacher, status and overlapping academic year', async () => {
      const fitting = (fits: (leave: Leave) => boolean) => ids(all.filter(fits));
      expect(await found(`teacher_id=${one.id}`)).toEqual(fitting(({ teacher_id }) => teacher_id === one.id));
      expect(await found('status=approved')).toEqual(fitting(({ status }) => status === 'approved'));
      expect(await found('status=rejected')).toEqual([]);
      const inYear = (leave: Leave, which: 'past' | 'current') =>
        leave.leave_type === 'annual' ||
        leave.start_date < (all.find(({ leave_type }) => leave_type === 'annual')?.end_date ?? '') ===
          (which === 'past');
      expect(await found(`academic_year_id=${years.past}`)).toEqual(fitting((leave) => inYear(leave, 'past')));
      expect(await found(`academic_year_id=${years.current}`)).toEqual(fitting((leave) => inYear(leave, 'current')));
      expect(
        await found(`academic_year_id=${years.past}&status=approved`, `/api/teachers/${one.id}/leaves`),
      ).toHaveLength(1);
      expect(await found('academic_year_id=999999')).toEqual([]);
    });

    test('searches teacher, type and reason', async () => {
      expect(await found('search=emile')).toEqual(ids(all.filter(({ teacher_id }) => teacher_id === one.id)));
      expect(await found('search=reason%20STUDY')).toEqual(ids(all.filter(({ leave_type }) => leave_type === 'study')));
      expect(await found('search=study', `/api/teachers/${one.id}/leaves`)).toHaveLength(1);
    });

    test('of one teacher takes no teacher_id', async () => {
      const { details } = await lists.admin.get(`/api/teachers/${one.id}/leaves?teacher_id=1`, 400);
      expect(details).toMatchObject([{ path: 'teacher_id' }]);
    });
  });
});
