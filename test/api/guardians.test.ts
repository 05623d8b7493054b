import { describe, expect, test } from '@jest/globals';
import { address, guardianHelpers, type Guardian } from '../support/fixtures/guardians.ts';
import { serviceWithSchool, testPassword } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { addStudent, addGuardian, addParent, student, contact, links } = guardianHelpers(service, school);

describe('a guardian', () => {
  test('is created with children, and is found by name, email, phone and student', async () => {
    const child = await addStudent();
    const email = address('ngozi');
    const guardian = await addGuardian({
      first_name: 'Ngozi',
      email,
      phone: '+44 20 7946 0777',
      children: [{ student_id: child.id, relationship: 'Mum', can_pick_up: false }],
    });
    expect(guardian.children).toMatchObject([
      {
        student_id: child.id,
        student_name: 'Amina Okafor',
        relationship: 'mother',
        is_primary: true,
        priority: 1,
        can_see_records: true,
        can_see_contacts: false,
        receives_messages: true,
        can_pick_up: false,
      },
    ]);
    for (const query of [`search=${email}`, 'search=7946 0777', `search=ngozi okafor`, `student_id=${child.id}`])
      expect((await school.admin.get<Guardian[]>(`/api/guardians?${query}`)).data.map(({ id }) => id)).toEqual([
        guardian.id,
      ]);
    expect((await school.admin.get<Guardian>(`/api/guardians/${guardian.id}`)).data).toEqual(guardian);
  });

  test('may have a single name', async () => {
    const guardian = await addGuardian({ first_name: 'Suharto', last_name: '' });
    const child = await addStudent();
    await school.admin.post(`/api/students/${child.id}/guardians`, { guardian_id: guardian.id }, 201);
    expect((await contact(child.id))[0]).toBe('Suharto');
  });

  test('is the contact of the student whose primary guardian it is', async () => {
    const child = await addStudent();
    const mother = await addGuardian({ first_name: 'Grace', children: [{ student_id: child.id }] });
    const father = await addGuardian({ first_name: 'Chidi', children: [{ student_id: child.id }] });
    expect(await contact(child.id)).toEqual(['Grace Okafor', mother.phone, mother.email]);
    expect((await links(child.id)).map((link) => [link.id, link.is_primary, link.priority])).toEqual([
      [mother.id, true, 1],
      [father.id, false, 2],
    ]);
    await school.admin.put(`/api/guardians/${mother.id}`, { last_name: 'Eze', phone: '+44 20 7946 0123' });
    expect(await contact(child.id)).toEqual(['Grace Eze', '+44 20 7946 0123', mother.email]);
    await school.admin.put(`/api/students/${child.id}/guardians/${father.id}`, { is_primary: true });
    expect(await contact(child.id)).toEqual(['Chidi Okafor', father.phone, father.email]);
    const refused = await school.admin.put(
      `/api/students/${child.id}/guardians/${father.id}`,
      { is_primary: false },
      409,
    );
    expect(refused.details).toMatchObject([{ path: 'is_primary' }]);
    await school.admin.delete(`/api/students/${child.id}/guardians/${father.id}`);
    expect(await contact(child.id)).toEqual(['Grace Eze', '+44 20 7946 0123', mother.email]);
    await school.admin.delete(`/api/students/${child.id}/guardians/${mother.id}`);
    expect(await contact(child.id)).toEqual([null, null, null]);
    expect(await links(child.id)).toEqual([]);
  });

  test('does not replace another contact unless the request says so', async () => {
    const child = await addStudent({ parent_name: 'Omar García', parent_email: address('omar') });
    const guardian = await addGuardian({ children: [{ student_id: child.id }] });
    expect(await contact(child.id)).toEqual([child.parent_name, child.parent_phone, child.parent_email]);
    await school.admin.put(`/api/students/${child.id}/guardians/${guardian.id}`, { is_primary: true });
    expect((await contact(child.id))[0]).toBe('Grace Okafor');
  });

  test('is linked to a student once, in order of the dates', async () => {
    const child = await addStudent();
    const guardian = await addGuardian({ children: [{ student_id: child.id }] });
    const url = `/api/students/${child.id}/guardians`;
    expect((await school.admin.post(url, { guardian_id: guardian.id }, 409)).details).toMatchObject([
      { path: 'guardian_id' },
    ]);
    await school.admin.post(url, { guardian_id: 999_999 }, 422);
    await school.admin.post('/api/students/999999/guardians', { guardian_id: guardian.id }, 404);
    const days = { starts_on: '2026-03-02', ends_on: '2026-03-01' };
    expect((await school.admin.put(`${url}/${guardian.id}`, days, 400)).details).toMatchObject([{ path: 'ends_on' }]);
    expect(
      (await school.admin.put(`${url}/${guardian.id}`, { ends_on: '2020-01-01', starts_on: '2020-01-02' }, 400)).error,
    ).toBe('validation_error');
  });

  test('who is deleted is no longer a guardian, and has no login', async () => {
    const child = await addStudent();
    const parent = await addParent([{ student_id: child.id }]);
    expect((await student(child.id, parent)).id).toBe(child.id);
    await school.admin.delete(`/api/guardians/${parent.guardian.id}`);
    await school.admin.get(`/api/guardians/${parent.guardian.id}`, 404);
    expect(await links(child.id)).toEqual([]);
    await parent.get('/api/me/children', 401);
  });
});

