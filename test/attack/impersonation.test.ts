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

const sentence = 'during an impersonation';
const isRefused = ({ status, json }: Answered) => status === 403 && (json?.message ?? '').includes(sentence);

/** Everything that determines who can log in, with which rights, and who receives notifications. */
const logins = async () => {
  const columns: Record<string, string> = {
    user_account: 'id, email, password_hash, email_verified_at, is_active, deleted_at',
    role: 'id, name, description',
    role_permission: 'role_id, permission_id',
    user_role: 'user_id, role_id',
    device: 'id, user_id, token',
    calendar_feed: 'id, user_id, token_hash',
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
  expect(await logins()).toEqual(before);
}, 180_000);

describe('an operator who impersonates an admin', () => {
  test('cannot change logins, passwords, roles, devices, calendar feeds, webhooks and API keys; the list of these endpoints is complete', () => {
    const refused = [...answers].flatMap(([{ operation }, answer]) => (isRefused(answer) ? [operation.name] : []));
    expect(refused.toSorted()).toEqual(
      [
        ...[
          'auth_password_change',
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
        ...['webhooks_create', 'webhooks_rotate_secret', 'webhooks_update'],
        ...['api_keys_create', 'api_keys_update'],
      ].toSorted(),
    );
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
