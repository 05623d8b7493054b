import { pick } from './statistics.ts';

/** One request of a case, for the service and for the baselines. */
export interface CaseRequest {
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  body?: object;
  /** For `core.call`: the operation, and the parameters after validation of path, query and body. */
  operation: string;
  params: object;
  /** For baselines/<case>.sql and baselines/<case>.graphql. */
  baseline?: { values: unknown[]; variables: object };
}

/** Random ids to build a request with, all from one school. */
export interface Subject {
  tenantId: number;
  /** A random student of the school. */
  student: number;
  /** A random class of this year. It has at least 25 students. */
  classId: number;
  /** One of the school's 20 users. */
  user: number;
  /**
   * The number of students of the school. Four fifths of them are in its 24 classes of this year, assigned round-robin.
   */
  students: number;
}

/** A kind of request to measure, for one school and for random schools. */
export interface BenchCase {
  name: string;
  title: string;
  request: (subject: Subject) => CaseRequest;
  /** The aims, as ratios. */
  aims?: {
    /** core.call / the bare statement, one school. */
    callToBare?: number;
    /** The service / PostGraphile, one school. */
    serviceToPostgraphile?: number;
    /** Random schools / one school, for the service. */
    randomToOne?: number;
  };
  /** Whether baselines/ has a bare statement and a PostGraphile query for this case. */
  hasBaselines?: true;
  /** Measured only in the school with many invoices. */
  needsManyInvoices?: true;
  /** Number of concurrent requests, if a user may have fewer than the default. */
  connections?: number;
  /** SQL that reverts the changes of the case, run in the schema of a school that had `students` students. */
  undo?: (students: number) => string;
}

/** The calendar year in which the current academic year began (in August), as in seed.sql. */
export const schoolYear = new Date(new Date().setMonth(new Date().getMonth() - 7)).getFullYear();
const firstDay = Date.UTC(schoolYear, 7, 1);
/** The n-th day of this academic year. */
const dayOfYear = (n: number) => new Date(firstDay + n * 86_400_000).toISOString().slice(0, 10);
const daysSoFar = Math.floor((Date.now() - firstDay) / 86_400_000);
/** Deletes marks, except those that the seed gives to class 1. */
const unmark = () =>
  `delete from attendance_correction; delete from attendance where class_id <> 1 or date < '${schoolYear}-08-15';
   delete from attendance_day where class_id <> 1 or date < '${schoolYear}-08-15'`;

/** The ids of the students of a class of this year. */
const inClass = (classId: number, students: number) =>
  Array.from({ length: Math.floor((Math.floor((students * 4) / 5) - classId) / 24) + 1 }, (_, n) => classId + 24 * n);

const mark = (classId: number, date: string, students: number, statuses: string[]): CaseRequest => {
  const records = inClass(classId, students).map((student_id) => ({ student_id, status: pick(statuses) }));
  const body = { class_id: classId, date, records };
  const ids = records.map(({ student_id }) => student_id);
  const marks = records.map(({ status }) => status);
  return {
    method: 'POST',
    path: '/api/attendance/mark',
    body,
    operation: 'attendance_mark',
    params: body,
    baseline: { values: [classId, date, ids, marks], variables: { classId, date, students: ids, statuses: marks } },
  };
};

/** Today, its month and the year that begins today. */
const today = new Date().toISOString().slice(0, 10);
const monthBegin = `${today.slice(0, 7)}-01`;
const monthEnd = new Date(Date.UTC(Number(today.slice(0, 4)), Number(today.slice(5, 7)), 0)).toISOString().slice(0, 10);
const yearEnd = new Date(Date.now() + 364 * 86_400_000).toISOString().slice(0, 10);
/** Family names of about one student or parent in 15. */
const searches = ['okafor', 'haddad', 'kowalski', 'jensen', 'ferreira', 'tanaka', 'suzuki', 'sharma', 'khan', 'hassan'];

/** The password of all benchmark users. */
export const benchPassword = 'bench-password';

