import { setTimeout as pause } from 'node:timers/promises';
import { openStream, type OpenStream } from '../support/client/stream.ts';
import { isDeepStrictEqual } from 'node:util';
import type { Answer, Balancer, Message } from './balancer.ts';

export const password = 'test-password';
export const operatorEmail = 'operator@platform.example';

/** Tells the clients to end. */
export interface Load {
  balancer: Balancer;
  isOver: boolean;
}

/** Compares what a client reads with what the service has acknowledged. @throws if it differs */
function expectSame(load: Load, what: string, found: unknown, expected: unknown): void {
  if (isDeepStrictEqual(found, expected)) return;
  const line = `${load.balancer.phase}: ${what}: found ${JSON.stringify(found)} instead of ${JSON.stringify(expected)}`;
  load.balancer.failures.push(line);
  throw new Error(line);
}

interface Login {
  access_token: string;
  user: { id: number };
}

/** A school with its clients. */
export interface School {
  id: number;
  subdomain: string;
  classId: number;
  feeId: number;
  userId: number;
  pupils: number[];
  /** The students that the service has acknowledged, by id. */
  students: Map<number, Student>;
  /** The receipts of acknowledged payments. */
  receipts: Set<string>;
  /** The titles of acknowledged notifications. */
  titles: Set<string>;
}

interface Student {
  id: number;
  first_name: string;
  last_name: string;
  admission_number: string;
  phone: string | null;
}

let serial = 0;
const unique = (prefix: string) => `${prefix}-${String(++serial)}`;
const today = new Date();
const iso = (date: Date) => date.toISOString().slice(0, 10);
const yearStart = iso(new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth() - 6, 1)));
const yearEnd = iso(new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + 6, 0)));
/** A day before today, at which a school may be marked. */
const inPast = (days: number) => iso(new Date(today.getTime() - days * 86_400_000));

const logIn = ({ balancer }: Load, school: { id: number; subdomain: string } | undefined, email: string) =>
  balancer.send<Login>({
    method: 'POST',
    path: '/api/auth/login',
    ...(school ? { school: school.id } : {}),
    body: { email, password, ...(school ? { subdomain: school.subdomain } : { is_platform: true }) },
  });

const adminOf = (subdomain: string) => `admin@${subdomain}.example`;

/** A client that logs in when it needs to, and sends requests of one school or of the platform. */
async function client(load: Load, school: { id: number; subdomain: string } | undefined, email: string) {
  let loggedInAt = performance.now();
  let { data } = await logIn(load, school, email);
  return {
    userId: data.user.id,
    token: () => data.access_token,
    async send<T>(method: string, path: string, body?: object, more: Partial<Message> = {}): Promise<Answer<T>> {
      // Access tokens are valid for 15 minutes.
      if (performance.now() - loggedInAt > 10 * 60_000) {
        loggedInAt = performance.now();
        ({ data } = await logIn(load, school, email));
      }
      return load.balancer.send<T>({
        method,
        path,
        token: data.access_token,
        ...(body ? { body } : {}),
        ...(school ? { school: school.id } : {}),
        ...more,
      });
    },
  };
}

type Client = Awaited<ReturnType<typeof client>>;

/** Creates a school as an operator does, and fills it. */
export async function openSchool(load: Load, operator: Client, subdomain: string): Promise<School> {
  const created = { status: 201 };
  const { data: tenant } = await operator.send<{ id: number }>(
    'POST',
    '/api/platform/tenants',
    {
      name: subdomain,
      subdomain,
      contact_email: adminOf(subdomain),
      plan_id: 3,
      admin_password: password,
      feature_flags: {},
    },
    created,
  );
  const admin = await client(load, { id: tenant.id, subdomain }, adminOf(subdomain));
  const make = async (path: string, body: object) =>
    (await admin.send<{ id: number }>('POST', `/api${path}`, body, created)).data.id;
  const grade_id = await make('/grades', { name: 'One' });
  const academic_year_id = await make('/academics/years', {
    name: 'This year',
    start_date: yearStart,
    end_date: yearEnd,
    is_current: true,
  });
  const classId = await make('/classes', { name: 'A', grade_id, academic_year_id });
  const pupils: number[] = [];
  for (const last_name of ['Byron', 'Hopper', 'Noether', 'Germain'])
    pupils.push(await make('/students', { first_name: 'Pupil', last_name, class_id: classId }));
  const fee_structure_id = await make('/finance/fee-structures', {
    name: 'Fees',
    academic_year_id,
    components: [{ name: 'Tuition', amount: 1_000_000, frequency: 'annual' }],
    class_ids: [classId],
  });
  await admin.send('POST', '/api/finance/student-fees/generate', { fee_structure_id });
  const fees = await admin.send<{ id: number }[]>('GET', `/api/finance/student-fees?student_id=${String(pupils[0])}`);
  return {
    id: tenant.id,
    subdomain,
    classId,
    feeId: fees.data[0]?.id ?? 0,
    userId: admin.userId,
    pupils,
    students: new Map(),
    receipts: new Set(),
    titles: new Set(),
  };
}

