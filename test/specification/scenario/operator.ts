import { operatorEmail, testPassword } from '../../support/server/service.ts';
import { type Answer, type Login, resolved, objects, type SpecificationClient } from '../client.ts';
import { day } from './days.ts';

const features = (objects['PlanPayload']?.properties?.['features_json']?.properties?.['features']?.items?.examples ??
  []) as string[];

export const contactEmail = 'head@first-year.example';
const subdomain = 'first-year';

/** The documented fields of a record, as a form sends them back. */
const documentedFields = (object: string, { record }: Answer) =>
  Object.fromEntries(
    Object.keys(resolved({ $ref: `objects.json#/${object}` }).properties ?? {}).map((name) => [name, record[name]]),
  );

/** Updates a school as a form does that sends the whole record back. */
const sendBack = (client: SpecificationClient, as: Login, read: Answer, name: string) =>
  client.call('PUT /api/platform/tenants/{id}', {
    as,
    path: { id: read.id },
    body: { ...documentedFields('Tenant', read), name },
  });

/** The operator adds plans and two schools. */
export async function addSchool(client: SpecificationClient) {
  client.check('GET /api/health', (await client.call('GET /api/health')).text('status') !== '', 'has no status');
  const operator = await client.login({ is_platform: true, email: operatorEmail, password: testPassword });
  const [, payload = ''] = operator.accessToken.split('.');
  const claims = JSON.parse(Buffer.from(payload, 'base64url').toString() || '{}') as Record<string, unknown>;
  client.check(
    'POST /api/auth/login',
    claims['is_platform_admin'] === true && claims['user_id'] === operator.userId,
    `the token of an operator carries ${JSON.stringify(claims)}`,
  );
  await client.call('GET /api/auth/profile', { as: operator });

  const addPlan = (name: string, names = features) =>
    client.call('POST /api/platform/plans', {
      as: operator,
      body: { name, price_monthly: 49.5, max_students: 300, max_teachers: 40, features_json: { features: names } },
    });
  const plan = await addPlan('Village');
  const largerPlan = await addPlan('Town', [...features, 'library']);
  const spare = await addPlan('Spare', []);
  for (const feature of features)
    await client.call('PUT /api/platform/plans/{id}', {
      as: operator,
      path: { id: spare.id },
      body: { ...documentedFields('Plan', spare), price_monthly: 10, features_json: { features: [feature] } },
    });
  await client.call('PUT /api/platform/plans/{id}', {
    as: operator,
    path: { id: spare.id },
    body: { name: 'Spare 2' },
  });
  await client.list('GET /api/platform/plans', { as: operator, search: 'Village' });
  await client.call('DELETE /api/platform/plans/{id}', { as: operator, path: { id: spare.id } });

  const named = { id: plan.id, name: 'Village' };
  const school = await client.call('POST /api/platform/tenants', {
    as: operator,
    body: {
      name: 'First Year School',
      subdomain,
      plan: named,
      trial_ends_at: `${day(30)}T00:00:00Z`,
      contact_email: contactEmail,
      feature_flags: { transport: true },
    },
  });
  if (school.id === 0) throw new Error('The school was not created, so that nothing can happen in it.');
  const other = await client.call('POST /api/platform/tenants', {
    as: operator,
    body: {
      name: 'Other School',
      subdomain: 'other-school',
      plan: { id: plan.id },
      trial_ends_at: null,
      contact_email: 'head@other-school.example',
      feature_flags: {},
    },
  });
  await client.call('PUT /api/platform/tenants/{id}', {
    as: operator,
    path: { id: other.id },
    body: { plan: { id: largerPlan.id }, feature_flags: { transport: false, library: true } },
  });
  const read = await client.call('GET /api/platform/tenants/{id}', { as: operator, path: { id: school.id } });
  client.check(
    'GET /api/platform/tenants/{id}',
    Object.entries(read.record).some(([name, value]) => name.includes('audit') && Array.isArray(value)),
    'has no recent audit logs',
  );
  for (const name of ['First Year School', 'First Year School of Ada']) await sendBack(client, operator, read, name);
  for (const search of ['YEAR SCHOOL', subdomain.toUpperCase(), 'HEAD@FIRST'])
    await client.list('GET /api/platform/tenants', {
      as: operator,
      search,
      filters: [{ status: 'active' }],
      emptyFilters: [{ status: 'suspended' }],
    });
  return { operator, tenantId: school.id, otherTenantId: other.id, subdomain, features, largerPlanId: largerPlan.id };
}

/** The operator writes the settings and texts of notifications. */
export async function writeNotificationTexts(client: SpecificationClient, operator: Login) {
  await client.call('GET /api/platform/notification-settings', { as: operator });
  await client.call('PUT /api/platform/notification-settings', {
    as: operator,
    bodyNotShown: { sender_name: 'School Cloud' },
  });
  const { id } = await client.call('POST /api/platform/notification-templates', {
    as: operator,
    bodyNotShown: { key: 'holiday.added', channel: 'email', subject: 'A holiday', body: 'The school is closed.' },
  });
  await client.call('PUT /api/platform/notification-templates/{id}', {
    as: operator,
    path: { id },
    bodyNotShown: { body: 'The school is closed on this day.' },
  });
  await client.list('GET /api/platform/notification-templates', { as: operator, search: 'holiday' });
}

/** The operator corrects, suspends and activates the school, deletes the other one, and reads the audit log. */
export async function manageSchools(
  client: SpecificationClient,
  { operator, tenantId, otherTenantId }: Awaited<ReturnType<typeof addSchool>>,
  admin: Login,
) {
  const suspend = 'POST /api/platform/tenants/{id}/suspend';
  const activate = 'POST /api/platform/tenants/{id}/activate';
  const get = () => client.call('GET /api/platform/tenants/{id}', { as: operator, path: { id: tenantId } });
  const status = async () => (await get()).text('status');
  const read = await get();
  const stats = read.record['stats'] as Record<string, unknown> | undefined;
  client.check(
    'GET /api/platform/tenants/{id}',
    ['total_students', 'total_teachers', 'total_classes'].every((name) => Number(stats?.[name]) > 0),
    `counts ${JSON.stringify(stats)}`,
  );
  await sendBack(client, operator, read, 'First Year School');
  await client.call(suspend, { as: operator, path: { id: tenantId } });
  client.check(suspend, (await status()) === 'suspended', 'does not change the status');
  await client.list('GET /api/platform/tenants', {
    as: operator,
    search: 'first-year',
    filters: [{ status: 'suspended' }],
  });
  await client.refused('GET /api/auth/profile', { as: admin });
  await client.call(activate, { as: operator, path: { id: tenantId } });
  client.check(activate, (await status()) === 'active', 'does not change the status');
  await client.call('GET /api/auth/profile', { as: admin });
  await client.refused('GET /api/platform/tenants', { as: admin });
  await client.refused('GET /api/auth/profile', { as: { ...admin, tenantId: otherTenantId } });
  await client.call('DELETE /api/platform/tenants/{id}', { as: operator, path: { id: otherTenantId } });
  const { records } = await client.call('GET /api/platform/audit-logs', { as: operator });
  const action = records[0]?.['action'];
  await client.list('GET /api/platform/audit-logs', {
    as: operator,
    search: 'tenant',
    filters: [
      { tenant_id: tenantId },
      { from_date: day(-1), to_date: day() },
      { from_date: day(-1) },
      { to_date: day() },
      { action: typeof action === 'string' ? action : 'tenant.suspend' },
    ],
  });
}
