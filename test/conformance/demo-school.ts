import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Secret, TOTP } from 'otpauth';
import sharp from 'sharp';
import { demo } from '../../src/process/demo.ts';
import { until } from '../support/client/until.ts';
import { runProgram } from '../support/server/processes.ts';

/** The senders of requests. */
export type Caller =
  'admin' | 'teacher' | 'student' | 'guardian' | 'operator' | 'leaving' | 'renewing' | 'confirming' | 'protected';

/** What the requests to an operation need besides the document. */
export interface Given {
  /** Default: an operator below /api/platform, otherwise the admin. */
  as?: Caller;
  path?: Record<string, string | number>;
  query?: Record<string, string | number>;
  headers?: Record<string, string>;
  /** Fields of the body that replace generated ones, or the whole body if it is a list. */
  body?: Record<string, unknown> | unknown[];
  /** The path of the file to upload. */
  file?: string;
}

/** The values of the demo school that the generated requests use. */
export interface Prepared {
  /** Ids of existing records, by field name or by the path of the collection. */
  ids: Record<string, number>;
  tokens: Record<Caller, string>;
  /** By operation. */
  given: Record<string, Given>;
  /** Variables of the requests that expire within a minute. Read just before the requests are sent. */
  shortLived: () => Record<string, string>;
}

interface Row {
  id: number;
}

const newPassword = 'another demo password';
/** Years after every year of the demo school. */
const laterYear = (year: number) => ({ start_date: `${String(year)}-08-01`, end_date: `${String(year + 1)}-07-31` });
const dayFromNow = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString().slice(0, 10);

/**
 * Logs in, reads the ids of the demo school, and creates what its data lacks.
 * @param folder  for the files to upload
 * @param dataDir  the data folder of the service
 */
