import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { withOwner } from '../../src/database/pool/pool.ts';
import { populate } from '../support/fixtures/populate.ts';
import {
  findErrors,
  isForSchools,
  references,
  type Registered,
  registry,
  sampleRequest,
} from '../support/server/registry.ts';
import { type School, testPassword, testService } from '../support/server/service.ts';
import { checksums, traceRequests } from '../support/database/traces.ts';
import { share } from '../support/client/share.ts';
import { type Answered, errorMismatch, send, type Sent } from '../support/client/wire.ts';

const baseDomain = 'schools.example';
const service = await testService({ BASE_DOMAIN: baseDomain }, 11);
afterAll(() => service.close());
const { endpoints, document } = await registry(service);
const mine = endpoints.filter(isForSchools);

/** Every record has the id 500001 in school A and 1000001 in school B, so that ids do not overlap. */
const ofA = 500_001;
const ofB = 1_000_001;
/** Part of every text of school B, and of none of A. */
const marker = 'Xyzzy';

let a: School;
let b: School;

beforeAll(async () => {
  [a, b] = [await service.school(), await service.school()];
  const left = [
    ...(await populate(service, a, { endpoints, document }, ofA - 1, 'Plain')),
    ...(await populate(service, b, { endpoints, document }, ofB - 1, marker)),
  ];
  // If `populate` cannot fill a new endpoint, add sample values in test/support.
  expect(left).toEqual([]);
});

/** A's admin, unless the request says otherwise. */
const sendRequest = (request: Sent) => send(service.url, { token: a.admin.token, ...request });

/** Endpoints that can be called repeatedly: no logout and no password change. */
const repeatable = mine.filter(({ operation }) => !['auth_logout', 'auth_password_change'].includes(operation.name));

/** Lists the school endpoints that do not return the expected error. */
const refused = (
  check: (answer: Answered) => string | undefined,
  school: School,
  headers: Record<string, string> = {},
  among = repeatable,
) =>
  findErrors(among, async (endpoint) => {
    const request = sampleRequest(document, endpoint, { id: ofA });
    return check(
      await sendRequest({ ...request, token: school.admin.token, headers: { ...request.headers, ...headers } }),
    );
  });

