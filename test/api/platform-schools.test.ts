import { describe, expect, test } from '@jest/globals';
import { mailTo } from '../support/fakes/mail.ts';
import { serviceWithSchool, testPassword, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { operator } = service;
const path = '/api/platform/tenants';

const exported = async (query = '') => {
  const { data, headers } = await operator.get<Buffer>(`${path}/export?format=csv${query}`);
  expect(headers.get('content-disposition')).toMatch(/^attachment; filename=schools-[\d-]+\.csv$/);
  const [header = '', ...lines] = data.toString('utf8').replace('\ufeff', '').trim().split(/\r?\n/);
  return { header, lines };
};
const audited = async (action: string) =>
  (
    await operator.get<{ tenant_id: number | null; changes: Record<string, { after: unknown }> }[]>(
      `/api/platform/audit-logs?action=${action}`,
    )
  ).data;

describe('the export of the list of schools', () => {
  test('has every school that matches the filters, on all pages, and is audited', async () => {
    const word = unique('Export');
    await service.database.query(
      `insert into platform.tenant (name, subdomain, contact_email, plan_id, status)
       select $1 || ' ' || n, lower($1) || '-' || n, 'head@export.example', case when n % 2 = 0 then 1 else 2 end,
              case n when 7 then 'suspended' else 'active' end
       from generate_series(1, 1203) n`,
      [word],
    );
    const all = await exported(`&search=${word}`);
    expect(all.header).toBe(
      'id,name,subdomain,status,plan,subscription_status,current_period_end,trial_ends_at,contact_email,' +
        'total_students,total_teachers,total_classes,time_zone,is_setup_complete,created_at',
    );
    expect(all.lines).toHaveLength(1203);
    expect(all.lines[6]).toMatch(new RegExp(`^\\d+,${word} 7,${word.toLowerCase()}-7,suspended,Standard,`));
    expect((await exported(`&search=${word}&status=suspended`)).lines).toEqual([all.lines[6]]);
    expect((await exported(`&search=${word}&plan_id=1`)).lines).toHaveLength(601);
    const [latest] = await audited('schools.export');
    expect(latest?.changes['plan_id']?.after).toBe(1);
    await operator.get(`${path}/export?status=closed`, 400);
    await operator.get(`${path}/export?format=pdf`, 400);
  });

  test('shows the figures of a school', async () => {
    const { lines } = await exported(`&search=${school.subdomain}`);
    expect(lines).toHaveLength(1);
    const { data } = await operator.get<{ plan: { name: string }; contact_email: string }>(`${path}/${school.id}`);
    expect(lines[0]).toMatch(new RegExp(`,active,${data.plan.name},active,.*,${data.contact_email},0,0,0,`));
  });
});

describe('a message to the admins of a school', () => {
  const message = { title: 'Maintenance of {{school_name}}', message: 'Dear {{first_name}}, {{not_a_placeholder}}' };

  test('reaches each of them in-app and by email, and is audited with its text', async () => {
    const email = `${unique('admin').toLowerCase()}@test.example`;
    const { data: roles } = await school.admin.get<{ id: number; name: string }[]>('/api/rbac/roles');
    const admin = roles.find(({ name }) => name === 'admin');
    await school.admin.post(
      '/api/users',
      { email, first_name: 'Amina', last_name: 'Second', password: testPassword, role_ids: [admin?.id] },
      201,
    );
    // Until an address is confirmed, its emails take turns.
    await service.database.query(`update ${school.schema}.user_account set email_verified_at = now()`);
    await school.user(['teacher']);
    expect((await operator.post(`${path}/${school.id}/message`, message)).data).toEqual({ id: school.id, sent: 2 });
    const { data } = await operator.get<{ name: string }>(`${path}/${school.id}`);
    const { text } = await mailTo(service, email, `Maintenance of ${data.name}`);
    expect(text).toContain('Dear Amina, {{not_a_placeholder}}');
    const notices = (await school.admin.get<{ type: string; title: string }[]>('/api/notifications')).data;
    expect(notices.filter(({ type }) => type === 'operator.message').map(({ title }) => title)).toEqual([
      `Maintenance of ${data.name}`,
    ]);
    expect(await audited('tenant.message')).toMatchObject([
      { tenant_id: school.id, changes: { title: { after: message.title }, sent: { after: 2 } } },
    ]);
  });

  test('is refused for a closed or unknown school, without a text, and from a user of a school', async () => {
    const closed = await service.school();
    await operator.post(`${path}/${closed.id}/suspend`);
    const send = (id: number, body: object, status: number) => operator.post(`${path}/${id}/message`, body, status);
    expect((await send(closed.id, message, 409)).message).toBe('This school is suspended, so it gets no messages.');
    expect((await send(987_654, message, 404)).error).toBe('not_found');
    expect((await send(school.id, { title: ' ', message: 'x' }, 400)).details[0]?.path).toBe('title');
    expect((await send(school.id, { title: 'x' }, 400)).details[0]?.path).toBe('message');
    expect((await school.admin.post(`${path}/${school.id}/message`, message, 403)).error).toBe('forbidden');
    expect(await audited('tenant.message')).toHaveLength(1);
  });
});
