import { pdfOf } from '../../support/fixtures/documents.ts';
import { testPassword, type TestService } from '../../support/server/service.ts';
import type { Login, SpecificationClient } from '../client.ts';
import { day } from './days.ts';
import { acceptInvitation } from './setup.ts';

/** The admin adds subjects and a class. */
export async function addClasses(
  client: SpecificationClient,
  as: Login,
  { yearId, gradeId, contextId }: { yearId: number; gradeId: number; contextId: number },
) {
  const subject = { name: 'Mathematics', code: 'MAT', subject_context_id: contextId };
  const { id: subjectId } = await client.call('POST /api/subjects', { as, body: subject });
  const art = await client.call('POST /api/subjects', { as, body: { ...subject, name: 'Art', code: 'ART' } });
  const spare = await client.call('POST /api/subjects', { as, body: { ...subject, name: 'Spare', code: 'SPA' } });
  await client.call('GET /api/subjects/{id}', { as, path: { id: subjectId } });
  await client.call('PUT /api/subjects/{id}', { as, path: { id: subjectId }, body: { ...subject, code: 'MAT1' } });
  await client.call('PUT /api/subjects/{id}', { as, path: { id: subjectId }, body: { code: 'MATH' } });
  await client.list('GET /api/subjects', { as, search: 'Math', filters: [{ subject_context_id: contextId }] });
  await client.call('DELETE /api/subjects/{id}', { as, path: { id: spare.id } });

  const room = { grade_id: gradeId, academic_year_id: yearId };
  const { id: classId } = await client.call('POST /api/classes', { as, bodyNotShown: { name: 'Class 1', ...room } });
  const spareClass = await client.call('POST /api/classes', { as, bodyNotShown: { name: 'Spare', ...room } });
  await client.call('GET /api/classes/{id}', { as, path: { id: classId } });
  await client.call('PUT /api/classes/{id}', { as, path: { id: classId }, bodyNotShown: { name: 'Class 1 A' } });
  await client.list('GET /api/classes', {
    as,
    search: 'Class 1',
    filters: [{ academic_year_id: yearId }, { grade_id: gradeId }],
  });
  await client.call('DELETE /api/classes/{id}', { as, path: { id: spareClass.id } });
  return { subjectId, artId: art.id, classId };
}

/** The admin adds teachers and gives them a class. */
export async function addTeachers(
  client: SpecificationClient,
  as: Login,
  { tenantId, classId, yearId }: { tenantId: number; classId: number; yearId: number },
) {
  const email = 'tess@first-year.example';
  const { id: teacherId } = await client.call('POST /api/teachers', {
    as,
    bodyNotShown: {
      first_name: 'Tess',
      last_name: 'Teacher',
      email,
      create_user_account: true,
      password: testPassword,
    },
  });
  const add = (first_name: string) =>
    client.call('POST /api/teachers', { as, bodyNotShown: { first_name, last_name: 'Teacher' } });
  const { id: otherId } = await add('Otto');
  const spare = await add('Spare');
  const path = { id: teacherId };
  await client.call('GET /api/teachers/{id}', { as, path });
  await client.call('PUT /api/teachers/{id}', { as, path, bodyNotShown: { phone: '+234 1 234' } });
  await client.list('GET /api/teachers', {
    as,
    search: 'Tess',
    filters: [{ is_active: true }],
    emptyFilters: [{ is_active: false }],
  });
  await client.call('DELETE /api/teachers/{id}', { as, path: { id: spare.id } });
  await client.call('PUT /api/teachers/{id}/availability', {
    as,
    path,
    body: [
      { day_of_week: 1, period: 1, is_available: false },
      { day_of_week: 1, period: 2, is_available: true },
    ],
  });
  await client.call('GET /api/teachers/{id}/availability', { as, path });
  await client.call('PUT /api/teachers/{id}/workload-rule', {
    as,
    path,
    bodyNotShown: { max_periods_per_day: 6, max_periods_per_week: 25 },
  });
  await client.call('GET /api/teachers/{id}/workload', { as, path });

  await client.list('GET /api/classes/meta/available-class-teachers', { as, search: 'Tess' });
  const inClass = { as, path: { id: classId } };
  await client.list('GET /api/classes/{id}/unassigned-teachers', { ...inClass, search: 'Tess' });
  // The subjects are not subjects of the class yet.
  await client.call('POST /api/classes/{id}/teachers', {
    ...inClass,
    body: { teacher_id: teacherId, subject: 'Mathematics', is_class_teacher: true },
  });
  for (const subject of ['Art', 'A subject that the school does not teach yet'])
    await client.call('POST /api/classes/{id}/teachers', {
      ...inClass,
      body: { teacher_id: otherId, subject, is_class_teacher: false },
    });
  await client.list('GET /api/classes/{id}/teachers', { ...inClass, search: 'Tess' });
  const leaving = await add('Lena');
  await client.call('POST /api/classes/{id}/teachers', {
    ...inClass,
    body: { teacher_id: leaving.id, subject: 'Drama', is_class_teacher: false },
  });
  const remove = 'DELETE /api/classes/{id}/teachers/{teacher_id}';
  await client.call(remove, { as, path: { id: classId, teacher_id: leaving.id } });
  const { records: remaining } = await client.call('GET /api/classes/{id}/teachers', inClass);
  client.check(remove, !remaining.some((one) => one['teacher_id'] === leaving.id), 'has no effect');

  const teacher = await client.login({ email, password: testPassword, tenant_id: tenantId }, tenantId);
  await client.call('GET /api/teachers/me', { as: teacher });
  await client.list('GET /api/teachers/me/classes', { as: teacher, search: 'Class 1' });
  const leave = (fromToday: number) =>
    client.call('POST /api/teachers/leaves', {
      as: teacher,
      body: { leave_type: 'sick', start_date: day(fromToday), end_date: day(fromToday + 1), reason: 'A cold' },
    });
  const { id: leaveId } = await leave(10);
  const withdrawn = await leave(20);
  await client.call('DELETE /api/teachers/leaves/{leave_id}', { as: teacher, path: { leave_id: withdrawn.id } });
  await client.call('PUT /api/teachers/leaves/{leave_id}', {
    as,
    path: { leave_id: leaveId },
    bodyNotShown: { status: 'approved' },
  });
  await client.list('GET /api/teachers/{id}/leaves', {
    as: teacher,
    path,
    search: 'sick',
    filters: [{ status: 'approved' }, { academic_year_id: yearId }],
  });
  return { teacherId, teacher };
}

