import type { School, TestService } from './service.ts';

/** A component of a fee structure, as a test gives it. */
export interface Component {
  name: string;
  amount: number;
  frequency: string;
}

/** A student fee, as far as the tests read it. */
export interface StudentFee {
  id: number;
  student_id: number;
  class_id: number;
  amount: number;
  paid_amount: number;
  balance: number;
  due_date: string;
  status: string;
  billed_on: string;
  items: { name: string; amount: number; period_start: string; period_end: string }[];
  payments: { amount: number }[];
}

/** What a generation of fees answers. */
export interface Generated {
  created: number;
  skipped: number;
  reasons: { reason: string; count: number }[];
  amount: number;
  date: string;
  due_date: string;
  dry_run: boolean;
}

let serial = 0;

const theYear = { name: '2021/22', start_date: '2021-08-01', end_date: '2022-07-31' };
const theTerms = [
  { name: 'Autumn', start_date: '2021-08-01', end_date: '2021-12-20' },
  { name: 'Spring', start_date: '2022-01-08', end_date: '2022-03-31' },
  { name: 'Summer', start_date: '2022-04-01', end_date: '2022-07-31' },
];

/** A school with a grade and an academic year: 2021/22, unless the test names another, with a gap between its first two terms. */
export async function feeSchool(service: TestService, year = theYear, terms = theTerms) {
  const school: School = await service.school();
  const { admin, schema } = school;
  const make = async (path: string, body: object) => (await admin.post<{ id: number }>(path, body, 201)).data.id;
  const yearId = await make('/api/academics/years', year);
  for (const term of terms) await make('/api/academic-terms', { academic_year_id: yearId, ...term });
  const gradeId = await make('/api/grades', { name: 'One' });
  return {
    school,
    yearId,
    gradeId,
    addClass: (name = `Class ${String(++serial)}`) => make('/api/classes', { name, grade_id: gradeId, academic_year_id: yearId }),
    /** A student of a class from a day on. */
    async addStudent(class_id: number, joined = '2021-08-01', fields: Record<string, unknown> = {}) {
      const id = await make('/api/students', { first_name: 'Stu', last_name: `Dent ${String(++serial)}`, class_id, ...fields });
      await service.database.query(`update ${schema}.enrollment set starts_on = $1 where student_id = $2`, [joined, id]);
      return id;
    },
    addStructure: (components: Component[], class_ids: number[], fields: Record<string, unknown> = {}) =>
      make('/api/finance/fee-structures', { name: `Fees ${String(++serial)}`, academic_year_id: yearId, components, class_ids, ...fields }),
    generate: async (fee_structure_id: number, fields: Record<string, unknown> = {}) =>
      (await admin.post<Generated>('/api/finance/student-fees/generate', { fee_structure_id, ...fields })).data,
    /** The fees of a student, with their items. */
    async feesOf(student_id: number) {
      const { data } = await admin.get<StudentFee[]>(`/api/finance/student-fees?student_id=${String(student_id)}&pageSize=100`);
      return Promise.all(data.map(async ({ id }) => (await admin.get<StudentFee>(`/api/finance/student-fees/${String(id)}`)).data));
    },
    pay: (student_fee_id: number, amount: number, status = 201, fields: Record<string, unknown> = {}) =>
      admin.post<{ id: number; receipt_number: string }>('/api/finance/payments', { student_fee_id, amount, payment_method: 'cash', ...fields }, status),
  };
}
