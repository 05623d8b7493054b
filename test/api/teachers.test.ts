import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { mailTo } from '../support/fakes/mail.ts';
import { ids, inOrder, plain, walk } from '../support/client/pages.ts';
import { raw } from '../support/client/raw.ts';
import { steadyDay } from '../support/fixtures/days.ts';
import { type Leave, type Teacher, teacherHelpers } from '../support/fixtures/teachers.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';

await steadyDay();
const { service, school } = await serviceWithSchool({}, 5);
const { add, read, withLogin, staff, rows, classOfYear, lead, subject, teach, slot } = teacherHelpers(service, school);

describe('teachers', () => {
  test('a created teacher is returned with the fields that were sent', async () => {
    const sent = {
      first_name: 'Ngozi',
      last_name: 'Bello',
      email: 'ngozi@example.org',
      phone: '+234 1',
      employee_number: 'E-1',
      qualification: 'M.Sc.',
      specialization: 'Mathematics',
      joined_on: '2020-08-01',
      date_of_birth: '1990-02-28',
      gender: 'female',
      address: '1 Long Street',
    };
    const added = await school.admin.post<Teacher>('/api/teachers', sent, 201);
    expect(added.headers.get('location')).toBe(`/api/teachers/${added.data.id}`);
    expect(await read(added.data.id)).toEqual({
      ...added.data,
      ...sent,
      is_active: true,
      user_id: null,
      max_periods_per_day: null,
      max_periods_per_week: null,
      deleted_at: null,
    });
  });

  test('only first and last name are required, and no employee number is assigned', async () => {
    const teacher = await add({ first_name: ' Only ', last_name: 'Ōe 大江' });
    expect(await read(teacher.id)).toMatchObject({
      first_name: 'Only',
      last_name: 'Ōe 大江',
      employee_number: null,
      email: null,
      is_active: true,
    });
    expect((await school.admin.post('/api/teachers', { first_name: 'Only' }, 400)).details).toMatchObject([
      { path: 'last_name' },
    ]);
  });

  test('an employee number is unique among teachers who are not deleted; a duplicate is a 409 that names the field', async () => {
    const one = await add({ employee_number: 'ONCE' });
    const two = await add({ employee_number: 'TWICE' });
    const refused = await school.admin.post(
      '/api/teachers',
      { first_name: 'A', last_name: 'B', employee_number: 'ONCE' },
      409,
    );
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'employee_number' }] });
    expect((await school.admin.put(`/api/teachers/${two.id}`, { employee_number: 'ONCE' }, 409)).details).toMatchObject(
      [{ path: 'employee_number' }],
    );
    expect((await read(two.id)).employee_number).toBe('TWICE');
    await school.admin.delete(`/api/teachers/${one.id}`);
    expect((await add({ employee_number: 'ONCE' })).id).not.toBe(one.id);
    expect(
      [await add({ employee_number: '' }), await add({ employee_number: null })].map(
        ({ employee_number }) => employee_number,
      ),
    ).toEqual([null, null]);
  });

  test('an update changes only the given fields, and null clears optional ones', async () => {
    const teacher = await add({
      phone: '1',
      specialization: 'Art',
      joined_on: '2020-01-01',
      employee_number: unique('E'),
    });
    const changed = await school.admin.put<Teacher>(`/api/teachers/${teacher.id}`, { phone: null, address: 'There' });
    expect(changed.data).toEqual({ ...teacher, phone: null, address: 'There', updated_at: changed.data.updated_at });
    expect(await read(teacher.id)).toEqual(changed.data);
  });

  test('/me and /leaves are not ids: their other methods are a 405', async () => {
    const refused = async (method: string, path: string) =>
      (await raw(service.url, { method, path, token: school.admin.token })).headers.allow;
    expect(await refused('PUT', '/api/teachers/me')).toBe('GET, HEAD, OPTIONS');
    expect(await refused('DELETE', '/api/teachers/leaves')).toBe('GET, POST, HEAD, OPTIONS');
    expect(await refused('GET', '/api/teachers/leaves/1')).toBe('PUT, DELETE, OPTIONS');
  });
});

