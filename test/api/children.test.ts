import { describe, expect, test } from '@jest/globals';
import { guardianHelpers, type Student } from '../support/fixtures/guardians.ts';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { classId } = await school.classroom();
const { addStudent, addGuardian, addParent, student, links } = guardianHelpers(service, school);

describe('a guardian who is logged in', () => {
  test('sees the children, and another guardian only if the school shows them', async () => {
    const child = await addStudent({ address: '1 Elm Street' });
    const parent = await addParent([{ student_id: child.id }]);
    await addGuardian({ first_name: 'Chidi', children: [{ student_id: child.id, is_primary: true }] });
    const hidden = { parent_name: null, parent_phone: null, parent_email: null, address: null };
    expect(await student(child.id, parent)).toMatchObject({ id: child.id, ...hidden });
    expect((await parent.get<Student[]>('/api/students')).data).toMatchObject([{ id: child.id, ...hidden }]);
    expect((await parent.get<Student[]>('/api/students?search=chidi')).data).toEqual([]);
    expect((await links(child.id, parent)).map(({ id }) => id)).toEqual([parent.guardian.id]);
    await school.admin.put(`/api/students/${child.id}/guardians/${parent.guardian.id}`, { can_see_contacts: true });
    expect(await student(child.id, parent)).toMatchObject({ parent_name: 'Chidi Okafor', address: '1 Elm Street' });
    expect((await parent.get<Student[]>('/api/students?search=chidi')).data.map(({ id }) => id)).toEqual([child.id]);
    expect((await links(child.id, parent)).map(({ first_name }) => first_name)).toEqual(['Grace', 'Chidi']);
  });

  test('no longer sees a child at the next request when the link ends or records are hidden', async () => {
    const [a, b] = [await addStudent(), await addStudent({ first_name: 'Ben' })];
    const parent = await addParent([{ student_id: a.id }, { student_id: b.id }]);
    const seen = async () => (await parent.get<Student[]>('/api/students?sort=id')).data.map(({ id }) => id);
    const url = (id: number) => `/api/students/${id}/guardians/${parent.guardian.id}`;
    expect(await seen()).toEqual([a.id, b.id]);
    await school.admin.put(url(a.id), { can_see_records: false });
    expect(await seen()).toEqual([b.id]);
    await parent.get(`/api/me/children/${a.id}/dashboard`, 404);
    await school.admin.put(url(a.id), { can_see_records: true, ends_on: '2026-01-01' });
    expect(await seen()).toEqual([b.id]);
    await school.admin.put(url(a.id), { ends_on: null, starts_on: '2100-01-01' }, 400);
    await school.admin.put(url(a.id), { ends_on: null });
    expect(await seen()).toEqual([a.id, b.id]);
    await school.admin.delete(url(b.id));
    expect(await seen()).toEqual([a.id]);
  });

  test('reads what the child reads: dashboard, attendance, fees, timetable and calendar', async () => {
    const child = await addStudent({ class_id: classId });
    const other = await addStudent({ class_id: classId, first_name: 'Ben' });
    const parent = await addParent([{ student_id: child.id, relationship: 'father' }]);
    expect((await parent.get<object[]>('/api/me/children')).data).toMatchObject([
      { student_id: child.id, student_name: 'Amina Okafor', relationship: 'father' },
    ]);
    const { data } = await parent.get<{ student: { id: number }; class: { id: number } }>(
      `/api/me/children/${child.id}/dashboard`,
    );
    expect([data.student.id, data.class.id]).toEqual([child.id, classId]);
    await parent.get(`/api/me/children/${other.id}/dashboard`, 404);
    await parent.get(`/api/attendance/student/${other.id}`, 404);
    await parent.get(`/api/attendance/student/${child.id}`);
    await parent.get(`/api/students/${child.id}/documents`);
    await parent.get(`/api/students/${other.id}/documents`, 404);
    await parent.get(`/api/schedule/class/${classId}`);
    expect((await parent.get<object[]>('/api/finance/student-fees')).data).toEqual([]);
    expect((await parent.get<{ total_students: number }>('/api/dashboard')).data.total_students).toBe(1);
  });

  test('announces an absence of a child, and takes back only their own announcements', async () => {
    const child = await addStudent({ class_id: classId });
    const other = await addStudent({ class_id: classId });
    const parent = await addParent([{ student_id: child.id }]);
    const days = (from_date: string) => ({ from_date, to_date: from_date, reason: 'Dentist' });
    const url = `/api/students/${child.id}/absences`;
    const { data: own } = await parent.post<{ id: number }>(url, days('2026-11-02'), 201);
    await parent.post(`/api/students/${other.id}/absences`, days('2026-11-02'), 404);
    const { data: ofSchool } = await school.admin.post<{ id: number }>(url, days('2026-11-03'), 201);
    await parent.delete(`${url}/${ofSchool.id}`, 404);
    await parent.delete(`${url}/${own.id}`);
    expect((await parent.get<{ id: number }[]>(url)).data.map(({ id }) => id)).toEqual([ofSchool.id]);
  });
});