export async function prepareRequests(url: string, folder: string, dataDir: string): Promise<Prepared> {
  async function request(method: string, path: string, token?: string, body?: object): Promise<Response> {
    const isForm = body instanceof FormData;
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        ...(body && !isForm ? { 'content-type': 'application/json' } : {}),
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      ...(body ? { body: isForm ? body : JSON.stringify(body) } : {}),
    });
    if (!response.ok) throw new Error(`${method} ${path} answered ${String(response.status)} ${await response.text()}`);
    return response;
  }
  const dataOf = async <T>(response: Response) => ((await response.json()) as { data: T }).data;
  async function logIn(email: string, password: string = demo.password, isPlatform = email === demo.operator) {
    const response = await request('POST', '/api/auth/login', undefined, {
      email,
      password,
      ...(isPlatform ? { is_platform: true } : { subdomain: demo.subdomain }),
    });
    const refreshToken = response.headers.get('x-refresh-token') ?? '';
    return { refreshToken, token: (await dataOf<{ access_token: string }>(response)).access_token };
  }
  const admin = await logIn(demo.admin);
  const read = async <T = Row[]>(path: string, token = admin.token) => dataOf<T>(await request('GET', path, token));
  const create = async <T = Row>(path: string, body: object = {}) =>
    dataOf<T>(await request('POST', path, admin.token, body));
  const first = async <T extends Row = Row>(path: string) => {
    const [row] = await read<T[]>(path);
    if (!row) throw new Error(`The demo school has no record at ${path}.`);
    return row;
  };

  const [years, profile, roles, fees, students, stop] = await Promise.all([
    read<(Row & { start_date: string; is_current: boolean })[]>('/api/academics/years'),
    read<Row>('/api/auth/profile'),
    read<(Row & { name: string })[]>('/api/rbac/roles'),
    read('/api/finance/student-fees?status=pending&pageSize=5'),
    read<(Row & { class_id: number })[]>('/api/students?pageSize=9'),
    first<Row & { route_id: number }>('/api/transport/stops'),
  ]);
  const [student, promoted] = students;
  const [updatedFee, waivedFee, deletedFee, paidFee, discountedFee] = fees;
  const year = years.find(({ is_current }) => is_current);
  if (!year || !student || !promoted || !updatedFee || !waivedFee || !deletedFee || !paidFee || !discountedFee)
    throw new Error('The demo school has no current year, or too few students or fees.');
  const grade = await first('/api/grades');
  const nextYear = await create('/api/academics/years', { name: 'Next', ...laterYear(2030) });
  const nextClass = await create('/api/classes', { name: 'Next', grade_id: grade.id, academic_year_id: nextYear.id });
  const newClass = await create('/api/classes', { name: 'New', grade_id: grade.id, academic_year_id: year.id });
  const newStudent = (last_name: string) => create('/api/students', { first_name: 'New', last_name });
  const [joining, riding] = [await newStudent('Joining'), await newStudent('Riding')];
  const newGuardian = (last_name: string, children: object[] = []) =>
    create('/api/guardians', { first_name: 'New', last_name, children });
  const joiningGuardian = await newGuardian('Joining');
  const [linkedGuardian, leavingGuardian] = [
    await newGuardian('Linked', [{ student_id: joining.id }]),
    await newGuardian('Leaving', [{ student_id: joining.id }]),
  ];
  const teacherRole = roles.find(({ name }) => name === 'teacher')?.id ?? 0;
  const newUser = (name: string) =>
    create('/api/users', {
      email: `${name}@demo.example`,
      first_name: name,
      last_name: 'User',
      password: demo.password,
      role_ids: [teacherRole],
    });
  const user = await newUser('user');
  await newUser('renewing');
  await newUser('forgetful');
  const invoice = (status: 'draft' | 'sent') =>
    create('/api/fees/invoices', {
      student_id: student.id,
      due_date: dayFromNow(30),
      items: [{ description: 'Trip', amount: 20 }],
      status,
    });
  const structure = await create<Row & { components: Row[] }>('/api/finance/fee-structures', {
    name: 'Two parts',
    academic_year_id: year.id,
    components: [
      { name: 'One', amount: 10, frequency: 'annual' },
      { name: 'Two', amount: 20, frequency: 'annual' },
    ],
  });
  const billed = await create('/api/finance/fee-structures', {
    name: 'Billed',
    academic_year_id: year.id,
    components: [{ name: 'One', amount: 10, frequency: 'annual' }],
    class_ids: [student.class_id],
  });
  const discount = await create(`/api/finance/student-fees/${String(discountedFee.id)}/discounts`, {
    amount: 1,
    reason: 'Sibling',
  });
  const bus = await create('/api/transport/buses', { registration_number: 'NEW 1', capacity: 40 });
  const driver = await create('/api/transport/drivers', { name: 'New', license_number: 'NEW 1' });
  const route = await create('/api/transport/routes', { name: 'New' });
  const newStop = (name: string) => create('/api/transport/stops', { name, route_id: route.id });
  const stops = [await newStop('One'), await newStop('Two')];
  const webhook = await create('/api/webhooks', { url: 'https://hooks.example/new', events: ['student.created'] });
  await create(`/api/webhooks/${String(webhook.id)}/test`);
  const delivery = await first(`/api/webhooks/${String(webhook.id)}/deliveries`);
  const feed = await create<{ url: string }>('/api/schedule/feeds', { kind: 'class', class_id: student.class_id });
  await create('/api/notifications/send', { user_ids: [profile.id], title: 'Two', message: 'Notifications' });
  await create('/api/notifications/send', { user_ids: [profile.id], title: 'Two', message: 'Notifications' });
  const notifications = await until(async () => {
    const found = await read('/api/notifications');
    return found.length >= 2 ? found : undefined;
  });
  // Portman expects the first type that the document lists for a picture.
  const picture = await sharp({ create: { width: 8, height: 8, channels: 3, background: 'navy' } })
    .jpeg()
    .toBuffer();
  const form = new FormData();
  form.append('picture', new Blob([new Uint8Array(picture)], { type: 'image/jpeg' }), 'picture.jpg');
  const renewing = await logIn('renewing@demo.example');
  await request('POST', '/api/auth/profile/picture', renewing.token, form);
  const pictured = await read<Row & { profile_picture_url: string }>('/api/auth/profile', renewing.token);
  const operator = await logIn(demo.operator);
  const [offered] = await read<object[]>('/api/platform/plans?sort=-price_monthly', operator.token);
  const plan = await dataOf<Row>(
    await request('POST', '/api/platform/plans', operator.token, {
      name: 'New',
      price_monthly: 500,
      max_students: 9000,
      max_teachers: 900,
      features_json: (offered as { features_json: object }).features_json,
    }),
  );

  const asOperator = async (path: string, body: object = {}) =>
    dataOf<Row>(await request('POST', path, operator.token, body));
  await asOperator('/api/platform/api-keys', { name: 'New', role: 'analyst' });
  const platformWebhook = await asOperator('/api/platform/webhooks', {
    url: 'https://hooks.example/platform',
    events: ['plan.created'],
  });
  const platformDelivery = await asOperator(`/api/platform/webhooks/${String(platformWebhook.id)}/test`);

  /** The token of the link in the latest email to an address whose text matches. */
  const emailed = (address: string, link: RegExp) =>
    until(async () => {
      const outbox = join(dataDir, 'outbox');
      for (const name of (await readdir(outbox).catch(() => [])).filter((one) => one.endsWith('.eml')).reverse()) {
        const text = (await readFile(join(outbox, name), 'utf8')).replaceAll('=\r\n', '').replaceAll('=3D', '=');
        const found = text.includes(address) ? link.exec(text)?.[1] : undefined;
        if (found !== undefined) return found;
      }
      return undefined;
    });
  await request('POST', '/api/auth/password/forgot', undefined, {
    email: 'forgetful@demo.example',
    subdomain: demo.subdomain,
  });
  const resetToken = await emailed('forgetful@demo.example', /#token=([\w.-]+)/);
  const verifyTokens = await Promise.all(
    ['user', 'renewing'].map((name) => emailed(`${name}@demo.example`, /email\/verify\?token=([\w.-]+)/)),
  );

  /** Begins to set up an authenticator app. */
  async function beginTotp(token: string): Promise<TOTP> {
    const response = await request('POST', '/api/auth/two-factor/totp', token, { password: demo.password });
    return new TOTP({ secret: Secret.fromBase32((await dataOf<{ secret: string }>(response)).secret) });
  }
  const confirmTotp = async (token: string, code: string) =>
    dataOf<{ recovery_codes: string[] }>(await request('POST', '/api/auth/two-factor/totp/confirm', token, { code }));
  const enableTotp = async (token: string) => confirmTotp(token, (await beginTotp(token)).generate());
  /** The challenge of a login that needs a second factor. */
  async function challengeOf(email: string): Promise<string> {
    const response = await fetch(`${url}/api/auth/login`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ email, password: demo.password, subdomain: demo.subdomain }),
    });
    const { challenge } = (await response.json()) as { challenge?: { token: string } };
    if (!challenge) throw new Error(`The login of ${email} needs no second factor.`);
    return challenge.token;
  }
  const [confirmingUser] = [await newUser('confirming'), await newUser('protected'), await newUser('enrolling')];
  const confirming = await logIn('confirming@demo.example');
  const secured = await logIn('protected@demo.example');
  const confirmingApp = await beginTotp(confirming.token);
  const { recovery_codes: recoveryCodes } = await enableTotp(secured.token);
  const loginChallenge = await challengeOf('protected@demo.example');
  // Confirming an app ends the other sessions of the user.
  const requiring = admin.token;
  await enableTotp(requiring);
  const requireSecondFactor = (is_second_factor_required: boolean) =>
    request('POST', '/api/school-setup/school-info', requiring, { is_second_factor_required });
  await requireSecondFactor(true);
  const enrollChallenge = await challengeOf('enrolling@demo.example');
  await requireSecondFactor(false);
  await request('DELETE', '/api/auth/two-factor', requiring, { password: demo.password });
  await enableTotp(operator.token);
  const otherOperator = 'other@demo.example';
  const created = await runProgram('src/cli/main.ts', ['operator', 'create', otherOperator], {
    DATA_DIR: dataDir,
    OPERATOR_PASSWORD: demo.password,
  });
  if (created.code !== 0) throw new Error(`The second operator could not be created: ${created.stderr}`);
  await enableTotp((await logIn(otherOperator, demo.password, true)).token);

  const [other, leaving] = [await logIn(demo.admin), await logIn(demo.admin)];
  await logIn('user@demo.example');
  const [ownSession] = (await read<(Row & { is_current: boolean })[]>('/api/auth/sessions', other.token)).filter(
    (one) => one.is_current,
  );
  const session = await first(`/api/users/${String(user.id)}/sessions`);
  const tokens: Record<Caller, string> = {
    admin: admin.token,
    teacher: (await logIn(demo.teacher)).token,
    student: (await logIn(demo.student)).token,
    guardian: (await logIn(demo.guardian)).token,
    operator: operator.token,
    leaving: leaving.token,
    renewing: renewing.token,
    confirming: confirming.token,
    protected: secured.token,
  };
  const [child] = await read<{ student_id: number }[]>('/api/me/children', tokens.guardian);
  const ids: Record<string, number> = {
    academic_year_id: year.id,
    bus_id: bus.id,
    class_id: student.class_id,
    driver_id: driver.id,
    fee_structure_id: (await first('/api/finance/fee-structures')).id,
    grade_id: grade.id,
    plan_id: plan.id,
    role_id: teacherRole,
    route_id: stop.route_id,
    stop_id: stop.id,
    student_fee_id: paidFee.id,
    student_id: student.id,
    subject_id: (await first('/api/subjects')).id,
    teacher_id: (await first('/api/teachers')).id,
    user_id: user.id,
    '/api/finance/student-fees': updatedFee.id,
    '/api/grades': grade.id,
    '/api/notifications': notifications[0]?.id ?? 0,
  };
  const [csv, pdf, jpg] = [join(folder, 'people.csv'), join(folder, 'document.pdf'), join(folder, 'picture.jpg')];
  await writeFile(csv, 'first_name,last_name\nSample,Person\n');
  await writeFile(pdf, '%PDF-1.4\n%%EOF\n');
  await writeFile(jpg, picture);
  const credentials = { email: demo.admin, password: demo.password, subdomain: demo.subdomain };
  const asTeacher: Given = { as: 'teacher' };
  const promotion = {
    body: { student_ids: [promoted.id], to_class_id: nextClass.id, to_academic_year_id: nextYear.id },
  };
  const template = { body: { key: 'holiday.added', channel: 'push' } };
  const importOptions = { columns: '{"first_name": "first_name"}', date_format: 'YYYY-MM-DD' };
  // The generated queries are no GraphQL.
  const query = '{ tenants { totalCount } }';
  const given: Record<string, Given> = {
    auth_login: { body: credentials },
    auth_refresh: { headers: { 'X-Refresh-Token': other.refreshToken } },
    auth_logout: { as: 'leaving' },
    auth_sessions_delete: { path: { id: ownSession?.id ?? 0 } },
    auth_login_verify: { body: { challenge: loginChallenge, recovery_code: recoveryCodes[0] } },
    auth_login_enroll: { body: { challenge: enrollChallenge } },
    auth_totp_begin: { body: { password: demo.password } },
    auth_totp_confirm: { as: 'confirming', body: { code: '{{totpCode}}' } },
    auth_recovery_codes_create: { as: 'protected', body: { password: demo.password } },
    auth_two_factor_delete: { as: 'protected', body: { password: demo.password } },
    auth_passkeys_begin: { as: 'operator', body: { password: demo.password } },
    users_second_factor_delete: { path: { id: confirmingUser.id } },
    platform_operators_second_factor_reset: { body: { email: otherOperator } },
    auth_profile_picture_set: { file: jpg },
    auth_password_change: { as: 'renewing', body: { current_password: demo.password, password: newPassword } },
    auth_password_forgot: { body: { email: demo.student, subdomain: demo.subdomain } },
    auth_password_reset: { body: { token: resetToken, password: newPassword } },
    auth_email_verify_link: { query: { token: verifyTokens[0] ?? '' } },
    auth_email_verify: { body: { token: verifyTokens[1] } },
    imports_students: { file: csv, body: importOptions },
    imports_teachers: { file: csv, body: importOptions },
    students_me_dashboard: { as: 'student' },
    students_guardians_create: { path: { student_id: joining.id }, body: { guardian_id: joiningGuardian.id } },
    students_guardians_get: { path: { student_id: joining.id, guardian_id: linkedGuardian.id } },
    students_guardians_update: { path: { student_id: joining.id, guardian_id: linkedGuardian.id } },
    students_guardians_delete: { path: { student_id: joining.id, guardian_id: leavingGuardian.id } },
    guardians_preferences_get: { path: { guardian_id: linkedGuardian.id } },
    guardians_preferences_update: { path: { guardian_id: linkedGuardian.id } },
    me_children_dashboard: { as: 'guardian', path: { student_id: child?.student_id ?? 0 } },
    students_promote: promotion,
    students_promotion_preview: promotion,
    students_documents_create: {
      file: pdf,
      body: { document_type_id: String((await first('/api/document-types')).id) },
    },
    students_documents_file: { path: { document_id: '{{api_students__student_id__documents}}' } },
    teachers_me: asTeacher,
    teachers_me_today: asTeacher,
    teachers_me_classes: asTeacher,
    teachers_leaves_create: {
      body: { teacher_id: ids['teacher_id'], start_date: year.start_date, end_date: year.start_date },
    },
    teachers_leaves_decide: { body: { status: 'approved' } },
    teachers_availability_set: { body: [{ day_of_week: 1, period: 1, is_available: false }] },
    teachers_workload_set: { body: { max_periods_per_day: 8 } },
    classes_copy: {
      body: { from_academic_year_id: year.id, to_academic_year_id: nextYear.id, class_ids: [student.class_id] },
    },
    classes_subjects_by_grade: { body: { class_ids: [newClass.id] } },
    classes_students_add: { path: { id: newClass.id }, body: { student_id: joining.id } },
    classes_students_remove: { path: { id: newClass.id, student_id: joining.id } },
    grade_subjects_replace: { body: [{ subject_id: ids['subject_id'], periods_per_week: 4 }] },
    class_subjects_create: { body: { class_id: nextClass.id, periods_per_week: 4 } },
    class_subjects_update: { body: { periods_per_week: 5 } },
    attendance_mark: { body: { date: dayFromNow(0), records: [{ student_id: student.id, status: 'present' }] } },
    attendance_my_classes: asTeacher,
    attendance_me: { as: 'student' },
    academics_years_create: { body: laterYear(2032) },
    academic_terms_create: {
      body: { academic_year_id: nextYear.id, start_date: '2030-09-01', end_date: '2030-12-01' },
    },
    fee_structures_components_create: { body: { amount: 10 } },
    fee_structures_components_delete: { path: { id: structure.id, component_id: structure.components[1]?.id ?? 0 } },
    fee_structures_assign_classes: { body: { class_ids: [student.class_id] } },
    student_fees_generate: { body: { fee_structure_id: billed.id, student_ids: [student.id] } },
    student_fees_update: { body: { due_date: dayFromNow(60) } },
    student_fees_waive: { path: { id: waivedFee.id } },
    student_fees_delete: { path: { id: deletedFee.id } },
    student_fees_discounts_create: { path: { id: discountedFee.id }, body: { percent: 10 } },
    student_fees_discounts_delete: { path: { id: discountedFee.id, discount_id: discount.id } },
    payments_create: { body: { amount: 1 } },
    invoices_create: {
      body: { status: 'draft', due_date: dayFromNow(30), items: [{ description: 'Trip', amount: 20 }] },
    },
    invoices_issue: { path: { id: (await invoice('draft')).id } },
    invoices_void: { path: { id: (await invoice('sent')).id } },
    invoices_send_reminder: { path: { id: (await invoice('sent')).id } },
    payments_create_for_invoice: { body: { invoice_id: (await invoice('sent')).id, amount: 1 } },
    timetable_config_update: { body: { break_duration: 15 } },
    timetable_generate: { body: { time_limit_seconds: 1 } },
    timetable_slots_create: { body: { class_id: newClass.id, day_of_week: 1, period: 1 } },
    timetable_slots_move: { body: { day_of_week: 2, period: 2 } },
    timetable_check_conflicts: { body: { day_of_week: 1, period: 1 } },
    timetable_print: { query: { class_id: student.class_id } },
    schedule_feeds_create: { body: { kind: 'class', class_id: student.class_id } },
    calendar_get: { path: { token: /([^/]+)\.ics/.exec(feed.url)?.[1] ?? '' } },
    notifications_send: { body: { all: true, title: 'School trip', message: 'Tomorrow' } },
    notifications_events_get: { path: { key: 'holiday.added' } },
    notifications_events_update: { path: { key: 'holiday.added' }, body: { is_enabled: true } },
    notifications_delete: { path: { id: notifications[1]?.id ?? 0 } },
    holidays_create: { body: { date: '2030-10-02' } },
    transport_buses_create: { body: { capacity: 40 } },
    transport_routes_reorder: {
      path: { id: route.id },
      body: { stop_ids: stops.map(({ id }) => id).reverse() },
    },
    transport_enroll_create: { body: { student_id: riding.id } },
    transport_schedules_list: { query: { from_date: dayFromNow(0), to_date: dayFromNow(6) } },
    transport_exceptions_create: { body: { date: dayFromNow(14), kind: 'cancelled' } },
    transport_assignments_create: { body: { route_id: route.id } },
    transport_assignments_update: { body: { ends_on: '2030-12-31' } },
    transport_fee_plans_create: { body: { route_id: route.id, amount: 10 } },
    transport_fee_plans_generate: { body: { date: dayFromNow(0) } },
    users_sessions_list: { path: { id: user.id } },
    users_sessions_delete: { path: { id: user.id, session_id: session.id } },
    users_create: { body: { email: 'created@demo.example' } },
    users_picture: { path: { id: pictured.id } },
    pictures_get: { path: { token: /pictures\/([^/?]+)/.exec(pictured.profile_picture_url)?.[1] ?? '' } },
    platform_tenants_create: {
      body: { plan_id: plan.id, subdomain: 'new-school', contact_email: 'school@new.example' },
    },
    platform_tenants_impersonate: { path: { id: 1 }, body: { reason: 'Asked for by the school' } },
    platform_subscriptions_update: { body: { grace_days: 5 } },
    platform_plans_create: { body: { price_monthly: 10, max_students: 10, max_teachers: 10 } },
    platform_notification_templates_create: template,
    platform_notification_templates_preview: template,
    platform_notification_templates_update: template,
    platform_api_keys_create: { body: { tenant_ids: null } },
    platform_api_keys_update: { body: { tenant_ids: null } },
    platform_webhooks_create: { body: { url: 'https://hooks.example/created', is_active: true } },
    platform_webhooks_update: { body: { url: 'https://hooks.example/updated' } },
    platform_webhooks_deliveries_replay: { path: { id: platformWebhook.id, delivery_id: platformDelivery.id } },
    platform_questions_create: { body: { query } },
    platform_questions_update: { body: { query } },
    platform_notification_settings_update: { body: { sender_name: 'Schools' } },
    school_setup_school_info: { file: jpg },
    school_setup_academic_year: { body: laterYear(2034) },
    school_setup_grades: { body: { grades: [{ name: 'Grade 13' }] } },
    devices_register: { body: { token: 'a-token-of-a-device', platform: 'android' } },
    devices_delete: { path: { token: 'a-token-of-a-device' } },
    api_keys_create: { body: { permissions: ['student.read'] } },
    api_keys_update: { body: { permissions: ['student.read'] } },
    webhooks_create: { body: { url: 'https://hooks.example/created', is_active: true } },
    webhooks_update: { body: { url: 'https://hooks.example/updated' } },
    webhooks_deliveries_replay: { path: { id: webhook.id, delivery_id: delivery.id } },
  };
  return { ids, tokens, given, shortLived: () => ({ totpCode: confirmingApp.generate() }) };
}