export const cases: BenchCase[] = [
  {
    name: 'get',
    title: 'get a student',
    aims: { callToBare: 0.5, serviceToPostgraphile: 2.5, randomToOne: 0.7 },
    hasBaselines: true,
    request: ({ student }) => ({
      path: `/api/students/${student}`,
      operation: 'students_get',
      params: { id: student },
      baseline: { values: [student], variables: { id: student } },
    }),
  },
  {
    name: 'list',
    title: 'list 25 students of a class',
    aims: { callToBare: 0.7, serviceToPostgraphile: 2, randomToOne: 0.7 },
    hasBaselines: true,
    request: ({ classId }) => ({
      path: `/api/students?class_id=${classId}&pageSize=25`,
      operation: 'students_list',
      params: { class_id: classId, pageSize: 25 },
      baseline: { values: [classId, 25], variables: { classId, pageSize: 25 } },
    }),
  },
  {
    name: 'search',
    title: 'search students by a name',
    hasBaselines: true,
    request: () => {
      const search = pick(searches);
      const pattern = `%${search}%`;
      return {
        path: `/api/students?search=${search}&pageSize=25`,
        operation: 'students_list',
        params: { search, pageSize: 25 },
        baseline: { values: [pattern, 25], variables: { pattern, pageSize: 25 } },
      };
    },
  },
  {
    name: 'classes',
    title: 'list 20 classes with counts',
    request: () => ({ path: '/api/classes', operation: 'classes_list', params: {} }),
  },
  {
    name: 'dashboard',
    title: 'dashboard of a school',
    aims: { randomToOne: 0.7 },
    hasBaselines: true,
    request: () => ({
      path: '/api/dashboard',
      operation: 'dashboard_get',
      params: {},
      baseline: {
        values: [today, monthBegin, monthEnd, yearEnd, 1],
        variables: { today, monthBegin, monthEnd, yearEnd, userId: 1 },
      },
    }),
  },
  {
    name: 'today',
    title: 'schedule of a teacher, today',
    request: () => ({ path: '/api/schedule/today', operation: 'schedule_today', params: {} }),
  },
  {
    name: 'class-day',
    title: 'schedule of a class, a day',
    request: ({ classId }) => ({
      path: `/api/schedule/class/${classId}`,
      operation: 'schedule_class',
      params: { class_id: classId },
    }),
  },
  {
    name: 'login',
    title: 'log in',
    request: ({ tenantId, user }) => {
      const body = { tenant_id: tenantId, email: `user${user}@bench.example`, password: benchPassword };
      return { method: 'POST', path: '/api/auth/login', body, operation: 'auth_credentials', params: body };
    },
  },
  {
    name: 'create',
    title: 'create a student',
    aims: { randomToOne: 0.7 },
    hasBaselines: true,
    request: ({ classId }) => {
      const body = {
        first_name: 'Benedikt',
        last_name: 'Benchmark',
        date_of_birth: '2015-04-01',
        gender: 'male',
        class_id: classId,
        parent_name: 'Berta Benchmark',
      };
      const variables = {
        // The load generator puts a different text here.
        admissionNumber: '[<id>]',
        firstName: body.first_name,
        lastName: body.last_name,
        dateOfBirth: body.date_of_birth,
        gender: body.gender,
        classId,
        parentName: body.parent_name,
      };
      return {
        method: 'POST',
        path: '/api/students',
        body,
        operation: 'students_create',
        params: body,
        baseline: { values: Object.values(body), variables },
      };
    },
    undo: (students) =>
      `delete from enrollment where student_id > ${students};
       delete from student where id > ${students};
       update counter set value = ${students} where name = 'admission_number' and value > ${students};
       update platform.tenant_usage u set students = s.students from school_usage s
         where 'tenant_' || u.tenant_id = current_schema() and u.students <> s.students`,
  },
  {
    name: 'mark',
    title: 'mark the attendance of a class',
    hasBaselines: true,
    request: ({ classId, students }) =>
      mark(classId, dayOfYear(Math.floor(Math.random() * daysSoFar)), students, [
        'present',
        'present',
        'present',
        'absent',
        'late',
      ]),
    undo: unmark,
  },
  {
    name: 'correct',
    title: 'mark it again, two of three marks changed',
    request: ({ classId, students }) => mark(classId, dayOfYear(0), students, ['present', 'absent', 'late']),
    undo: unmark,
  },
  {
    name: 'register',
    title: 'attendance register of a class, a month',
    request: () => ({
      path: `/api/attendance/class/1/summary?from_date=${schoolYear}-09-01&to_date=${schoolYear}-09-30`,
      operation: 'attendance_class_summary',
      params: { class_id: 1, from_date: `${schoolYear}-09-01`, to_date: `${schoolYear}-09-30` },
    }),
  },
  {
    name: 'student-year',
    title: 'attendance of a student, a year',
    request: ({ students }) => {
      const student_id = pick(inClass(1, students));
      return { path: `/api/attendance/student/${student_id}`, operation: 'attendance_student', params: { student_id } };
    },
  },
  {
    name: 'payment',
    title: 'record a payment',
    hasBaselines: true,
    request: ({ student }) => {
      const body = { student_fee_id: student, amount: 0.01, payment_method: 'cash' };
      return {
        method: 'POST',
        path: '/api/finance/payments',
        body,
        operation: 'payments_create',
        params: body,
        baseline: {
          values: [student, 0.01, 'cash', today, `RCT-${today.slice(0, 4)}`],
          // The id of a fee equals that of its student.
          variables: { feeId: student, studentId: student, amount: '0.01', paymentMethod: 'cash', today },
        },
      };
    },
    undo: () =>
      `set session_replication_role = replica;
       delete from payment;
       update student_fee set paid_amount = 0, status = 'pending' where paid_amount > 0;
       delete from counter where name like 'RCT-%';
       set session_replication_role = origin`,
  },
  {
    name: 'invoices',
    title: 'list 20 of 100,000 invoices',
    needsManyInvoices: true,
    request: () => ({ path: '/api/fees/invoices', operation: 'invoices_list', params: {} }),
  },
  {
    name: 'student-invoices',
    title: 'invoices of a student, of 100,000',
    needsManyInvoices: true,
    request: ({ student }) => ({
      path: `/api/fees/invoices?student_id=${student}`,
      operation: 'invoices_list',
      params: { student_id: student },
    }),
  },
  {
    name: 'pdf',
    title: 'an invoice as a PDF, 3 at a time',
    connections: 3,
    needsManyInvoices: true,
    request: ({ student }) => ({
      path: `/api/fees/invoices/${student}/download`,
      operation: 'invoices_download',
      params: { id: student },
    }),
  },
  {
    name: 'transport',
    title: 'transport dashboard',
    request: () => ({ path: '/api/transport/dashboard', operation: 'transport_dashboard', params: {} }),
  },
  {
    name: 'contacts',
    title: 'transport contact sheet, 1 at a time',
    // A user can run at most two exports at once.
    connections: 1,
    request: () => ({
      path: '/api/transport/export/contact-sheet',
      operation: 'transport_contact_sheet',
      params: { limit: 5000 },
    }),
  },
];