/** Adds, lists, reads and changes students. */
async function secretary(load: Load, school: School): Promise<void> {
  const admin = await client(load, school, adminOf(school.subdomain));
  const pick = ({ id, first_name, last_name, admission_number, phone }: Student) => ({
    id,
    first_name,
    last_name,
    admission_number,
    phone,
  });
  while (!load.isOver) {
    const last_name = unique('Student');
    const key = { headers: { 'Idempotency-Key': last_name } };
    const input = { first_name: 'Ada', last_name, admission_number: last_name };
    const { data: added } = await admin.send<Student>('POST', '/api/students', input, { status: 201, ...key });
    expectSame(load, 'a created student', pick(added), { id: added.id, ...input, phone: null });
    school.students.set(added.id, pick(added));
    const again = await admin.send<Student>('POST', '/api/students', input, { status: 201, ...key });
    expectSame(load, 'a repeated create', again.data.id, added.id);
    const path = `/api/students/${String(added.id)}`;
    const found = await admin.send<Student[]>('GET', `/api/students?search=${last_name}&pageSize=5`);
    expectSame(
      load,
      'the students found',
      found.data.filter((one) => one.last_name === last_name).map(({ id }) => id),
      [added.id],
    );
    const phone = `+1555${String(1_000_000 + serial)}`;
    const change = async () => {
      const read = await admin.send<Student>('GET', path);
      expectSame(load, 'the student as read', pick(read.data), pick(added));
      return admin.send<Student>(
        'PUT',
        path,
        { phone },
        { headers: { 'If-Match': read.headers.etag ?? '*' }, accepts: 412 },
      );
    };
    let changed = await change();
    // The releases have other fields of a student. If the functions were replaced in between, the version is another.
    if (changed.status === 412) changed = await change();
    expectSame(load, 'a changed student', pick(changed.data), { ...pick(added), phone });
    school.students.set(added.id, pick(changed.data));
    const [other] = [...school.students.values()].slice(Math.floor(Math.random() * school.students.size));
    if (other) {
      const { data } = await admin.send<Student>('GET', `/api/students/${String(other.id)}`);
      expectSame(load, 'an earlier student', pick(data), other);
    }
    await pause(100);
  }
}

/** Marks attendance and reads it. */
async function teacher(load: Load, school: School): Promise<void> {
  const admin = await client(load, school, adminOf(school.subdomain));
  for (let n = 0; !load.isOver; n++) {
    const date = inPast(1 + (n % 60));
    const records = school.pupils.map((student_id) => ({
      student_id,
      status: ['present', 'absent', 'late'][Math.floor(Math.random() * 3)],
    }));
    await admin.send('POST', '/api/attendance/mark', { class_id: school.classId, date, records });
    const { data } = await admin.send<{ student_id: number; status: string }[]>(
      'GET',
      `/api/attendance/class/${String(school.classId)}?date=${date}&pageSize=50`,
    );
    const marks = data
      .map(({ student_id, status }) => ({ student_id, status }))
      .sort((a, b) => a.student_id - b.student_id);
    expectSame(load, 'the marks of a day', marks, records);
    await pause(100);
  }
}

