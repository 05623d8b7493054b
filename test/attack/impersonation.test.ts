import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { populate } from '../support/fixtures/populate.ts';
import { isForSchools, type Registered, registry, sampleRequest } from '../support/server/registry.ts';
import { operatorEmail, type School, testService, unique } from '../support/server/service.ts';
import { type Answered, send } from '../support/client/wire.ts';

const service = await testService();
afterAll(() => service.close());
const { endpoints, document } = await registry(service);
const ofSchools = endpoints.filter((endpoint) => isForSchools(endpoint) && endpoint.operation.name !== 'auth_logout');

/** The id of the one record in every table of the school. */
const id = 500_001;
let school: School;
let token: string;
/** The response of each endpoint to a valid request of an operator who impersonates the admin. */
const answers = new Map<Registered, Answered>();
let afterwards: [unknown, unknown];

const sentence = 'during an impersonation';
const isRefused = ({ status, json }: Answered) => status === 403 && (json?.message ?? '').includes(sentence);

/** Everything that outlives the visit: who can log in, with which names and rights, and where messages and money go. */
const logins = async () => {
  const columns: Record<string, string> = {
    user_account: 'id, email, first_name, last_name, phone, password_hash, email_verified_at, is_active, deleted_at',
    role: 'id, name, description',
    role_permission: 'role_id, permission_id',
    user_role: 'user_id, role_id',
    device: 'id, user_id, token',
    calendar_feed: 'id, user_id, token_hash',
    school: 'email, phone, website, payment_details, action_url_hosts',
    notification_template: 'id, name, title, message, channels',
    notification_event: 'event, is_enabled, channels',
    webhook: 'id, url, events, is_active',
    webhook_secret: 'id, secret',
    api_key: 'id, name, permissions, expires_at',
  };
  const found: Record<string, unknown> = {};
  for (const [table, names] of Object.entries(columns)) {
    found[table] = await service.database.query(`select ${names} from ${school.schema}.${table} order by ${names}`);
  }
  found['sessions'] = await service.database.query('select id from platform.session where tenant_id = $1 order by id', [
    school.id,
  ]);
  found['tokens'] = await service.database.query(
    'select hash from platform.one_time_token where tenant_id = $1 order by hash',
    [school.id],
  );
  return found;
};

/** Additional fields, so that the request would change something. */
const bodies: Record<string, (given: { role: number }) => Record<string, unknown>> = {
  auth_password_change: () => ({ current_password: 'test-password', password: 'another password' }),
  auth_two_factor_delete: () => ({ password: 'test-password' }),
  users_update: () => ({ email: `${unique('new')}@school.example` }),
  students_create: () => ({ create_user_account: true, email: `${unique('new')}@school.example` }),
  students_update: () => ({ create_user_account: true, email: `${unique('new')}@school.example` }),
  teachers_create: () => ({ create_user_account: true, email: `${unique('new')}@school.example` }),
  teachers_update: () => ({ create_user_account: true, email: `${unique('new')}@school.example` }),
  rbac_roles_update: () => ({ description: 'Another one' }),
  rbac_user_roles_add: ({ role }) => ({ role_id: role }),
  school_setup_school_info: () => ({ is_impersonation_allowed: false }),
  auth_profile_update: () => ({ first_name: unique('Other') }),
  notification_templates_update: () => ({ title: unique('Other') }),
  notifications_events_update: () => ({ is_enabled: false }),
};

beforeAll(async () => {
  school = await service.school();
  await populate(service, school, { endpoints, document }, id - 1, 'School');
  const begun = await service.operator.post<{ access_token: string }>(
    `/api/platform/tenants/${school.id}/impersonate`,
    { reason: 'To see what is refused.' },
  );
  token = begun.data.access_token;
  const { data: role } = await school.admin.post<{ id: number }>(
    '/api/rbac/roles',
    { name: unique('Role'), permission_ids: [] },
    201,
  );
  await school.admin.post('/api/devices/register', { token: 'device', platform: 'android' });
  // The admin has unread notifications, which arrive after the requests that cause them.
  await service.settled();
  const before = await logins();
  // Destructive requests last, so that the records still exist for the others.
  const order = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];
  for (const endpoint of ofSchools.toSorted((a, b) => order.indexOf(a.method) - order.indexOf(b.method))) {
    const body = bodies[endpoint.operation.name]?.({ role: role.id });
    const sample = sampleRequest(
      document,
      endpoint,
      { id },
      { ...(body ? { body } : {}), parameters: { token: 'device' } },
    );
    const isForm = endpoint.route.upload?.isOptional === true && body !== undefined;
    const sent = isForm ? { method: sample.method ?? 'POST', path: sample.path, body } : sample;
    answers.set(endpoint, await send(service.url, { ...sent, token }));
  }
  afterwards = [before, await logins()];
}, 180_000);