describe('the list', () => {
  let lists: School;
  let everybody: Teacher[];

  beforeAll(async () => {
    lists = await service.school();
    const names: [string, string][] = [
      ['Ana', 'Alvarez'],
      ['Bo', 'Alvarez'],
      ['Émile', 'Zola'],
      ['emile', 'Zidane'],
      ['Zoé', 'Ångström'],
    ];
    for (let n = 0; n < 13; n++) {
      const [first_name = '', last_name = ''] = names[n % names.length] ?? [];
      await add(
        {
          first_name,
          last_name,
          employee_number: n % 4 === 0 ? null : `N${String((n * 7) % 13).padStart(2, '0')}`,
          joined_on: n % 5 === 0 ? null : `20${10 + (n % 3)}-01-01`,
          specialization: n % 3 === 0 ? 'Français' : n % 3 === 1 ? 'Art' : null,
          is_active: n % 4 !== 1,
          email: n === 6 ? 'rare.address@example.org' : null,
          phone: n === 7 ? '+44 777' : null,
        },
        lists,
      );
    }
    await add({ first_name: 'Percy', last_name: 'Cotton 100%' }, lists);
    const gone = await add({ first_name: 'Gone', last_name: 'Away' }, lists);
    await lists.admin.delete(`/api/teachers/${gone.id}`);
    await rows(
      `update ${lists.schema}.teacher set created_at = timestamptz '2026-01-01Z' + (id % 3) * interval '1 day'`,
    );
    everybody = await walk<Teacher>(lists.admin, '/api/teachers', 100);
  });

  const found = async (query: string) => (await lists.admin.get<Teacher[]>(`/api/teachers?pageSize=100&${query}`)).data;
  const keys: Record<string, (teacher: Teacher) => (string | number | null)[]> = {
    last_name: ({ last_name, first_name }) => [plain(last_name), plain(first_name)],
    first_name: ({ last_name, first_name }) => [plain(first_name), plain(last_name)],
    employee_number: ({ employee_number }) => [employee_number],
    joined_on: ({ joined_on }) => [joined_on],
    created_at: ({ created_at }) => [created_at],
  };

  test('contains all teachers who are not deleted, sorted by name by default', () => {
    expect(everybody).toHaveLength(14);
    expect(ids(everybody)).toEqual(ids(inOrder(everybody, keys['last_name'] ?? (() => []), 'asc')));
    expect(everybody.map(({ last_name }) => last_name)).not.toContain('Away');
  });

  test('filters by is_active and specialization, also combined; specialization ignores case and accents', async () => {
    expect(ids(await found('is_active=false'))).toEqual(ids(everybody.filter(({ is_active }) => !is_active)));
    const french = everybody.filter(({ specialization }) => specialization === 'Français');
    expect(french.length).toBeGreaterThan(2);
    for (const name of ['Fran%C3%A7ais', 'FRANCAIS'])
      expect(ids(await found(`specialization=${name}`))).toEqual(ids(french));
    expect(ids(await found('specialization=francais&is_active=true&search=zola'))).toEqual(
      ids(french.filter(({ is_active, last_name }) => is_active && last_name === 'Zola')),
    );
    expect(await found('specialization=Fran')).toEqual([]);
  });

  test.each([
    ['any case', 'ALVAREZ', (t: Teacher) => t.last_name === 'Alvarez'],
    ['without accents', 'emile', (t: Teacher) => plain(t.first_name) === 'emile'],
    ['with accents that the name does not have', 'álvárez', (t: Teacher) => t.last_name === 'Alvarez'],
    ['several words in any order', 'zidane emi', (t: Teacher) => t.last_name === 'Zidane'],
    ['% as itself', '100%25', (t: Teacher) => t.last_name.includes('%')],
    ['the employee number', 'n08', (t: Teacher) => t.employee_number === 'N08'],
    ['the email', 'rare.address', (t: Teacher) => t.email !== null],
    ['the phone', '777', (t: Teacher) => t.phone !== null],
    ['no deleted teachers', 'gone', () => false],
  ])('search matches %s', async (_case, search, fits) => {
    expect(ids(await found(`search=${search}`))).toEqual(ids(everybody.filter(fits)));
  });

  test('class_id finds all teachers of a class: class teacher, subject teachers and other staff', async () => {
    const { classId } = await lists.classroom(unique('Class'));
    const [one, two, three] = everybody.map(({ id }) => id);
    await lead(classId, one ?? 0, lists);
    await teach(classId, await subject('Physics', lists), two ?? 0, 1, lists);
    await rows(
      `insert into ${lists.schema}.teaching_assignment (class_id, teacher_id, subject) values ($1, $2, 'Choir'), ($1, $3, 'Choir')`,
      [classId, three, two],
    );
    expect(ids(await found(`class_id=${classId}`))).toEqual([one, two, three]);
    expect(await found('class_id=999999')).toEqual([]);
  });
});

