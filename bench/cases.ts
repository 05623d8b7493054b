/** One request of a case, and the operation that it comes down to: what the service and what the floor is given. */
export interface CaseRequest {
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  body?: object;
  operation: string;
  /** What the validator makes of path, query and body. */
  params: object;
}

/** The n-th thing to ask for, in one school. */
export interface Subject {
  tenantId: number;
  /** A student of the school, at random. */
  student: number;
  /** A class of this year, at random; it has 25 students or more. */
  classId: number;
  /** One of the school's 20 users. */
  user: number;
  /** How many students the school has; four fifths of them are in its 24 classes of this year, in turn. */
  students: number;
}

/** One thing that the service does, to be measured for one school and for schools at random. */
export interface BenchCase {
  name: string;
  title: string;
  request: (subject: Subject) => CaseRequest;
  /** What bounds it: the statement alone (with an aim, the share of it to reach), the argon2 of a password, or the writing of a PDF. */
  floor: 'statement' | 'argon2' | 'print';
  /** Measured in the school of many invoices, and in no other. */
  isOfInvoices?: true;
  aim?: number;
  /** Requests at a time, where one user may not have as many as the others. */
  connections?: number;
  /** SQL that takes back what the case did, in the schema of a school that had `students` students. */
  undo?: (students: number) => string;
}

/** The year whose August begins the academic year, as the seed has it. */
const schoolYear = new Date(new Date().setMonth(new Date().getMonth() - 7)).getFullYear();
const firstDay = Date.UTC(schoolYear, 7, 1);
/** A day of this academic year that has been: its n-th. */
const dayOfYear = (n: number) => new Date(firstDay + n * 86_400_000).toISOString().slice(0, 10);
const daysSoFar = Math.floor((Date.now() - firstDay) / 86_400_000);
/** Class 1 keeps the year of marks that the seed gives it. */
const unmark = () =>
  `delete from attendance_correction; delete from attendance where class_id <> 1 or date < '${schoolYear}-08-15';
   delete from attendance_day where class_id <> 1 or date < '${schoolYear}-08-15'`;

/** The ids of the students of a class of this year. */
const inClass = (classId: number, students: number) =>
  Array.from({ length: Math.floor((Math.floor((students * 4) / 5) - classId) / 24) + 1 }, (_, n) => classId + 24 * n);

const pick = <T>(...values: T[]): T => values[Math.floor(Math.random() * values.length)] as T;
const mark = (classId: number, date: string, students: number, statuses: string[]): CaseRequest => {
  const body = {
    class_id: classId,
    date,
    records: inClass(classId, students).map((student_id) => ({ student_id, status: pick(...statuses) })),
  };
  return { method: 'POST', path: '/api/attendance/mark', body, operation: 'attendance_mark', params: body };
};

/** The password of everybody in the benchmark. */
export const benchPassword = 'bench-password';

