import { describe, expect, test } from '@jest/globals';
import { address, guardianHelpers, type Guardian, type Link } from '../support/fixtures/guardians.ts';
import { serviceWithSchool, testPassword } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { classId } = await school.classroom();
const { addStudent, addGuardian, addParent, contact, links } = guardianHelpers(service, school);

describe('a contact that is written to a student', () => {
  test('changes the name and phone of the primary guardian, for all of their children', async () => {
    const [a, b] = [await addStudent(), await addStudent({ first_name: 'Ben' })];
    const guardian = await addGuardian({ children: [{ student_id: a.id }, { student_id: b.id }] });
    await school.admin.put(`/api/students/${a.id}`, { parent_name: 'Grace N. Eze', parent_phone: '+44 20 7946 0555' });
    expect((await school.admin.get<Guardian>(`/api/guardians/${guardian.id}`)).data).toMatchObject({
      first_name: 'Grace N.',
      last_name: 'Eze',
      phone: '+44 20 7946 0555',
      email: guardian.email,
    });
    expect(await contact(b.id)).toEqual(['Grace N. Eze', '+44 20 7946 0555', guardian.email]);
  });

  test('with another email links this student to the guardian with that email and name, or to a new one', async () => {
    const [a, b] = [await addStudent(), await addStudent({ first_name: 'Ben' })];
    const guardian = await addGuardian({ children: [{ student_id: a.id }, { student_id: b.id }] });
    const other = await addGuardian({ first_name: 'Chidi' });
    await school.admin.put(`/api/students/${a.id}`, { parent_name: 'chidi  OKAFOR', parent_email: other.email });
    expect((await links(a.id)).map((link) => [link.id, link.is_primary, link.can_see_records])).toEqual([
      [guardian.id, false, true],
      [other.id, true, true],
    ]);
    expect(await contact(a.id)).toEqual(['Chidi Okafor', other.phone, other.email]);
    expect(await contact(b.id)).toEqual(['Grace Okafor', guardian.phone, guardian.email]);
    const email = address('new');
    await school.admin.put(`/api/students/${b.id}`, { parent_email: email });
    const [, added] = await links(b.id);
    expect(added).toMatchObject({ guardian_name: 'Grace Okafor', email, is_primary: true });
    expect((await school.admin.get<Guardian>(`/api/guardians/${guardian.id}`)).data.email).toBe(guardian.email);
  });

  test('never changes a login, and a guardian with a login does not see the student until the school allows it', async () => {
    const own = await addStudent();
    const parent = await addParent([{ student_id: own.id }]);
    const { email } = parent.guardian;
    const other = await addStudent({ first_name: 'Zoe' });
    await addGuardian({ first_name: 'Ruth', children: [{ student_id: other.id }] });
    await school.admin.put(`/api/students/${other.id}`, { parent_name: 'Grace Okafor', parent_email: email });
    expect((await links(other.id)).find(({ id }) => id === parent.guardian.id)).toMatchObject({
      is_primary: true,
      can_see_records: false,
    });
    await parent.get(`/api/students/${other.id}`, 404);
    await school.admin.put(`/api/students/${other.id}/guardians/${parent.guardian.id}`, { can_see_records: true });
    await parent.get(`/api/students/${other.id}`);
    await school.admin.put(`/api/students/${own.id}`, { parent_name: 'Grace Eze' });
    await service.anonymous.login({ tenant_id: school.id, email, password: testPassword });
  });

  test('does not bring back what the school took from a guardian', async () => {
    const child = await addStudent();
    const guardian = await addGuardian({ children: [{ student_id: child.id }] });
    await addGuardian({ first_name: 'Ruth', children: [{ student_id: child.id }] });
    await school.admin.delete(`/api/students/${child.id}/guardians/${guardian.id}`);
    await school.admin.put(`/api/students/${child.id}`, { parent_name: 'Grace Okafor', parent_email: guardian.email });
    expect((await links(child.id)).find(({ id }) => id === guardian.id)).toMatchObject({
      is_primary: true,
      can_see_records: false,
      receives_messages: false,
    });
    await school.admin.delete(`/api/students/${child.id}/guardians/${guardian.id}`);
    const again = await school.admin.post<Link>(
      `/api/students/${child.id}/guardians`,
      { guardian_id: guardian.id },
      201,
    );
    expect(again.data).toMatchObject({ can_see_records: false, can_pick_up: false });
  });

  test('cannot be without a name while the student has a primary guardian', async () => {
    const child = await addStudent();
    await addGuardian({ children: [{ student_id: child.id }] });
    const refused = await school.admin.put(`/api/students/${child.id}`, { parent_name: null }, 400);
    expect(refused.details).toMatchObject([{ path: 'parent_name' }]);
  });

  test('is refused to a teacher for a guardian who also cares for students whom they do not teach', async () => {
    const teacher = await school.user(['teacher']);
    const role = await school.admin.get<{ id: number; name: string; permission_ids: number[] }[]>(
      '/api/rbac/roles?search=teacher',
    );
    const [found] = role.data.filter(({ name }) => name === 'teacher');
    const { data: permissions } = await school.admin.get<{ id: number; name: string }[]>('/api/rbac/permissions');
    const update = permissions.find(({ name }) => name === 'student.update')?.id;
    await school.admin.put(`/api/rbac/roles/${found?.id}`, {
      permission_ids: [...(found?.permission_ids ?? []), update],
    });
    const teacherId = await school.insert('teacher', { first_name: 'Tom', last_name: 'Teach', user_id: teacher.id });
    await school.admin.put(`/api/classes/${classId}`, { class_teacher_id: teacherId });
    const taught = await addStudent({ class_id: classId });
    const elsewhere = await addStudent({ first_name: 'Ben' });
    await addGuardian({ children: [{ student_id: taught.id }] });
    await teacher.put(`/api/students/${taught.id}`, { parent_phone: '+44 20 7946 0002' });
    await addGuardian({
      first_name: 'Ruth',
      children: [{ student_id: taught.id, is_primary: true }, { student_id: elsewhere.id }],
    });
    await teacher.put(`/api/students/${taught.id}`, { parent_phone: '+44 20 7946 0003' }, 403);
    expect((await contact(elsewhere.id))[1]).toBe('+44 20 7946 0001');
  });
});