describe('an operator who impersonates an admin', () => {
  test('cannot change logins, passwords, names, roles, devices, calendar feeds, texts, webhooks and API keys; the list of these endpoints is complete', () => {
    const refused = [...answers].flatMap(([{ operation }, answer]) => (isRefused(answer) ? [operation.name] : []));
    expect(refused.toSorted()).toEqual(
      [
        ...[
          'auth_password_change',
          'auth_profile_picture_set',
          'auth_profile_update',
          'auth_recovery_codes_create',
          'auth_sessions_delete',
          'auth_totp_begin',
          'auth_totp_confirm',
          'auth_two_factor_delete',
          'devices_delete',
          'devices_register',
          'school_setup_school_info',
          'schedule_feeds_create',
          'schedule_feeds_delete',
        ],
        ...['notification_templates_create', 'notification_templates_delete', 'notification_templates_update'],
        // The admin's notifications include the one about this impersonation.
        'notifications_read_all',
        ...[
          'rbac_roles_create',
          'rbac_roles_delete',
          'rbac_roles_update',
          'rbac_user_roles_add',
          'rbac_user_roles_remove',
        ],
        ...[
          'students_create',
          'students_update',
          'teachers_create',
          'teachers_update',
          'users_create',
          'users_delete',
          'users_second_factor_delete',
          'users_sessions_delete',
          'users_update',
        ],
        // Here, webhooks_update and api_keys_update repeat what the record has, which changes nothing.
        ...['webhooks_create', 'webhooks_rotate_secret'],
        'api_keys_create',
        'notifications_events_update',
        ...['guardians_delete', 'students_guardians_delete'],
      ].toSorted(),
    );
  });

  test('has changed nothing that outlives the visit, and ended no access but of webhooks and API keys', () => {
    const [before, after] = afterwards as [Record<string, unknown[]>, Record<string, unknown[]>];
    expect({ ...after, webhook: [], webhook_secret: [], api_key: [] }).toEqual({
      ...before,
      webhook: [],
      webhook_secret: [],
      api_key: [],
    });
    for (const table of ['webhook', 'webhook_secret', 'api_key'])
      expect(before[table]).toEqual(expect.arrayContaining(after[table] ?? []));
  });

  test('can change only the listed tables and columns; these are left out', async () => {
    const listed = await service.database.query<{ table_name: string; verbs: string[]; columns: string[] | null }>(
      'select table_name, verbs, columns from core.impersonation_change',
    );
    const stored = await school.database.query<{ table: string; columns: string[] }>(
      `select c.relname as table, array_agg(a.attname::text order by a.attnum) as columns
       from pg_class c join pg_attribute a on a.attrelid = c.oid
       where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
         and a.attgenerated = ''
       group by c.relname order by c.relname`,
      [school.schema],
    );
    const left = stored.flatMap(({ table, columns }) => {
      const rule = listed.find(({ table_name }) => table_name === table);
      if (rule === undefined || !rule.verbs.includes('update')) return [table];
      const given = rule.columns ?? columns;
      expect(given.filter((column) => !columns.includes(column))).toEqual([]);
      return columns.filter((column) => !given.includes(column)).map((column) => `${table}.${column}`);
    });
    expect(listed.filter(({ table_name }) => !stored.some(({ table }) => table === table_name))).toEqual([]);
    const automatic = /\.(id|created_at|updated_at)$/;
    expect(left.filter((name) => !automatic.test(name))).toEqual([
      ...['announced_mark', 'api_key', 'calendar_feed', 'daily_run', 'device'],
      ...['guardian.user_id', 'guardian.email', 'guardian.phone', 'guardian.deleted_at', 'guardian_muted_event'],
      ...['notification_event', 'notification_template'],
      ...['role', 'role_permission'],
      ...['school.phone', 'school.email', 'school.website', 'school.action_url_hosts', 'school.payment_details'],
      'state_transition',
      ...['student.user_id', 'student.email', 'student.phone', 'student.parent_phone', 'student.parent_email'],
      'student_guardian',
      ...['teacher.user_id', 'teacher.email', 'teacher.phone', 'user_account', 'user_role'],
      ...['webhook', 'webhook_delivery', 'webhook_secret'],
    ]);
  });

  test('every table of a school has the trigger that applies the list', async () => {
    const without = await school.database.query(
      `select relname from pg_class c where relnamespace = $1::regnamespace and relkind in ('r', 'p')
         and not exists (select from pg_trigger t where t.tgrelid = c.oid and t.tgname = 'limit_impersonator' and t.tgenabled <> 'D')`,
      [school.schema],
    );
    expect(without).toEqual([]);
  });

  test.each([
    ['/api/school-setup/school-info', 'POST', { payment_details: 'Pay to this account.' }, 'payment details'],
    ['/api/school-setup/school-info', 'POST', { action_url_hosts: ['evil.example'] }, 'action url hosts'],
    ['/api/school-setup/school-info', 'POST', { email: 'other@evil.example' }, 'email'],
    ['/api/auth/profile', 'PUT', { first_name: 'Somebody' }, 'first name'],
    ['/api/auth/profile', 'PUT', { phone: '+1 555 0100' }, 'phone'],
  ])('%s %s %p is refused and names what', async (path, method, body, what) => {
    const answer = await send(service.url, { method, path, body, token });
    expect([answer.status, answer.json?.error]).toEqual([403, 'forbidden']);
    expect(answer.json?.message).toContain(what);
  });

  test.each([
    ['students', { parent_email: 'other@evil.example' }, 'parent email'],
    ['students', { email: 'other@evil.example' }, 'email'],
    ['students', { parent_phone: '+1 555 0100' }, 'parent phone'],
    ['teachers', { email: 'other@evil.example' }, 'email'],
  ] as const)(
    'cannot redirect messages: %s %p is refused, a whole record without it is not',
    async (path, body, what) => {
      const { data: person } = await school.admin.post<object & { id: number }>(
        `/api/${path}`,
        {
          ...{ first_name: 'Ada', last_name: unique('Byron'), email: `${unique('ada')}@school.example` },
          ...(path === 'students' ? { parent_email: 'family@school.example', parent_phone: '+1 555 0199' } : {}),
        },
        201,
      );
      const put = (given: object) =>
        send(service.url, { method: 'PUT', path: `/api/${path}/${person.id}`, body: given, token });
      const refused = await put({ ...person, ...body });
      expect([refused.status, refused.json?.error]).toEqual([403, 'forbidden']);
      expect(refused.json?.message).toContain(what);
      const accepted = await put({ ...person, first_name: 'Augusta' });
      expect(accepted.json?.data).toMatchObject({ ...person, first_name: 'Augusta', updated_at: expect.any(String) });
    },
  );

  test('may change the address of the school, and send back what it does not change', async () => {
    const [info] = await service.database.query<object>(`select phone, payment_details from ${school.schema}.school`);
    const body = { address: unique('Street'), ...info };
    const answer = await send(service.url, { method: 'POST', path: '/api/school-setup/school-info', body, token });
    expect(answer.json?.data).toMatchObject(body);
  });

  test('can do everything else like the admin', () => {
    const failed = [...answers]
      .filter(([, answer]) => answer.status === 401 || answer.status === 403 || answer.status >= 500)
      .filter(([{ operation }, answer]) => !isRefused(answer) && operation.role === null);
    expect(failed.map(([{ name }, { status, text }]) => `${name} ${status} ${text.slice(0, 200)}`)).toEqual([]);
    expect([...answers.values()].filter(({ status }) => status < 300).length).toBeGreaterThan(answers.size * 0.6);
  });

  test('leaves an audit entry for each request, with both names', async () => {
    const entries = await service.database.query<{ action: string; outcome: string; count: number }>(
      `select action, count(*)::integer as count from platform.audit_log
       where tenant_id = $1 and actor_email = $2 and impersonated_email = $3 and action like 'impersonation.%' group by action order by action`,
      [school.id, operatorEmail, school.adminEmail],
    );
    const found = new Map(entries.map(({ action, count }) => [action.replace('impersonation.', ''), count]));
    // The first operations of these endpoints.
    for (const name of [
      'auth_password_change',
      'auth_totp_begin',
      'auth_recovery_codes_create',
      'auth_two_factor_delete',
    ])
      found.set(name, found.get('auth_own_credentials') ?? 0);
    found.set('auth_totp_confirm', found.get('auth_two_factor_attempt') ?? 0);
    const missing = [...answers.keys()]
      .filter(({ operation }) => (found.get(operation.name) ?? 0) < 1)
      .map(({ name }) => name);
    expect(missing).toEqual([]);
    expect([...found.values()].reduce((sum, count) => sum + count, 0)).toBeGreaterThanOrEqual(answers.size);
  });
});