/** Records payments, and compares the balance of the fee with them. */
async function cashier(load: Load, school: School): Promise<void> {
  const admin = await client(load, school, adminOf(school.subdomain));
  let paid = 0;
  while (!load.isOver) {
    const reference_number = unique('paid');
    const body = { student_fee_id: school.feeId, amount: 1.25, payment_method: 'cash', reference_number };
    const key = { status: 201, headers: { 'Idempotency-Key': reference_number } };
    const { data } = await admin.send<{ id: number; receipt_number: string }>(
      'POST',
      '/api/finance/payments',
      body,
      key,
    );
    paid += 1.25;
    if (school.receipts.has(data.receipt_number)) expectSame(load, 'a second receipt', data.receipt_number, undefined);
    school.receipts.add(data.receipt_number);
    const fee = await admin.send<{ balance: number }>('GET', `/api/finance/student-fees/${String(school.feeId)}`);
    expectSame(load, 'the balance of the fee', fee.data.balance, 1_000_000 - paid);
    await pause(100);
  }
}

/** Logs in, reads the profile, exchanges the refresh token at the next process, and logs out. */
async function visitor(load: Load, school: School): Promise<void> {
  while (!load.isOver) {
    const login = await logIn(load, school, adminOf(school.subdomain));
    const of = { school: school.id };
    const { data } = await load.balancer.send<Login>({
      method: 'POST',
      path: '/api/auth/refresh',
      headers: { 'X-Refresh-Token': String(login.headers['x-refresh-token']) },
      ...of,
    });
    const token = data.access_token;
    const profile = await load.balancer.send<{ id: number }>({ path: '/api/auth/profile', token, ...of });
    expectSame(load, 'the user', profile.data.id, school.userId);
    await load.balancer.send({ method: 'POST', path: '/api/auth/logout', token, ...of });
    await load.balancer.send({ path: '/api/auth/profile', token, status: 401, ...of });
    await pause(300);
  }
}

/**
 * How long a notification may take to reach a stream. From the moment on in which the functions of a release are installed,
 * it waits for a worker of that release, which takes half a minute to start on a busy machine.
 */
const streamTimeoutMs = 90_000;

/** Sends notifications, which arrive in the stream of the user and, by a worker, as email. */
async function listener(load: Load, school: School): Promise<void> {
  const admin = await client(load, school, adminOf(school.subdomain));
  const received: string[] = [];
  let stream: OpenStream | undefined;
  let lastId: string | undefined;
  const collect = () => {
    if (!stream) return;
    for (const { title } of stream.events.splice(0)) if (title.startsWith('News-')) received.push(title);
    lastId = stream.lastId || lastId;
  };
  /** Connects again with the last id, as an EventSource does, to any process. */
  const connect = async () => {
    collect();
    const open = load.balancer.targets.filter(({ isOpen }) => isOpen);
    const target = open[Math.floor(Math.random() * open.length)];
    if (!target) return;
    stream = await openStream(target.url, admin.token(), { lastId }).catch(() => undefined);
    load.balancer.count(target.side, stream ? `${String(stream.status)} stream` : 'refused stream');
    if (stream && stream.status !== 200) stream = undefined;
  };
  for (let n = 0; !load.isOver; n++) {
    const title = unique('News');
    await admin.send('POST', '/api/notifications/send', {
      user_ids: [school.userId],
      title,
      message: 'School ends at noon.',
      channels: ['in_app', 'email'],
    });
    school.titles.add(title);
    // The first stream begins after the first notification.
    if (n === 0) {
      await connect();
      continue;
    }
    const end = performance.now() + streamTimeoutMs;
    while (!received.includes(title)) {
      collect();
      if (!stream || stream.ended !== undefined) await connect();
      if (performance.now() > end) expectSame(load, 'the stream', received.at(-1), title);
      await pause(20);
    }
    await pause(150);
  }
  const counts = Map.groupBy(received, (title) => title);
  expectSame(
    load,
    'notifications that came twice',
    [...counts].filter(([, same]) => same.length > 1),
    [],
  );
  await stream?.close();
}

/** Lists, reads and changes schools, and asks for figures of all of them. */
async function operate(load: Load, operator: Client, schools: readonly School[]): Promise<void> {
  for (let n = 0; !load.isOver; n++) {
    const list = await operator.send<{ id: number }[]>('GET', '/api/platform/tenants?pageSize=100');
    const ids = new Set(list.data.map(({ id }) => id));
    expectSame(
      load,
      'the schools that the list lacks',
      schools.filter(({ id }) => !ids.has(id)).map(({ id }) => id),
      [],
    );
    const school = schools[n % schools.length];
    if (school) {
      const contact_email = `contact${String(n)}@school.example`;
      const path = `/api/platform/tenants/${String(school.id)}`;
      await operator.send('PUT', path, { contact_email });
      const { data } = await operator.send<{ contact_email: string }>('GET', path);
      expectSame(load, 'the email of a school', data.contact_email, contact_email);
    }
    await pause(200);
  }
}

