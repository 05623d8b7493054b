import type { Client } from './client.ts';
import { type School, testPassword, type TestService } from './service.ts';

/** A school with a timetable, laid straight into its tables. */
export interface Planned {
  school: School;
  /** That of the school. */
  insert: School['insert'];
  sql: <R extends Record<string, unknown>>(text: string, values?: unknown[]) => Promise<R[]>;
  /** The academic year 2030/2031, and its class 5 A in the room R5. */
  yearId: number;
  classId: number;
  gradeId: number;
  maths: number;
  art: number;
  /** Tess Teacher, who teaches the class Mathematics in Monday's periods 1 and 2, with a log-in of the role teacher. */
  teacher: { id: number; client: Client; userId: number };
  /** Otto Other, who teaches it Art on Monday in period 4 and on Wednesday in period 1. */
  other: { id: number; client: Client; userId: number };
  /** Pia Pupil of the class, with a log-in of the role student. */
  student: { id: number; client: Client; userId: number };
}

/** A week of it: Monday the 7th to Sunday the 13th of October 2030. */
export const monday = '2030-10-07';
export const tuesday = '2030-10-08';
export const wednesday = '2030-10-09';

/** Makes it. Periods of 45 minutes from 8:00, period 3 is lunch, and there are 5. */
export async function planned(service: TestService, fields: Record<string, unknown> = {}): Promise<Planned> {
  const school = await service.school(fields);
  const sql: Planned['sql'] = (text, values = []) => service.database.query(text.replaceAll('@', `${school.schema}.`), values);
  const insert: Planned['insert'] = (table, row) => school.insert(table, row);
  const person = async (role: 'teacher' | 'student', first_name: string, last_name: string, more: object = {}) => {
    const email = `${first_name.toLowerCase()}@${school.subdomain}.example`;
    const { data } = await school.admin.post<{ id: number; user_id: number }>(
      `/api/${role}s`,
      { first_name, last_name, email, create_user_account: true, password: testPassword, ...more },
      201,
    );
    return { id: data.id, userId: data.user_id, client: await service.anonymous.login({ tenant_id: school.id, email, password: testPassword }) };
  };
  const yearId = await insert('academic_year', { name: '2030/2031', start_date: '2030-08-01', end_date: '2031-07-31', is_current: true });
  const gradeId = await insert('grade', { name: 'Grade 5', sequence: 5 });
  const classId = await insert('class', { name: '5', section: 'A', grade_id: gradeId, academic_year_id: yearId, room: 'R5' });
  const [maths, art] = [await insert('subject', { name: 'Mathematics', code: 'MAT' }), await insert('subject', { name: 'Art', code: 'ART' })];
  const teacher = await person('teacher', 'Tess', 'Teacher');
  const other = await person('teacher', 'Otto', 'Other');
  const student = await person('student', 'Pia', 'Pupil', { class_id: classId });
  await sql('update @timetable_config set total_periods = 5, lunch_start_period = 3, period_duration = 45');
  const slot = (subject_id: number, teacher_id: number, day_of_week: number, period: number, room: string | null = null) =>
    insert('timetable_slot', { class_id: classId, academic_year_id: yearId, subject_id, teacher_id, day_of_week, period, room });
  await slot(maths, teacher.id, 1, 1);
  await slot(maths, teacher.id, 1, 2);
  await slot(art, other.id, 1, 4, 'Studio');
  await slot(art, other.id, 3, 1);
  return { school, insert, sql, yearId, classId, gradeId, maths, art, teacher, other, student };
}
