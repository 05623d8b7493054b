import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { passwords } from '../../src/api/passwords.ts';
import { createOperator } from '../../src/database/operator.ts';
import { withOwner } from '../../src/database/pool.ts';
import jwt from 'jsonwebtoken';
import pg from 'pg';
import { mailTo } from '../support/mail.ts';
import { fileForm, png } from '../support/pictures.ts';
import { type School, testPassword, testService, type TestService } from '../support/service.ts';

let service: TestService;
let school: School;
beforeAll(async () => {
  service = await testService();
  school = await service.school();
});
afterAll(() => service.close());

const roleIds = async (of: School) =>
  Object.fromEntries((await of.admin.get<{ id: number; name: string }[]>('/api/rbac/roles')).data.map(({ id, name }) => [name, id]));

describe('a rule that one broken line would break', () => {
  test('a refresh prolongs the session to thirty days from now', async () => {
    const user = await school.user(['teacher']);
    const { sid } = jwt.decode(user.token) as { sid: number };
    await service.database.query("update platform.session set expires_at = now() + interval '1 hour' where id = $1", [sid]);
    await service.anonymous.send('POST', '/api/auth/refresh', { headers: { 'X-Refresh-Token': user.refreshToken } }, 200);
    const [row] = await service.database.query<{ days: string }>(
      'select round(extract(epoch from expires_at - now()) / 86400) as days from platform.session where id = $1',
      [sid],
    );
    expect(Number(row?.days)).toBe(30);
  });

  test('the last admin is not replaced by one who was invited and has no password yet', async () => {
    const lonely = await service.school();
    const roles = await roleIds(lonely);
    const admin = (await lonely.admin.get<{ id: number }[]>(`/api/users?search=${lonely.adminEmail}`)).data[0];
    const body = { email: `invited@${lonely.subdomain}.example`, first_name: 'In', last_name: 'Vited', role_ids: [roles['admin']] };
    await lonely.admin.post('/api/users', body, 201);
    expect((await lonely.admin.put(`/api/users/${admin?.id ?? 0}`, { is_active: false }, 409)).error).toBe('conflict');
    expect((await lonely.admin.put(`/api/users/${admin?.id ?? 0}`, { role_ids: [] }, 409)).error).toBe('conflict');
  });

  test('of the password voids the links that went out before, and opens an account that ten failures had closed', async () => {
    const user = await school.user(['teacher']);
    await service.anonymous.post('/api/auth/password/forgot', { tenant_id: school.id, email: user.email });
    const { token } = await mailTo(service, user.email, 'Reset your password');
    const credentials = { tenant_id: school.id, email: user.email, password: 'set by the admin' };
    for (let n = 0; n < 10; n++) await service.anonymous.post('/api/auth/login', { ...credentials, password: 'wrong password' }, 401);
    await service.anonymous.post('/api/auth/login', { ...credentials, password: testPassword }, 429);
    await school.admin.put(`/api/users/${user.id}`, { password: credentials.password });
    await service.anonymous.login(credentials);
    expect((await service.anonymous.post('/api/auth/password/reset', { token, password: 'by the old link' }, 401)).error).toBe('invalid_token');
    await service.anonymous.login(credentials);
  });

  test("of one's own password ends the other sessions and keeps this one", async () => {
    const admin = await school.user(['admin']);
    const elsewhere = await service.anonymous.login({ tenant_id: school.id, email: admin.email, password: testPassword });
    await admin.put(`/api/users/${admin.id}`, { password: 'set by themself' });
    await elsewhere.get('/api/auth/profile', 401);
    await admin.get('/api/auth/profile');
  });

  test('to a plan with fewer teachers than it has is a 409, and it keeps its plan', async () => {
    const grown = await service.school();
    await service.database.query(`insert into ${grown.schema}.teacher (first_name, last_name) values ('Tea', 'Cher'), ('Tea', 'Other')`);
    await grown.admin.post('/api/students', { first_name: 'Counted', last_name: 'Student' }, 201);
    const few = await service.operator.post<{ id: number }>(
      '/api/platform/plans',
      { name: 'One teacher', price_monthly: 0, max_students: 5, max_teachers: 1 },
      201,
    );
    expect((await service.operator.put(`/api/platform/tenants/${grown.id}`, { plan_id: few.data.id }, 409)).error).toBe('conflict');
    const { data } = await service.operator.get(`/api/platform/tenants/${grown.id}`);
    expect(data).toMatchObject({ plan: { id: 3 }, stats: { total_teachers: 2 } });
  });

  test('allows so many active teachers: growth beyond them is a plan_limit_reached', async () => {
    const plan = await service.operator.post<{ id: number }>(
      '/api/platform/plans',
      { name: 'No teachers at all', price_monthly: 0, max_students: 5, max_teachers: 1 },
      201,
    );
    const limited = await service.school({ plan_id: plan.data.id });
    const count = async () => {
      const owner = new pg.Client({ connectionString: service.database.url });
      await owner.connect();
      try {
        await owner.query('begin');
        await owner.query('select core.enter_tenant($1)', [limited.id]);
        await owner.query('select core.usage_count()');
        await owner.query('commit');
        return 'counted';
      } catch (error) {
        return (error as Error).message;
      } finally {
        await owner.end();
      }
    };
    const add = () => service.database.query(`insert into ${limited.schema}.teacher (first_name, last_name) values ('Tea', 'Cher')`);
    await add();
    expect(await count()).toBe('counted');
    await add();
    expect(await count()).toContain('allows 1 active teachers');
    await service.database.query(`update ${limited.schema}.teacher set is_active = false where id = 2`);
    expect(await count()).toBe('counted');
  });

  test('that was used for another operation is a 422, though the request is the same', async () => {
    const body = { first_name: 'Other', last_name: 'Operation' };
    const post = (status: number) => school.admin.send('POST', '/api/students', { body, headers: { 'Idempotency-Key': 'other-operation' } }, status);
    await post(201);
    await service.database.query(`update ${school.schema}.idempotency_key set operation = 'users_create' where key = 'other-operation'`);
    expect((await post(422)).error).toBe('idempotency_key_reused');
  });

  test('an enrollment that begins in the future ends no sooner than it began when the class changes before', async () => {
    const from = await school.classroom('Ahead A');
    const to = await school.classroom('Ahead B');
    const { data } = await school.admin.post<{ id: number }>('/api/students', { first_name: 'A', last_name: 'Head', class_id: from.classId }, 201);
    await service.database.query(`update ${school.schema}.enrollment set starts_on = current_date + 10 where student_id = $1`, [data.id]);
    await school.admin.put(`/api/students/${data.id}`, { class_id: to.classId });
    const rows = await service.database.query(
      `select status, ends_on = starts_on as same_day from ${school.schema}.enrollment where student_id = $1 order by id`,
      [data.id],
    );
    expect(rows).toEqual([
      { status: 'transferred', same_day: true },
      { status: 'active', same_day: null },
    ]);
  });

  test('whose schema is being changed answers 503 to its requests at once, and is served again after', async () => {
    const busy = await service.school();
    const owner = new pg.Client({ connectionString: service.database.url });
    await owner.connect();
    try {
      await owner.query('begin');
      await owner.query('select pg_advisory_xact_lock(core.tenant_lock_key($1))', [busy.id]);
      const refused = await busy.admin.get('/api/students', 503);
      expect([refused.error, Number(refused.headers.get('retry-after')) > 0]).toEqual(['unavailable', true]);
      await school.admin.get('/api/students');
      await owner.query('commit');
    } finally {
      await owner.end();
    }
    await busy.admin.get('/api/students');
  });

  test('a session that outlived its user, as by a change in SQL, can not be refreshed', async () => {
    const user = await school.user(['teacher']);
    await service.database.query(`update ${school.schema}.user_account set is_active = false where id = $1`, [user.id]);
    const refused = await service.anonymous.send('POST', '/api/auth/refresh', { headers: { 'X-Refresh-Token': user.refreshToken } }, 401);
    expect(refused.error).toBe('invalid_token');
  });

  test("has an operator's change of their own name, picture and password", async () => {
    const email = 'vain-operator@test.example';
    const passwordHash = await (await passwords()).hash(testPassword);
    await withOwner(service.database.url, (owner) =>
      createOperator(owner, { email, passwordHash, firstName: 'Va', lastName: 'In', role: 'admin', tenantIds: null }),
    );
    const operator = await service.anonymous.login({ is_platform: true, email, password: testPassword });
    await operator.put('/api/auth/profile', { first_name: 'Renamed' });
    await operator.send('POST', '/api/auth/profile/picture', { body: fileForm(png, 'a.png', 'image/png') }, 200);
    await operator.post('/api/auth/password/change', { current_password: testPassword, password: 'the next password' });
    const { data } = await service.operator.get<{ action: string }[]>(`/api/platform/audit-logs?search=${email}&sort=created_at&order=asc`);
    expect(data.map(({ action }) => action)).toEqual(['operator.login', 'operator.update', 'operator.picture', 'operator.password']);
  });

  test('two school years share no day, and may follow each other', async () => {
    const fresh = await service.school();
    const year = (name: string, from: string, to: string) =>
      service.database.query(`insert into ${fresh.schema}.academic_year (name, start_date, end_date) values ($1, $2, $3)`, [name, from, to]);
    await year('First', '2030-09-01', '2031-06-30');
    await expect(year('Shares a day', '2031-06-30', '2032-06-30')).rejects.toMatchObject({ code: '23P01' });
    await year('Next', '2031-07-01', '2032-06-30');
  });
});