/** The admin admits students: Amina with a login, Bola and Chidi without. */
export async function admitStudents(
  client: SpecificationClient,
  service: TestService,
  as: Login,
  { tenantId, classId, gradeId, yearId }: { tenantId: number; classId: number; gradeId: number; yearId: number },
) {
  const email = 'amina@first-year.example';
  const amina = {
    first_name: 'Amina',
    last_name: 'Okafor',
    roll_number: '17',
    admission_number: 'A-1',
    date_of_birth: '2018-05-04',
    gender: 'Female',
    class_id: classId,
    grade_id: gradeId,
    parent_name: 'Ngozi Okafor',
    parent_phone: '+234 1 234',
    parent_email: 'ngozi@first-year.example',
    address: '1 Home Street',
    create_user_account: true,
    email,
  };
  const post = 'POST /api/students';
  await client.refused(post, { as, body: { first_name: 'No', last_name: 'Email', create_user_account: true } });
  const { id: aminaId } = await client.call(post, { as, body: amina });
  const bola = {
    ...amina,
    first_name: 'Bola',
    admission_number: 'B-1',
    gender: 'M',
    create_user_account: false,
    email: 'bola@first-year.example',
  };
  const { id: bolaId } = await client.call(post, { as, body: bola });
  const { id: chidiId } = await client.call(post, { as, body: { first_name: 'Chidi', last_name: 'Eze' } });
  // A form sends the fields that are left blank as empty texts.
  const blank = { roll_number: '', admission_number: '', gender: '', address: '', email: '' };
  await client.call(post, {
    as,
    body: { first_name: 'Dayo', last_name: 'Ade', ...blank, parent_name: '', parent_phone: '', parent_email: '' },
  });
  const put = (id: number, body: object) =>
    client.call('PUT /api/students/{student_id}', { as, path: { student_id: id }, body });
  // A form sends every field back.
  await put(aminaId, { ...amina, address: '2 Home Street' });
  await put(bolaId, { ...bola, gender: 'male' });
  await put(chidiId, { roll_number: '18' });
  await client.call('GET /api/students/{student_id}', { as, path: { student_id: aminaId } });
  await client.list('GET /api/students', {
    as,
    search: 'Amina',
    filters: [{ class_id: classId }, { academic_year_id: yearId }, { is_active: true }],
    emptyFilters: [{ is_active: false }],
  });

  const inClass = { as, path: { id: classId } };
  const inIt = async () =>
    (await client.call('GET /api/classes/{id}/students', inClass)).records.some(({ id }) => id === chidiId);
  const add = 'POST /api/classes/{id}/students';
  const remove = 'DELETE /api/classes/{id}/students/{student_id}';
  await client.list('GET /api/classes/{id}/unassigned-students', { ...inClass, search: 'Chidi' });
  await client.call(add, { ...inClass, body: { student_id: chidiId } });
  client.check(add, await inIt(), 'has no effect');
  await client.call(remove, { as, path: { id: classId, student_id: chidiId } });
  client.check(remove, !(await inIt()), 'has no effect');
  await client.call(add, { ...inClass, body: { student_id: chidiId } });
  await client.list('GET /api/classes/{id}/students', { ...inClass, search: 'Chidi' });

  const student = await acceptInvitation(client, service, tenantId, email);
  return { student, aminaId, bolaId, chidiId };
}

/** The admin keeps documents of a student. Answers the id of one. */
export async function keepDocuments(client: SpecificationClient, as: Login, student_id: number): Promise<number> {
  const content = pdfOf('a certificate');
  const path = { student_id };
  const upload = () =>
    client.call('POST /api/students/{student_id}/documents', {
      as,
      path,
      form: {
        file: [new Blob([new Uint8Array(content)], { type: 'application/pdf' }), 'certificate.pdf'],
        // The specification shows no endpoint for document types. A new school has some.
        document_type_id: 1,
        description: 'Birth certificate',
      },
    });
  const { id } = await upload();
  const spare = await upload();
  const file = 'GET /api/students/{student_id}/documents/{document_id}/file';
  const { bytes } = await client.call(file, { as, path: { student_id, document_id: id } });
  client.check(file, bytes.equals(content), 'answers other bytes than were uploaded');
  await client.list('GET /api/students/{student_id}/documents', { as, path, search: 'certificate' });
  await client.call('DELETE /api/students/{student_id}/documents/{document_id}', {
    as,
    path: { student_id, document_id: spare.id },
  });
  return id;
}