describe('the login of a teacher', () => {
  test('is created with the teacher role by create_user_account and a password', async () => {
    const { teacher, client } = await withLogin({ first_name: 'Logan' });
    const { data } = await client.get<{ id: number; roles: string[]; first_name: string }>('/api/auth/profile');
    expect(data).toMatchObject({ id: teacher.user_id, roles: ['teacher'], first_name: 'Logan' });
  });

  test('is created by invitation if there is no password', async () => {
    const email = `${unique('invited')}@${school.subdomain}.example`;
    const teacher = await add({ email, create_user_account: true });
    const { token } = await mailTo(service, email, 'Your account');
    await service.anonymous.post('/api/auth/password/reset', { token, password: 'my own password' });
    const client = await service.anonymous.login({ tenant_id: school.id, email, password: 'my own password' });
    expect((await client.get<Teacher>('/api/teachers/me')).data.id).toBe(teacher.id);
  });

  test('requires an email, and a password requires create_user_account; an email in use is a 409 that writes nothing', async () => {
    const names = { first_name: 'A', last_name: unique('Unwritten') };
    expect(
      (await school.admin.post('/api/teachers', { ...names, create_user_account: true }, 400)).details,
    ).toMatchObject([{ path: 'email' }]);
    expect(
      (await school.admin.post('/api/teachers', { ...names, password: 'teacher password' }, 400)).details,
    ).toMatchObject([{ path: 'password' }]);
    const refused = await school.admin.post(
      '/api/teachers',
      { ...names, email: school.adminEmail, create_user_account: true },
      409,
    );
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'email' }] });
    expect(
      await rows(
        `select from ${school.schema}.teacher where last_name = $1 union all select from ${school.schema}.user_account where last_name = $1`,
        [names.last_name],
      ),
    ).toEqual([]);
  });

  test('can be created later, but only once', async () => {
    const email = `${unique('later')}@${school.subdomain}.example`;
    const teacher = await add({ email });
    const bare = await add();
    expect(
      (await school.admin.put(`/api/teachers/${bare.id}`, { create_user_account: true }, 400)).details,
    ).toMatchObject([{ path: 'email' }]);
    const later = await school.admin.put<Teacher>(`/api/teachers/${teacher.id}`, {
      create_user_account: true,
      password: 'teacher password',
    });
    expect(later.data.user_id).not.toBeNull();
    await service.anonymous.login({ tenant_id: school.id, email, password: 'teacher password' });
    // A form may send the field again.
    const again = await school.admin.put<Teacher>(`/api/teachers/${teacher.id}`, { create_user_account: true });
    expect(again.data.user_id).toBe(later.data.user_id);
    const refused = await school.admin.put(
      `/api/teachers/${teacher.id}`,
      { create_user_account: true, password: 'another password' },
      409,
    );
    expect(refused.message).toBe('This teacher already has a login.');
    await service.anonymous.login({ tenant_id: school.id, email, password: 'teacher password' });
  });

  test('cannot be created by a user with fewer permissions than a teacher, and neither teacher nor login is written', async () => {
    const clerk = await staff('teacher.read', 'teacher.create');
    const last_name = unique('Escalated');
    const email = `${unique('escalated')}@${school.subdomain}.example`;
    const refused = await clerk.post(
      '/api/teachers',
      { first_name: 'A', last_name, email, create_user_account: true, password: 'teacher password' },
      403,
    );
    expect(refused.message).toContain('attendance.mark');
    expect((await clerk.get<Teacher[]>(`/api/teachers?search=${encodeURIComponent(last_name)}`)).data).toEqual([]);
    await clerk.post('/api/teachers', { first_name: 'A', last_name, email }, 201);
  });
});