describe('the login of a guardian', () => {
  test('is that of a user with other roles, if the school says so', async () => {
    const child = await addStudent();
    const accountant = await school.user(['accountant']);
    const refused = await school.admin.post(
      '/api/guardians',
      { first_name: 'Ann', last_name: 'Account', email: accountant.email, create_user_account: true },
      409,
    );
    expect(refused.message).toContain(String(accountant.id));
    const guardian = await addGuardian({ user_id: accountant.id, children: [{ student_id: child.id }] });
    expect((await accountant.get<{ student_id: number }[]>('/api/me/children')).data).toMatchObject([
      { student_id: child.id },
    ]);
    await school.admin.put(`/api/guardians/${guardian.id}`, { user_id: null });
    expect((await accountant.get('/api/me/children')).data).toEqual([]);
    await accountant.get('/api/students');
  });

  test('cannot have the address or the login of a student', async () => {
    const email = address('pupil');
    const pupil = await addStudent({ email, create_user_account: true, password: testPassword });
    const names = { first_name: 'Grace', last_name: 'Okafor' };
    const byAddress = await school.admin.post('/api/guardians', { ...names, email, create_user_account: true }, 409);
    expect(byAddress.message).toContain('student');
    await school.admin.post('/api/guardians', { ...names, user_id: pupil.user_id }, 409);
  });

  test('ends with the user; the guardian stays', async () => {
    const child = await addStudent();
    const parent = await addParent([{ student_id: child.id }]);
    await school.admin.delete(`/api/users/${parent.guardian.user_id}`);
    await parent.get('/api/me/children', 401);
    expect((await school.admin.get<Guardian>(`/api/guardians/${parent.guardian.id}`)).data.user_id).toBeNull();
  });
});

describe('a guardian who is logged in', () => {
  test('changes their own contact and nothing else', async () => {
    const child = await addStudent();
    const parent = await addParent([{ student_id: child.id }]);
    const url = `/api/guardians/${parent.guardian.id}`;
    const { data } = await parent.put<Guardian>(url, { ...parent.guardian, phone: '+44 20 7946 0999' });
    expect(data.phone).toBe('+44 20 7946 0999');
    expect((await contact(child.id))[1]).toBe('+44 20 7946 0999');
    expect((await parent.put(url, { first_name: 'Gracie' }, 403)).details).toMatchObject([{ path: 'first_name' }]);
    await parent.put(`/api/students/${child.id}`, { phone: null }, 403);
    await parent.put(`/api/students/${child.id}/guardians/${parent.guardian.id}`, { can_see_contacts: true }, 403);
    await parent.post('/api/guardians', { first_name: 'X', last_name: 'Y' }, 403);
    await parent.delete(url, 403);
  });
});
