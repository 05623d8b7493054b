import { describe, expect, test } from '@jest/globals';
import { address, guardianHelpers, type Student } from '../support/fixtures/guardians.ts';
import { serviceWithSchool, testPassword } from '../support/server/service.ts';

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

  test('does not learn from payments, exports, documents and absences what the school does not show them', async () => {
    const child = await addStudent({ class_id: classId });
    const parent = await addParent([{ student_id: child.id }]);
    const other = await addParent([{ student_id: child.id, is_primary: true }], { first_name: 'Chidi' });
    const { data: invoice } = await school.admin.post<{ id: number }>(
      '/api/fees/invoices',
      { student_id: child.id, due_date: '2034-12-31', items: [{ description: 'Books', amount: 10 }] },
      201,
    );
    await school.admin.post(
      '/api/fees/payments',
      { invoice_id: invoice.id, amount: 5, payment_method: 'cash', reference_number: 'CHIDI-77', notes: 'From Chidi' },
      201,
    );
    interface Paid {
      reference_number: string | null;
      notes: string | null;
    }
    const payments = async (query = '') => (await parent.get<Paid[]>(`/api/fees/payments${query}`)).data;
    expect(await payments()).toMatchObject([{ reference_number: null, notes: null }]);
    expect(await payments('?search=CHIDI-77')).toEqual([]);
    expect(await payments('?search=Amina')).toHaveLength(1);
    const { data } = await parent.get<{ payments: Paid[] }>(`/api/fees/invoices/${String(invoice.id)}`);
    expect(data.payments).toMatchObject([{ reference_number: null }]);
    const csv = async (query: string) =>
      String((await parent.get<Buffer>(`/api/students/export?format=csv&${query}`)).data);
    expect(await csv('search=chidi')).not.toContain('Amina');
    expect(await csv('search=amina')).toContain('Amina');
    expect(await csv('search=amina')).not.toContain('Chidi');
    const url = `/api/students/${String(child.id)}/absences`;
    await other.post(url, { from_date: '2026-10-05', to_date: '2026-10-05', reason: 'Dentist' }, 201);
    expect((await parent.get<object[]>(url)).data).toMatchObject([{ announced_by: null, announced_by_name: null }]);
    expect((await other.get<object[]>(url)).data).toMatchObject([{ announced_by: other.guardian.user_id }]);
    const link = `/api/students/${String(child.id)}/guardians/${String(parent.guardian.id)}`;
    await school.admin.put(link, { can_see_contacts: true });
    expect(await payments('?search=CHIDI-77')).toMatchObject([{ reference_number: 'CHIDI-77', notes: 'From Chidi' }]);
    expect((await links(child.id, parent)).find(({ first_name }) => first_name === 'Chidi')).toMatchObject({
      email: other.guardian.email,
      user_id: null,
      can_see_records: null,
      receives_messages: null,
    });
  });

  test('who is also a teacher sees the child, and students see no guardian', async () => {
    const email = address('pupil');
    const child = await addStudent({ class_id: classId, email, create_user_account: true, password: testPassword });
    const teacher = await school.user(['teacher']);
    await school.insert('teacher', { first_name: 'Tom', last_name: 'Teach', user_id: teacher.id });
    await teacher.get(`/api/attendance/student/${String(child.id)}`, 404);
    const guardian = await addGuardian({ user_id: teacher.id, children: [{ student_id: child.id }] });
    await teacher.get(`/api/attendance/student/${String(child.id)}`);
    expect((await student(child.id, teacher)).id).toBe(child.id);
    await teacher.get(`/api/guardians/${String(guardian.id)}`);
    const pupil = await service.anonymous.login({ tenant_id: school.id, email, password: testPassword });
    expect((await pupil.get<object[]>('/api/guardians')).data).toEqual([]);
  });
});