describe("another school's identifiers", () => {
  const withId = mine.filter(({ parameters }) => parameters.length > 0);

  test('exist: the admin of that school can read each record that these tests use', async () => {
    const readable = withId.filter(({ method }) => method === 'GET');
    expect(readable.length).toBeGreaterThan(3);
    for (const [school, id] of [
      [a, ofA],
      [b, ofB],
    ] as const) {
      const lines = await findErrors(readable, async (endpoint) => {
        const { status, text } = await sendRequest({
          ...sampleRequest(document, endpoint, { id }),
          token: school.admin.token,
        });
        return status === 200 ? undefined : `${status} ${text}`;
      });
      expect(lines).toEqual([]);
    }
  });

  test('in a path return 404 at every endpoint, also next to ids of the own school, and change nothing', async () => {
    const before = await checksums(service.database, a.schema, b.schema, 'platform');
    const lines = await findErrors(withId, async (endpoint) => {
      for (const foreign of endpoint.parameters) {
        const answer = await sendRequest(
          sampleRequest(document, endpoint, { id: ofA }, { parameters: { [foreign]: ofB } }),
        );
        const fault =
          errorMismatch(answer, 404, 'not_found') ??
          (answer.text.includes(marker) ? `tells ${answer.text}` : undefined);
        if (fault) return `${foreign}: ${fault}`;
      }
      return undefined;
    });
    expect(withId.length).toBeGreaterThan(8);
    expect(lines).toEqual([]);
    expect(await checksums(service.database, a.schema, b.schema, 'platform')).toEqual(before);
  });

  const withReferences = mine
    .filter(({ operation }) => operation.access === 'tenant')
    .flatMap((endpoint) => references(document, endpoint).map((reference) => ({ endpoint, ...reference })));

  test('are tested in every body field that takes ids', () => {
    expect(withReferences.map(({ endpoint, field }) => `${endpoint.operation.name} ${field}`)).toEqual(
      expect.arrayContaining([
        'students_create class_id',
        'students_update grade_id',
        'grade_subjects_replace 0.subject_id',
        'class_subjects_create teacher_id',
        'users_create role_ids',
        'users_update role_ids',
        'rbac_user_roles_add role_id',
      ]),
    );
  });

  describe('in a body', () => {
    const state = () => checksums(service.database, a.schema, b.schema, 'platform');
    let before: Record<string, string>;
    let changesOf: Awaited<ReturnType<typeof traceRequests>>;
    beforeAll(async () => {
      changesOf = await traceRequests(service.database, [a.schema, b.schema, 'platform']);
      before = await state();
    });

    test.each(
      withReferences.map(
        ({ endpoint, field, put }): [string, string, Registered, ReturnType<typeof references>[number]['put']] => [
          field,
          endpoint.name,
          endpoint,
          put,
        ],
      ),
    )('as %s of %s return a 422 and change nothing', async (field, _name, endpoint, put) => {
      const answer = await sendRequest(sampleRequest(document, endpoint, { id: ofA }, { body: put(ofB) }));
      expect(errorMismatch(answer, 422, 'invalid_reference')).toBeUndefined();
      expect(answer.json?.details?.map(({ path }) => path.split('.')[0])).toContain(field.split('.')[0]);
      expect(answer.text).not.toContain(marker);
      const requestId = String(answer.headers['x-request-id']);
      expect(requestId).toMatch(/./);
      expect(await changesOf([requestId])).toEqual({});
    });

    test('have changed nothing after all of these requests', async () => {
      expect(await state()).toEqual(before);
    });
  });

  const filters = mine
    .filter(
      ({ operation, route }) =>
        operation.access === 'tenant' && operation.role === null && route.response.kind === 'page',
    )
    .flatMap((endpoint) =>
      endpoint.query
        .filter(({ name }) => name.endsWith('_id'))
        .map(({ name }): [string, string, Registered] => [name, endpoint.name, endpoint]),
    );

  test.each(filters)(
    'the filter %s of %s finds own records; an id of the other school returns an empty list or a 404',
    async (name, _name, endpoint) => {
      const found = async (school: School, own: number, id: number) => {
        const request = sampleRequest(document, endpoint, { id: own });
        const answer = await sendRequest({
          ...request,
          path: `${request.path}${request.path.includes('?') ? '&' : '?'}${name}=${id}`,
          token: school.admin.token,
        });
        const { data, pagination, error } = answer.json ?? {};
        return { status: answer.status, data, total: pagination?.totalItems, error };
      };
      const none = { status: 200, data: [], total: 0 };
      const unknown = { status: 404, error: 'not_found' };
      for (const foreign of [await found(a, ofA, ofB), await found(b, ofB, ofA)])
        expect([none, unknown]).toContainEqual(foreign);
      expect((await found(b, ofB, ofB)).total).toBeGreaterThan(0);
    },
  );

  test('never appear in a list of another school', async () => {
    const readable = repeatable.filter(({ method, parameters }) => method === 'GET' && parameters.length === 0);
    const lines = await findErrors(readable, async (endpoint) => {
      const own = await sendRequest(sampleRequest(document, endpoint, { id: ofA }));
      return own.text.includes(marker) || own.text.includes(String(ofB)) || own.text.includes(b.subdomain)
        ? `tells ${own.text}`
        : undefined;
    });
    expect(lines).toEqual([]);
    const { data } = await b.admin.get<{ id: number }[]>('/api/students?search=xyzzy');
    expect(data.map(({ id }) => id)).toEqual([ofB]);
    expect((await a.admin.get<unknown[]>('/api/students?search=xyzzy')).data).toEqual([]);
  });

  test('do not restrict writes: one school can use a number, an email and a name of another', async () => {
    const { data: theirs } = await b.admin.put<{ admission_number: string }>(`/api/students/${ofB}`, {
      admission_number: 'B-1',
    });
    const { data: user } = await b.admin.get<{ email: string }>(`/api/users/${ofB}`);
    const { data: role } = await b.admin.get<{ name: string }>(`/api/rbac/roles/${ofB}`);
    const before = await checksums(service.database, b.schema);
    await a.admin.post(
      '/api/students',
      { first_name: 'Same', last_name: 'Number', admission_number: theirs.admission_number },
      201,
    );
    await a.admin.post('/api/users', { first_name: 'Same', last_name: 'Address', email: user.email }, 201);
    await a.admin.post('/api/rbac/roles', { name: role.name }, 201);
    expect(await checksums(service.database, b.schema)).toEqual(before);
  });
});