export const cases: BenchCase[] = [
  {
    name: 'get',
    title: 'get a student',
    floor: 'statement',
    aim: 0.7,
    request: ({ student }) => ({
      path: `/api/students/${student}`,
      operation: 'students_get',
      params: { id: student },
    }),
  },
  {
    name: 'list',
    title: 'list 25 students of a class',
    floor: 'statement',
    aim: 0.7,
    request: ({ classId }) => ({
      path: `/api/students?class_id=${classId}&pageSize=25`,
      operation: 'students_list',
      params: { class_id: classId, pageSize: 25 },
    }),
  },
  {
    name: 'classes',
    title: 'list 20 classes with counts',
    floor: 'statement',
    request: () => ({ path: '/api/classes', operation: 'classes_list', params: {} }),
  },
  {
    name: 'dashboard',
    title: 'the dashboard of a school',
    floor: 'statement',
    request: () => ({ path: '/api/dashboard', operation: 'dashboard_get', params: {} }),
  },
  {
    name: 'today',
    title: "a teacher's day",
    floor: 'statement',
    request: () => ({ path: '/api/schedule/today', operation: 'schedule_today', params: {} }),
  },
  {
    name: 'class-day',
    title: 'the day of a class',
    floor: 'statement',
    request: ({ classId }) => ({
      path: `/api/schedule/class/${classId}`,
      operation: 'schedule_class',
      params: { class_id: classId },
    }),
  },
  {
    name: 'login',
    title: 'log in',
    floor: 'argon2',
    request: ({ tenantId, user }) => {
      const body = { tenant_id: tenantId, email: `user${user}@bench.example`, password: benchPassword };
      return { method: 'POST', path: '/api/auth/login', body, operation: 'auth_credentials', params: body };
    },
  },
  {
    name: 'create',
    title: 'create a student',
    floor: 'statement',
    request: ({ classId }) => {
      const body = {
        first_name: 'Benedikt',
        last_name: 'Benchmark',
        date_of_birth: '2015-04-01',
        gender: 'male',
        class_id: classId,
        parent_name: 'Berta Benchmark',
      };
      return { method: 'POST', path: '/api/students', body, operation: 'students_create', params: body };
    },
    undo: (students) =>
      `delete from enrollment where student_id > ${students};
       delete from student where id > ${students};
       update counter set value = ${students} where name = 'admission_number' and value > ${students}`,
  },
  {
    name: 'mark',
    title: 'mark the attendance of a class',
    floor: 'statement',
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
    title: 'mark it again, two of three otherwise',
    floor: 'statement',
    request: ({ classId, students }) => mark(classId, dayOfYear(0), students, ['present', 'absent', 'late']),
    undo: unmark,
  },
  {
    name: 'register',
    title: 'the register of a class, a month',
    floor: 'statement',
    request: () => ({
      path: `/api/attendance/class/1/summary?from_date=${schoolYear}-09-01&to_date=${schoolYear}-09-30`,
      operation: 'attendance_class_summary',
      params: { class_id: 1, from_date: `${schoolYear}-09-01`, to_date: `${schoolYear}-09-30` },
    }),
  },
  {
    name: 'student-year',
    title: 'the attendance of a student, a year',
    floor: 'statement',
    request: ({ students }) => {
      const student_id = pick(...inClass(1, students));
      return { path: `/api/attendance/student/${student_id}`, operation: 'attendance_student', params: { student_id } };
    },
  },
  {
    name: 'payment',
    title: 'record a payment',
    floor: 'statement',
    request: ({ student }) => {
      const body = { student_fee_id: student, amount: 0.01, payment_method: 'cash' };
      return { method: 'POST', path: '/api/finance/payments', body, operation: 'payments_create', params: body };
    },
    undo: () =>
      `set session_replication_role = replica;
       truncate payment;
       update student_fee set paid_amount = 0, status = 'pending' where paid_amount > 0;
       delete from counter where name like 'RCT-%';
       set session_replication_role = origin`,
  },
  {
    name: 'invoices',
    title: 'list 20 of 100,000 invoices',
    floor: 'statement',
    isOfInvoices: true,
    request: () => ({ path: '/api/fees/invoices', operation: 'invoices_list', params: {} }),
  },
  {
    name: 'student-invoices',
    title: 'the invoices of a student, of 100,000',
    floor: 'statement',
    isOfInvoices: true,
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
    floor: 'print',
    isOfInvoices: true,
    request: ({ student }) => ({
      path: `/api/fees/invoices/${student}/download`,
      operation: 'invoices_download',
      params: { id: student },
    }),
  },
  {
    name: 'transport',
    title: 'the dashboard of transport',
    floor: 'statement',
    request: () => ({ path: '/api/transport/dashboard', operation: 'transport_dashboard', params: {} }),
  },
  {
    name: 'contacts',
    title: 'the contact sheet of transport, 1 at a time',
    // A user has two exports under way at most.
    connections: 1,
    floor: 'statement',
    request: () => ({
      path: '/api/transport/export/contact-sheet',
      operation: 'transport_contact_sheet',
      params: { limit: 5000 },
    }),
  },
];
