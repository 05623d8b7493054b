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
}

/** One thing that the service does, to be measured for one school and for schools at random. */
export interface BenchCase {
  name: string;
  title: string;
  request: (subject: Subject) => CaseRequest;
  /** What bounds it: the statement alone (with an aim, the share of it to reach), or the argon2 of a password. */
  floor: 'statement' | 'argon2';
  aim?: number;
  /** SQL that takes back what the case did, in the schema of a school that had `students` students. */
  undo?: (students: number) => string;
}

/** The password of everybody in the benchmark. */
export const benchPassword = 'bench-password';

export const cases: BenchCase[] = [
  {
    name: 'get',
    title: 'get a student',
    floor: 'statement',
    aim: 0.7,
    request: ({ student }) => ({ path: `/api/students/${student}`, operation: 'students_get', params: { id: student } }),
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
];