describe('a deleted teacher', () => {
  test('is not found and cannot log in; the row stays with deleted_at; employee number and email can be used again', async () => {
    const employee_number = unique('E');
    const { teacher, client } = await withLogin({ employee_number });
    expect((await school.admin.delete<{ id: number }>(`/api/teachers/${teacher.id}`)).data).toEqual({ id: teacher.id });
    expect((await client.get('/api/teachers/me', 401)).error).toBe('invalid_token');
    expect(
      (await school.admin.get<Teacher[]>(`/api/teachers?search=${encodeURIComponent(employee_number)}`)).data,
    ).toEqual([]);
    expect(
      await rows(`select deleted_at is not null as deleted, user_id from ${school.schema}.teacher where id = $1`, [
        teacher.id,
      ]),
    ).toEqual([{ deleted: true, user_id: null }]);
    expect((await add({ employee_number, email: teacher.email, create_user_account: true })).user_id).not.toBeNull();
  });

  test('has no leaves in the lists', async () => {
    const teacher = await add();
    const { data: leave } = await school.admin.post<Leave>(
      '/api/teachers/leaves',
      { leave_type: 'sick', start_date: '2026-03-02', end_date: '2026-03-02', teacher_id: teacher.id },
      201,
    );
    await school.admin.delete(`/api/teachers/${teacher.id}`);
    expect((await school.admin.get<Leave[]>(`/api/teachers/leaves?teacher_id=${teacher.id}`)).data).toEqual([]);
    await school.admin.put(`/api/teachers/leaves/${leave.id}`, { status: 'approved' }, 404);
  });

  test.each<[string, (classId: number, teacherId: number) => Promise<unknown>]>([
    ['is class teacher of', (classId, teacherId) => lead(classId, teacherId)],
    ['has a subject of', async (classId, teacherId) => await teach(classId, await subject(), teacherId)],
    [
      'is assigned to',
      (classId, teacherId) =>
        rows(`insert into ${school.schema}.teaching_assignment (class_id, teacher_id) values ($1, $2)`, [
          classId,
          teacherId,
        ]),
    ],
    ['has a slot in', async (classId, teacherId) => await slot(school, classId, await subject(), teacherId, 1, 1)],
  ])('a teacher who %s a class of this year cannot be deleted: 409 in_use', async (_case, assign) => {
    const name = unique('Needed');
    const { classId } = await school.classroom(name);
    const { teacher, client } = await withLogin();
    await assign(classId, teacher.id);
    const refused = await school.admin.delete(`/api/teachers/${teacher.id}`, 409);
    expect(refused).toMatchObject({
      error: 'in_use',
      message: `This teacher still teaches ${name}. Assign another teacher there first.`,
    });
    expect((await client.get<Teacher>('/api/teachers/me')).data.id).toBe(teacher.id);
  });

  test('can have taught in past years but not be assigned in future ones; the error names three classes and counts the rest', async () => {
    const past = await classOfYear(-1);
    const next = await classOfYear(1);
    const teacher = await add();
    await lead(past.classId, teacher.id);
    await lead(next.classId, teacher.id);
    expect((await school.admin.delete(`/api/teachers/${teacher.id}`, 409)).message).toBe(
      `This teacher still teaches ${next.name}. Assign another teacher there first.`,
    );
    const art = await subject(unique('Art'));
    const names = ['A1', 'A2', 'A3', 'A4'].map(unique);
    for (const name of names) await teach((await school.classroom(name)).classId, art, teacher.id);
    expect((await school.admin.delete(`/api/teachers/${teacher.id}`, 409)).message).toBe(
      `This teacher still teaches ${names.slice(0, 3).join(', ')} and 2 more. Assign another teacher there first.`,
    );
    await rows(`update ${school.schema}.class set class_teacher_id = null where class_teacher_id = $1 and id <> $2`, [
      teacher.id,
      past.classId,
    ]);
    await rows(`delete from ${school.schema}.class_subject where teacher_id = $1`, [teacher.id]);
    await school.admin.delete(`/api/teachers/${teacher.id}`);
  });

  test('cannot be the user who deletes: 409 conflict', async () => {
    const boss = await service.school();
    const teacher = await add({}, boss);
    await rows(
      `update ${boss.schema}.teacher set user_id = (select id from ${boss.schema}.user_account where email = $2) where id = $1`,
      [teacher.id, boss.adminEmail],
    );
    expect((await boss.admin.delete(`/api/teachers/${teacher.id}`, 409)).error).toBe('conflict');
    expect((await boss.admin.get<Teacher>('/api/teachers/me')).data.id).toBe(teacher.id);
  });
});

