import type { Login, SpecificationClient } from '../client.ts';

interface YearEnd {
  admin: Login;
  yearId: number;
  nextYearId: number;
  nextGradeId: number;
  aminaId: number;
  teacherId: number;
  bolaId: number;
  largerPlanId: number;
}

/** The admin copies the classes, promotes the students, and changes the plan. Answers the id of the next class. */
export async function endYear(client: SpecificationClient, ids: YearEnd): Promise<number> {
  const { admin: as, teacherId, yearId, nextYearId, nextGradeId, aminaId, bolaId, largerPlanId } = ids;
  await client.call('POST /api/classes/copy', {
    as,
    bodyNotShown: { from_academic_year_id: yearId, to_academic_year_id: nextYearId },
  });
  const { id: toClassId } = await client.call('POST /api/classes', {
    as,
    bodyNotShown: { name: 'Class 2', grade_id: nextGradeId, academic_year_id: nextYearId },
  });
  // The teacher sees what the promotion does to their students only in classes that they teach.
  await client.call('POST /api/classes/{id}/teachers', {
    as,
    path: { id: toClassId },
    body: { teacher_id: teacherId, subject: 'Mathematics', is_class_teacher: false },
  });
  const promotion = { student_ids: [aminaId], to_class_id: toClassId, to_academic_year_id: nextYearId };
  await client.call('POST /api/students/promotion/preview', { as, bodyNotShown: promotion });
  await client.call('POST /api/students/promote', { as, body: promotion });
  const amina = await client.call('GET /api/students/{student_id}', { as, path: { student_id: aminaId } });
  client.check(
    'POST /api/students/promote',
    amina.record['class_id'] === toClassId,
    `leaves the student in the class ${String(amina.record['class_id'])}`,
  );

  const remove = 'DELETE /api/students/{student_id}';
  const removed = await client.call(remove, { as, path: { student_id: bolaId } });
  client.check(remove, removed.text('deleted_at') !== '', 'does not show deleted_at');
  const { records } = await client.call('GET /api/students', { as });
  client.check(remove, !records.some(({ id }) => id === bolaId), 'leaves the student in the list');

  await client.call('GET /api/subscription/status', { as });
  await client.call('POST /api/subscription/upgrade', { as, body: { plan_id: largerPlanId } });
  const overview = await client.call('GET /api/dashboard', { as });
  client.check(
    'GET /api/dashboard',
    Number(overview.record['total_students']) > 0 && Number(overview.record['total_classes']) > 0,
    `counts nothing: ${JSON.stringify(overview.record)}`,
  );
  return toClassId;
}

/** A user logs out: the tokens of the login stop working. */
export async function logOut(client: SpecificationClient, as: Login) {
  await client.call('POST /api/auth/logout', { as });
  await client.refused('GET /api/auth/profile', { as });
  await client.refused('POST /api/auth/refresh', { as });
}