describe('header, host and token', () => {
  const host = (school: School) => `${school.subdomain}.${baseDomain}`;

  test('are accepted by every endpoint if they name the same school', async () => {
    const all = { 'x-tenant-id': String(a.id), host: host(a) };
    for (const headers of [
      all,
      { host: all.host },
      { 'x-tenant-id': all['x-tenant-id'] },
      { host: `${all.host.toUpperCase()}:8080` },
      { host: baseDomain },
      { host: 'elsewhere.example' },
    ]) {
      const { data } = await a.admin.get<{ tenant: { id: number } }>('/api/auth/profile');
      const answer = await sendRequest({ path: '/api/auth/profile', headers });
      expect(answer.status).toBe(200);
      expect(answer.json?.data).toEqual(data);
      expect(data.tenant.id).toBe(a.id);
    }
    const lines = await findErrors(
      repeatable.filter(({ method, operation }) => method === 'GET' && operation.role === null),
      async (endpoint) => {
        const { status, text } = await sendRequest({ ...sampleRequest(document, endpoint, { id: ofA }), headers: all });
        return status === 200 || ('types' in endpoint.route.response && status === 404)
          ? undefined
          : `${status} ${text}`;
      },
    );
    expect(lines).toEqual([]);
  });

  const mismatches: [string, () => Record<string, string>][] = [
    ['X-Tenant-ID of another school', () => ({ 'x-tenant-id': String(b.id) })],
    ['X-Tenant-ID of no school', () => ({ 'x-tenant-id': '999999999' })],
    ['a host of another school', () => ({ host: host(b) })],
    ['a host of no school', () => ({ host: `nobody.${baseDomain}` })],
    ['a correct X-Tenant-ID with a host of another school', () => ({ 'x-tenant-id': String(a.id), host: host(b) })],
    ['a correct host with X-Tenant-ID of another school', () => ({ 'x-tenant-id': String(b.id), host: host(a) })],
    ['a subdomain below the correct host', () => ({ host: `${b.subdomain}.${host(a)}` })],
  ];
  test.each(mismatches.map(([name, headers], n) => ({ name, headers, n })))(
    '$name returns 403 tenant_mismatch at every endpoint, and nothing changes',
    async ({ headers, n }) => {
      const before = await checksums(service.database, a.schema, b.schema, 'platform');
      const among = share(repeatable, n, 3);
      expect(await refused((answer) => errorMismatch(answer, 403, 'tenant_mismatch'), a, headers(), among)).toEqual([]);
      expect(await checksums(service.database, a.schema, b.schema, 'platform')).toEqual(before);
    },
  );

  test.each(['0', '-1', '1.5', '1e3', '0x1', 'abc', "1'--", '1 or 1=1', '99999999999999999999', '+1', ' ', '1,1'])(
    'X-Tenant-ID %p returns 400',
    async (value) => {
      const answer = await sendRequest({ path: '/api/auth/profile', headers: { 'x-tenant-id': value } });
      expect(errorMismatch(answer, 400, 'validation_error')).toBeUndefined();
      expect(answer.json?.details?.map(({ path }) => path)).toEqual(['X-Tenant-ID']);
    },
  );

  test('a login takes the school from the body, a header or the host, and those given must agree', async () => {
    const login = (headers: Record<string, string>, body: object) =>
      sendRequest({
        method: 'POST',
        path: '/api/auth/login',
        headers,
        body: { email: a.adminEmail, password: testPassword, ...body },
        token: '',
      });
    const byHost = await login({ host: host(a) }, {});
    const byHeader = await login({ 'x-tenant-id': String(a.id) }, {});
    const byAll = await login(
      { host: host(a), 'x-tenant-id': String(a.id) },
      { tenant_id: a.id, subdomain: a.subdomain },
    );
    expect(
      [byHost, byHeader, byAll].map(({ status, json }) => [
        status,
        (json?.data as { user: { email: string } }).user.email,
      ]),
    ).toEqual(Array(3).fill([200, a.adminEmail]));
    expect(errorMismatch(await login({}, {}), 400, 'validation_error')).toBeUndefined();
    expect(errorMismatch(await login({ host: host(b) }, { tenant_id: a.id }), 403, 'tenant_mismatch')).toBeUndefined();
    expect(
      errorMismatch(await login({ 'x-tenant-id': String(b.id) }, { subdomain: a.subdomain }), 403, 'tenant_mismatch'),
    ).toBeUndefined();
    expect(
      errorMismatch(await login({}, { tenant_id: a.id, subdomain: b.subdomain }), 403, 'tenant_mismatch'),
    ).toBeUndefined();
    expect(errorMismatch(await login({ host: `nobody.${baseDomain}` }, {}), 404, 'tenant_not_found')).toBeUndefined();
    expect(
      errorMismatch(await login({ host: host(a) }, { tenant_id: 999_999_999 }), 404, 'tenant_not_found'),
    ).toBeUndefined();
    // A's admin has no account in B.
    expect(errorMismatch(await login({ host: host(b) }, {}), 401, 'invalid_credentials')).toBeUndefined();
  });

  test('a refresh token works only in its own school', async () => {
    const client = await service.anonymous.login({ tenant_id: a.id, email: a.adminEmail, password: testPassword });
    const refresh = (headers: Record<string, string>) =>
      sendRequest({
        method: 'POST',
        path: '/api/auth/refresh',
        token: '',
        headers: { 'x-refresh-token': client.refreshToken, ...headers },
      });
    expect(errorMismatch(await refresh({ 'x-tenant-id': String(b.id) }), 403, 'tenant_mismatch')).toBeUndefined();
    expect(errorMismatch(await refresh({ host: host(b) }), 403, 'tenant_mismatch')).toBeUndefined();
    expect((await refresh({ host: host(a) })).status).toBe(200);
  });
});