describe('permissions', () => {
  const hidden = [
    ...['phone', 'employee_number', 'qualification', 'joined_on', 'date_of_birth', 'gender', 'address', 'user_id'],
    ...['max_periods_per_day', 'max_periods_per_week'],
  ] as const;
  const full = () => ({
    phone: unique('+1 555'),
    employee_number: unique('E'),
    qualification: 'Ph.D.',
    specialization: 'Latin',
    joined_on: '2001-01-01',
    date_of_birth: '1970-01-01',
    gender: 'male',
    address: 'Secret Street',
  });

  test('a teacher sees only public fields of colleagues and all of their own, by id and in the list', async () => {
    const colleague = await add({ ...full(), last_name: unique('Colleague'), email: 'colleague@school.example' });
    const { teacher, client } = await withLogin({ ...full(), last_name: unique('Myself') });
    const directory = { ...colleague, ...Object.fromEntries(hidden.map((field) => [field, null])) };
    expect((await client.get<Teacher>(`/api/teachers/${colleague.id}`)).data).toEqual(directory);
    expect((await client.get<Teacher[]>(`/api/teachers?search=${colleague.last_name}`)).data).toEqual([directory]);
    expect((await client.get<Teacher>(`/api/teachers/${teacher.id}`)).data).toEqual(await read(teacher.id));
    expect(
      (await client.get<Teacher[]>('/api/teachers?pageSize=100&sort=created_at&order=desc')).data.find(
        ({ id }) => id === teacher.id,
      ),
    ).toEqual(await read(teacher.id));
    const accountant = await school.user(['accountant']);
    expect((await accountant.get('/api/teachers', 403)).error).toBe('forbidden');
    const headOfYear = await staff('teacher.read');
    expect((await headOfYear.get<Teacher>(`/api/teachers/${colleague.id}`)).data).toEqual(colleague);
  });

  test('a teacher cannot infer private fields of a colleague from search or sort order', async () => {
    const colleague = await add({
      ...full(),
      last_name: unique('Searched'),
      email: 'searched@school.example',
      phone: '+1 999 000 111',
      employee_number: unique('Hidden'),
    });
    const { client } = await withLogin();
    const finds = async (client: Client, search: string) =>
      ids((await client.get<Teacher[]>(`/api/teachers?search=${encodeURIComponent(search)}`)).data).includes(
        colleague.id,
      );
    for (const secret of [
      colleague.phone ?? '',
      colleague.employee_number ?? '',
      '999 000',
      `${colleague.last_name} 999`,
    ]) {
      expect([secret, await finds(school.admin, secret), await finds(client, secret)]).toEqual([secret, true, false]);
    }
    for (const open of [
      colleague.last_name,
      colleague.email ?? '',
      `${colleague.first_name} ${colleague.last_name.toUpperCase()}`,
      `  ${colleague.last_name} `,
    ]) {
      expect([open, await finds(client, open)]).toEqual([open, true]);
    }
    for (const sort of ['employee_number', 'joined_on']) {
      for (const order of ['asc', 'desc'] as const) {
        const listed = (await walk<Teacher>(client, `/api/teachers?sort=${sort}&order=${order}`, 100)).slice(0, 100);
        const byId = [...ids(listed)].sort((a, b) => (order === 'asc' ? a - b : b - a));
        expect(ids(listed).filter((id) => id !== colleague.id)).toEqual(byId.filter((id) => id !== colleague.id));
      }
    }
  });

  test('class_id finds nothing for a class that the teacher does not teach', async () => {
    const { teacher, client } = await withLogin();
    const colleague = await add();
    const mine = await school.classroom(unique('Mine'));
    const theirs = await school.classroom(unique('Theirs'));
    await lead(mine.classId, teacher.id);
    await lead(theirs.classId, colleague.id);
    expect(ids((await client.get<Teacher[]>(`/api/teachers?class_id=${mine.classId}`)).data)).toEqual([teacher.id]);
    expect((await client.get<Teacher[]>(`/api/teachers?class_id=${theirs.classId}`)).data).toEqual([]);
    expect(ids((await school.admin.get<Teacher[]>(`/api/teachers?class_id=${theirs.classId}`)).data)).toEqual([
      colleague.id,
    ]);
  });

  test('teachers, accountants and students cannot change teachers, and each method requires its own permission', async () => {
    const { teacher, client } = await withLogin();
    const pupil = await school.user(['student']);
    for (const user of [client, await school.user(['accountant']), pupil]) {
      await user.post('/api/teachers', { first_name: 'A', last_name: 'B' }, 403);
      await user.put(`/api/teachers/${teacher.id}`, { first_name: 'A' }, 403);
      await user.delete(`/api/teachers/${teacher.id}`, 403);
      await user.put(`/api/teachers/${teacher.id}/availability`, [], 403);
      await user.put(`/api/teachers/${teacher.id}/workload-rule`, { max_periods_per_day: 1 }, 403);
    }
    await pupil.get('/api/teachers', 403);
    await pupil.get(`/api/teachers/${teacher.id}`, 403);
    expect(await read(teacher.id)).toEqual(teacher);
    const clerk = await staff('teacher.update');
    await clerk.get('/api/teachers', 403);
    await clerk.delete(`/api/teachers/${teacher.id}`, 403);
    const { data: changed } = await clerk.put<Teacher>(`/api/teachers/${teacher.id}`, { address: 'By a clerk' });
    expect(changed).toEqual({ id: teacher.id });
    expect((await read(teacher.id)).address).toBe('By a clerk');
    await service.anonymous.get('/api/teachers', 401);
  });

  test('a teacher with more permissions still cannot change colleagues', async () => {
    const own = await service.school();
    const colleague = await add({}, own);
    await rows(
      `insert into ${own.schema}.role_permission (role_id, permission_id)
       select r.id, p.id from ${own.schema}.role r, core.permission p where r.is_system and r.name = 'teacher' on conflict do nothing`,
    );
    const { teacher, client } = await withLogin({}, own);
    await client.put(`/api/teachers/${colleague.id}`, { first_name: 'Mine' }, 404);
    await client.delete(`/api/teachers/${colleague.id}`, 404);
    await client.put(`/api/teachers/${colleague.id}/availability`, [], 404);
    await client.put(`/api/teachers/${colleague.id}/workload-rule`, { max_periods_per_day: 1 }, 404);
    await client.post(
      '/api/teachers/leaves',
      { leave_type: 'x', start_date: '2026-01-01', end_date: '2026-01-01', teacher_id: colleague.id },
      403,
    );
    expect((await client.put<Teacher>(`/api/teachers/${teacher.id}`, { first_name: 'Own' })).data.first_name).toBe(
      'Own',
    );
    expect((await own.admin.get<Teacher>(`/api/teachers/${colleague.id}`)).data).toEqual(colleague);
  });
});