/** The limits of time of a GraphQL query (docs/analytics.md), which it may exceed on a busy machine. */
const slowQuery = /^(STATEMENT|REQUEST)_TIMEOUT$/;

const schoolsQuery = { query: '{ tenants(orderBy: NAME_ASC) { totalCount nodes { name plan } } }' };

/**
 * Sends a first GraphQL query to a process, which starts its analytics process. That runs at a low priority, and on a
 * busy machine it may take longer than a process that stops waits for its requests.
 */
export async function startAnalytics(operator: Client, url: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const response = await fetch(`${url}/graphql`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${operator.token()}`, 'Content-Type': 'application/json' },
      body: JSON.stringify(schoolsQuery),
    });
    const text = await response.text();
    if (response.status === 200) return;
    // The process that starts analytics ends it after 90 seconds.
    if (attempt === 3) throw new Error(`GraphQL: ${String(response.status)} ${text}`);
  }
}

/** Sends GraphQL queries. */
async function analyze(load: Load, operator: Client, schools: readonly School[]): Promise<void> {
  while (!load.isOver) {
    await pause(2000);
    const { data, body } = await operator.send<{ tenants: { nodes: { name: string }[] } | null } | null>(
      'POST',
      '/graphql',
      schoolsQuery,
    );
    const codes = body.errors?.map(({ extensions }) => extensions.code) ?? [];
    if (codes.length > 0 && codes.every((code) => slowQuery.test(code))) continue;
    expectSame(load, 'the errors of a GraphQL query', codes, []);
    const names = new Set(data?.tenants?.nodes.map(({ name }) => name));
    const lacking = schools.filter(({ subdomain }) => !names.has(subdomain)).map(({ subdomain }) => subdomain);
    expectSame(load, 'the schools that GraphQL lacks', lacking, []);
  }
}

/** Creates a school now and then. */
async function found(load: Load, operator: Client, schools: School[]): Promise<void> {
  while (!load.isOver) {
    await pause(4000);
    schools.push(await openSchool(load, operator, `school${String(++serial)}`));
  }
}

/** Compares what the schools have with what the service has acknowledged. */
export async function checkSchools(load: Load, schools: readonly School[]): Promise<void> {
  for (const school of schools) {
    const admin = await client(load, school, adminOf(school.subdomain));
    const names: string[] = [];
    for (let page = 1; ; page++) {
      const { data } = await admin.send<Student[]>(
        'GET',
        `/api/students?search=Ada&sort=id&pageSize=100&page=${String(page)}`,
      );
      names.push(...data.map(({ id, phone }) => `${String(id)} ${String(phone)}`));
      if (data.length < 100) break;
    }
    const stored = [...school.students.values()].map(({ id, phone }) => `${String(id)} ${String(phone)}`);
    expectSame(load, `the students of ${school.subdomain}`, names.sort(), stored.sort());
  }
}

/** Starts all clients. @returns a function that ends them and throws the first error of one */
export function startLoad(load: Load, schools: School[], operator: Client): () => Promise<void> {
  const first = [...schools];
  const clients = [
    ...first.flatMap((school) => [secretary, teacher, cashier, visitor, listener].map((work) => work(load, school))),
    operate(load, operator, first),
    analyze(load, operator, first),
    found(load, operator, schools),
  ];
  const all = Promise.allSettled(clients);
  for (const each of clients) each.catch(() => undefined);
  return async () => {
    load.isOver = true;
    for (const result of await all) if (result.status === 'rejected') throw result.reason;
  };
}

/** Logs the operator in, and lifts the limit of emails for each user. */
export async function openOperator(load: Load) {
  const operator = await client(load, undefined, operatorEmail);
  await operator.send('PUT', '/api/platform/notification-settings', { limits: { emails_per_user_per_day: null } });
  return operator;
}