// The dispatcher makes these checks for all endpoints. In the short form each state meets half of the endpoints, and
// each endpoint half of the states.
describe('the state of a school', () => {
  test('suspended: every endpoint, login and refresh return 403 tenant_suspended until it is activated; other schools are unaffected', async () => {
    const school = await service.school();
    await service.operator.post(`/api/platform/tenants/${school.id}/suspend`);
    const before = await checksums(service.database, school.schema);
    expect(
      await refused((answer) => errorMismatch(answer, 403, 'tenant_suspended'), school, {}, share(mine, 0, 2)),
    ).toEqual([]);
    const login = {
      method: 'POST',
      path: '/api/auth/login',
      token: '',
      body: { tenant_id: school.id, email: school.adminEmail, password: testPassword },
    };
    const refresh = {
      method: 'POST',
      path: '/api/auth/refresh',
      token: '',
      headers: { 'x-refresh-token': school.admin.refreshToken },
    };
    expect(errorMismatch(await sendRequest(login), 403, 'tenant_suspended')).toBeUndefined();
    expect(errorMismatch(await sendRequest(refresh), 403, 'tenant_suspended')).toBeUndefined();
    expect(await checksums(service.database, school.schema)).toEqual(before);
    expect((await a.admin.get<{ tenant: { id: number } }>('/api/auth/profile')).data.tenant.id).toBe(a.id);
    await service.operator.post(`/api/platform/tenants/${school.id}/activate`);
    expect((await school.admin.get<{ tenant: { id: number } }>('/api/auth/profile')).data.tenant.id).toBe(school.id);
    expect((await sendRequest(login)).status).toBe(200);
  });

  test('deleted: every endpoint refuses its users, and login does not find it, until it is restored', async () => {
    const school = await service.school();
    await service.operator.delete(`/api/platform/tenants/${school.id}`);
    const before = await checksums(service.database, school.schema);
    expect(
      await refused((answer) => errorMismatch(answer, 401, 'invalid_token'), school, {}, share(mine, 1, 2)),
    ).toEqual([]);
    const login = {
      method: 'POST',
      path: '/api/auth/login',
      token: '',
      body: { tenant_id: school.id, email: school.adminEmail, password: testPassword },
    };
    expect(errorMismatch(await sendRequest(login), 404, 'tenant_not_found')).toBeUndefined();
    expect(await checksums(service.database, school.schema)).toEqual(before);
    await service.operator.post(`/api/platform/tenants/${school.id}/restore`);
    expect((await school.admin.get<{ tenant: { id: number } }>('/api/auth/profile')).data.tenant.id).toBe(school.id);
  });

  /** Changes a column of every school operation in the database of this test, and changes it back. */
  async function withOperations(setting: string, work: () => Promise<void>): Promise<void> {
    const before = await service.database.query<{
      name: string;
      feature: string | null;
      role: string | null;
      needs_setup: boolean;
      needs_subscription: boolean;
    }>('select name, feature, role, needs_setup, needs_subscription from core.operation');
    await service.database.everywhere(`update core.operation set ${setting} where access = 'tenant'`);
    try {
      await work();
    } finally {
      await service.database.everywhere(
        `update core.operation o set feature = b.feature, role = b.role, needs_setup = b.needs_setup, needs_subscription = b.needs_subscription
         from jsonb_to_recordset($1) b (name text, feature text, role text, needs_setup boolean, needs_subscription boolean) where b.name = o.name`,
        [JSON.stringify(before)],
      );
    }
  }
  const ofSchools = mine.filter(({ operation }) => operation.access === 'tenant' && operation.role === null);
  /** Responses after the access checks; they depend on the request itself. */
  const passes = ({ status, text }: Answered) =>
    [401, 402, 403].includes(status) || status >= 500 ? `answered ${status} ${text}` : undefined;

  test('a disabled feature returns 403 feature_disabled at every endpoint that needs it, until it is enabled again', async () => {
    const school = await service.school({ feature_flags: { transport: true } });
    const before = await checksums(service.database, school.schema);
    await withOperations("feature = 'transport'", async () => {
      await service.operator.put(`/api/platform/tenants/${school.id}`, { feature_flags: { transport: false } });
      expect(
        await refused((answer) => errorMismatch(answer, 403, 'feature_disabled'), school, {}, share(ofSchools, 2, 2)),
      ).toEqual([]);
      expect(await checksums(service.database, school.schema)).toEqual(before);
      await service.operator.put(`/api/platform/tenants/${school.id}`, { feature_flags: {} });
      expect(await refused(passes, school, {}, share(ofSchools, 2, 2))).toEqual([]);
    });
  });

  test('a feature that the plan lacks returns 403 feature_disabled, unless a flag of the school enables it', async () => {
    const school = await service.school({ plan_id: 1 });
    await withOperations("feature = 'transport'", async () => {
      const refusal = await sendRequest({ method: 'GET', path: '/api/students', token: school.admin.token });
      expect([refusal.status, refusal.json?.error]).toEqual([403, 'feature_disabled']);
      await service.operator.put(`/api/platform/tenants/${school.id}`, { feature_flags: { transport: true } });
      expect((await school.admin.get<unknown[]>('/api/students')).data).toEqual([]);
    });
  });

  test('endpoints return 403 feature_disabled without their feature, and other endpoints still work', async () => {
    const features = [...new Set(endpoints.flatMap(({ operation }) => operation.feature ?? []))];
    const school = await service.school({ feature_flags: Object.fromEntries(features.map((name) => [name, false])) });
    const lines = await findErrors(ofSchools, async (endpoint) => {
      const answer = await sendRequest({
        ...sampleRequest(document, endpoint, { id: ofA }),
        token: school.admin.token,
      });
      return endpoint.operation.feature === null ? passes(answer) : errorMismatch(answer, 403, 'feature_disabled');
    });
    expect(lines).toEqual([]);
  });

  test('endpoints that need a complete setup return 409 setup_incomplete until it is complete', async () => {
    const school = await service.school();
    const before = await checksums(service.database, school.schema);
    await withOperations('needs_setup = true', async () => {
      expect(
        await refused((answer) => errorMismatch(answer, 409, 'setup_incomplete'), school, {}, share(ofSchools, 3, 2)),
      ).toEqual([]);
      expect(await checksums(service.database, school.schema)).toEqual(before);
      await school.database.query('update platform.tenant set is_setup_complete = true where id = $1', [school.id]);
      expect(await refused(passes, school, {}, share(ofSchools, 3, 2))).toEqual([]);
    });
  });

  test('a school whose subscription is cancelled can read everything, but only operations with works_when_cancelled can write', async () => {
    const school = await service.school();
    const before = await checksums(service.database, school.schema);
    await service.operator.put(`/api/platform/tenants/${school.id}/subscription`, { status: 'cancelled' });
    await school.database.query('update platform.tenant set is_setup_complete = true where id = $1', [school.id]);
    const isLocked = ({ operation }: (typeof ofSchools)[number]) => operation.writes && !operation.works_when_cancelled;
    const isRefused = (answer: Answered) => errorMismatch(answer, 402, 'subscription_inactive');
    expect(await refused(isRefused, school, {}, ofSchools.filter(isLocked))).toEqual([]);
    expect(await checksums(service.database, school.schema)).toEqual(before);
    // An upgrade would end the cancellation, and timetables need an active subscription.
    const others = ofSchools.filter(
      (endpoint) =>
        !isLocked(endpoint) &&
        !endpoint.operation.needs_subscription &&
        endpoint.operation.name !== 'subscription_upgrade',
    );
    expect(others.map(({ operation }) => operation.name)).toEqual(
      expect.arrayContaining(['students_list', 'devices_register']),
    );
    expect(await refused(passes, school, {}, others)).toEqual([]);
  });

  test('endpoints that need a subscription return 402 subscription_inactive unless it is trialing or active', async () => {
    const school = await service.school();
    const set = (status: string) =>
      school.database.query('update platform.subscription set status = $2 where tenant_id = $1', [school.id, status]);
    const before = await checksums(service.database, school.schema);
    const list = () => sendRequest({ path: '/api/students', token: school.admin.token });
    await withOperations('needs_setup = false, needs_subscription = true', async () => {
      expect((await list()).json?.data).toEqual([]);
      await set('past_due');
      expect(errorMismatch(await list(), 402, 'subscription_inactive')).toBeUndefined();
      await set('cancelled');
      expect(
        await refused(
          (answer) => errorMismatch(answer, 402, 'subscription_inactive'),
          school,
          {},
          share(ofSchools, 4, 2),
        ),
      ).toEqual([]);
      expect(await checksums(service.database, school.schema)).toEqual(before);
      await set('trialing');
      await school.database.query(
        "update platform.subscription set current_period_end = now() - interval '1 minute' where tenant_id = $1",
        [school.id],
      );
      expect(errorMismatch(await list(), 402, 'subscription_inactive')).toBeUndefined();
      await school.database.query(
        "update platform.subscription set current_period_end = now() + interval '1 day' where tenant_id = $1",
        [school.id],
      );
      expect((await list()).json?.data).toEqual([]);
    });
  });

  test('an operation that needs a role returns 403 for an admin without it, and for a custom role of that name', async () => {
    const before = await checksums(service.database, a.schema);
    await withOperations("role = 'principal'", async () => {
      expect(await refused((answer) => errorMismatch(answer, 403, 'forbidden'), a, {}, share(ofSchools, 5, 2))).toEqual(
        [],
      );
      expect(await checksums(service.database, a.schema)).toEqual(before);
    });
    await a.admin.post('/api/rbac/roles', { name: 'principal', permission_ids: [1] }, 201);
    const poser = await a.user(['principal']);
    await poser.get('/api/students', 200);
    await withOperations("role = 'principal'", async () => {
      expect((await poser.get('/api/students', 403)).error).toBe('forbidden');
    });
    await withOperations("role = 'admin'", async () => {
      await a.admin.get('/api/students', 200);
    });
  });

  test('every endpoint returns 503 with Retry-After while the school is migrated, and other schools do not wait', async () => {
    const before = await checksums(service.database, a.schema);
    const closed = (answer: Answered) =>
      errorMismatch(answer, 503, 'unavailable') ??
      (answer.headers['retry-after'] === '1' ? undefined : 'has no Retry-After');
    await withOwner(await a.database.addressFor(), async (owner) => {
      await owner.query('select pg_advisory_lock(core.tenant_lock_key($1))', [a.id]);
      expect(await refused(closed, a, {}, share(mine, 6, 2))).toEqual([]);
      const login = { email: a.adminEmail, password: testPassword, tenant_id: a.id };
      expect(
        closed(await sendRequest({ method: 'POST', path: '/api/auth/login', token: '', body: login })),
      ).toBeUndefined();
      expect((await b.admin.get<{ id: number }>(`/api/students/${ofB}`)).data.id).toBe(ofB);
      expect((await service.operator.get<{ id: number }>(`/api/platform/tenants/${a.id}`)).data.id).toBe(a.id);
    });
    expect((await a.admin.get<{ id: number }>(`/api/students/${ofA}`)).data.id).toBe(ofA);
    expect(await checksums(service.database, a.schema)).toEqual(before);
  });

  test('a school with an old schema gets 503 until it is migrated, and other schools do not wait', async () => {
    const school = await service.school();
    const [current] = await school.database.query<{ version: number }>(
      'select schema_version as version from platform.tenant where id = $1',
      [school.id],
    );
    const set = (version: string) =>
      school.database.query(`update platform.tenant set schema_version = ${version} where id = $1`, [school.id]);
    await set('core.required_schema_version() - 1');
    expect(await refused((answer) => errorMismatch(answer, 503, 'unavailable'), school, {}, share(mine, 7, 2))).toEqual(
      [],
    );
    await b.admin.get(`/api/students/${ofB}`, 200);
    await set(String(current?.version));
    expect((await school.admin.get<unknown[]>('/api/students')).data).toEqual([]);
  });
});
