import { jpeg, png } from '../../support/fixtures/pictures.ts';
import { mailTo } from '../../support/fakes/mail.ts';
import { testPassword, type TestService } from '../../support/server/service.ts';
import { endpoints, type Login, nameOf, objects, type SpecificationClient } from '../client.ts';
import { day, nextYear, year } from './days.ts';
import { contactEmail } from './operator.ts';

const picture = (content: Buffer, type: string): [Blob, string] => [
  new Blob([new Uint8Array(content)], { type }),
  type.replace('image/', 'picture.'),
];

/** Sets the password of an invited user, and logs them in. */
export async function acceptInvitation(
  client: SpecificationClient,
  service: TestService,
  tenantId: number,
  email: string,
): Promise<Login> {
  const { token } = await mailTo(service, email, 'Your account');
  await client.call('POST /api/auth/password/reset', { bodyNotShown: { token, password: testPassword } });
  return client.login({ email, password: testPassword, tenant_id: tenantId }, tenantId);
}

/** The first admin of the school logs in, renews the login and edits the profile. */
export async function logIn(
  client: SpecificationClient,
  service: TestService,
  { tenantId, subdomain, features }: { tenantId: number; subdomain: string; features: string[] },
): Promise<Login> {
  const login = 'POST /api/auth/login';
  await acceptInvitation(client, service, tenantId, contactEmail);
  const credentials = { email: contactEmail, password: testPassword };
  const admin = await client.login({ ...credentials, subdomain }, tenantId);
  client.check(
    login,
    features.every((feature) => admin.enabledFeatures.includes(feature)),
    `enabled_features lacks features of the plan: ${admin.enabledFeatures.join()}`,
  );
  await client.refused(login, { body: { ...credentials, password: 'a wrong password', subdomain } });
  await client.refused('GET /api/students');

  // The client of the specification keeps its first refresh token: only a login returns one.
  for (let time = 0; time < 3; time++) {
    const accessToken = (await client.call('POST /api/auth/refresh', { as: admin })).text('access_token');
    await client.call('GET /api/auth/profile', { as: { ...admin, accessToken } });
  }

  await client.call('PUT /api/auth/profile', {
    as: admin,
    body: { first_name: 'Ada', last_name: 'Admin', phone: '+234 1 234' },
  });
  await client.call('PUT /api/auth/profile', { as: admin, body: { phone: '+234 5 678' } });
  const setPicture = 'POST /api/auth/profile/picture';
  const { accepts = [], max_bytes = 0 } = endpoints.find((endpoint) => nameOf(endpoint) === setPicture) ?? {};
  for (const type of accepts)
    await client.call(setPicture, {
      as: admin,
      form: { picture: picture(type === 'image/png' ? png : jpeg, type) },
    });
  const ofSize = (bytes: number) => picture(Buffer.concat([jpeg], bytes), 'image/jpeg');
  await client.call(setPicture, { as: admin, form: { picture: ofSize(max_bytes) } });
  await client.refused(setPicture, { as: admin, form: { picture: ofSize(max_bytes + 1) } });
  await client.refused(setPicture, { as: admin, form: { picture: picture(Buffer.from('GIF89a'), 'image/gif') } });
  const profile = await client.call('GET /api/auth/profile', { as: admin });
  client.check(setPicture, profile.text('profile_picture_url') !== '', 'the profile shows no picture');
  const enabled = JSON.stringify((await client.call('GET /api/auth/enabled-features', { as: admin })).data);
  client.check(
    'GET /api/auth/enabled-features',
    features.every((feature) => enabled.includes(feature)),
    `lacks features of the plan: ${enabled}`,
  );

  await client.call('POST /api/auth/password/forgot', { bodyNotShown: { email: contactEmail, subdomain } });
  const { token } = await mailTo(service, contactEmail, 'Reset your password');
  const password = `new ${testPassword}`;
  await client.call('POST /api/auth/password/reset', { bodyNotShown: { token, password } });
  return client.login({ ...credentials, password, subdomain }, tenantId);
}

/** The admin goes through the setup of the school. */
export async function setUp(client: SpecificationClient, as: Login) {
  const status = 'GET /api/school-setup/status';
  client.check(status, (await client.call(status, { as })).record['is_complete'] === false, 'is complete at once');
  const info = { name: 'First Year School', address: '1 School Lane', phone: '+234 1 234' };
  const url = `data:image/png;base64,${png.toString('base64')}`;
  for (const logo of ['https://school.example/logo.png', url, null])
    await client.call('POST /api/school-setup/school-info', { as, body: { ...info, logo } });
  const { id: yearId } = await client.call('POST /api/school-setup/academic-year', {
    as,
    body: { name: 'First year', ...year },
  });
  await client.call('POST /api/school-setup/grades', {
    as,
    body: {
      grades: [
        { name: 'Grade 1', sequence: 1 },
        { name: 'Grade 2', sequence: 2 },
      ],
    },
  });
  await client.call('POST /api/school-setup/complete', { as });
  client.check(status, (await client.call(status, { as })).record['is_complete'] === true, 'is never complete');
  const grades = (await client.call('GET /api/grades', { as })).records;
  const gradeOf = (name: string) => Number(grades.find((grade) => grade['name'] === name)?.['id'] ?? 0);
  return { yearId, gradeId: gradeOf('Grade 1'), nextGradeId: gradeOf('Grade 2') };
}

/** The admin adds the next year and terms. Answers the id of the next year. */
export async function planYears(client: SpecificationClient, as: Login, yearId: number): Promise<number> {
  const next = await client.call('POST /api/academics/years', { as, body: { name: 'Second year', ...nextYear } });
  await client.call('PUT /api/academics/years/{id}', {
    as,
    path: { id: next.id },
    body: { name: 'The next year', ...nextYear },
  });
  await client.call('PUT /api/academics/years/{id}', { as, path: { id: next.id }, body: { name: 'Next year' } });
  await client.call('GET /api/academics/years/{id}', { as, path: { id: next.id } });
  await client.list('GET /api/academics/years', { as, search: 'Next' });
  const spare = await client.call('POST /api/academics/years', {
    as,
    body: { name: 'Spare year', start_date: day(630), end_date: day(900) },
  });
  await client.call('DELETE /api/academics/years/{id}', { as, path: { id: spare.id } });
  await client.call('GET /api/academics/overview', { as });
  await client.call('GET /api/academics/overview', { as, query: { academic_year_id: yearId } });

  const term = await client.call('POST /api/academic-terms', {
    as,
    bodyNotShown: { name: 'First term', academic_year_id: yearId, start_date: day(-100), end_date: day(20) },
  });
  const spareTerm = await client.call('POST /api/academic-terms', {
    as,
    bodyNotShown: { name: 'Second term', academic_year_id: yearId, start_date: day(21), end_date: day(120) },
  });
  await client.call('GET /api/academic-terms/{id}', { as, path: { id: term.id } });
  await client.call('PUT /api/academic-terms/{id}', { as, path: { id: term.id }, bodyNotShown: { name: 'Term 1' } });
  await client.list('GET /api/academic-terms', { as, search: 'Term 1', filters: [{ academic_year_id: yearId }] });
  await client.call('DELETE /api/academic-terms/{id}', { as, path: { id: spareTerm.id } });
  return next.id;
}

/** The admin keeps the master data. Answers the id of a subject context. */
export async function keepMasterData(client: SpecificationClient, as: Login): Promise<number> {
  const ids = new Map<string, number>();
  for (const { path } of endpoints.filter(({ section, method }) => section === 'Master data' && method === 'POST')) {
    const { id } = await client.call(`POST ${path}`, { as, bodyNotShown: { name: 'First' } });
    const spare = await client.call(`POST ${path}`, { as, bodyNotShown: { name: 'Second' } });
    await client.call(`PUT ${path}/{id}`, { as, path: { id }, bodyNotShown: { name: 'Renamed' } });
    await client.list(`GET ${path}`, { as, search: 'Renamed' });
    await client.call(`DELETE ${path}/{id}`, { as, path: { id: spare.id } });
    ids.set(path, id);
  }
  return ids.get('/api/subject-contexts') ?? 0;
}

/** The admin adds roles and users. Answers the id of the role of students. */
export async function addUsers(
  client: SpecificationClient,
  service: TestService,
  as: Login,
  subdomain: string,
): Promise<number> {
  const permissions = await client.call('GET /api/rbac/permissions', { as });
  const documented = [
    ...(objects['Permission']?.enum ?? []),
    ...endpoints.flatMap(({ permission }) => permission ?? []),
  ];
  const listed = JSON.stringify(permissions.data);
  for (const permission of documented)
    client.check(
      'GET /api/rbac/permissions',
      listed.includes(`"${String(permission)}"`),
      `does not list ${String(permission)}`,
    );
  const permission_ids = permissions.records.slice(0, 3).map(({ id }) => Number(id));
  const role = { name: 'Librarian', description: 'Runs the library', permission_ids };
  const { id: roleId } = await client.call('POST /api/rbac/roles', { as, body: role });
  const spareRole = await client.call('POST /api/rbac/roles', { as, body: { ...role, name: 'Spare' } });
  await client.call('GET /api/rbac/roles/{id}', { as, path: { id: roleId } });
  await client.call('PUT /api/rbac/roles/{id}', {
    as,
    path: { id: roleId },
    body: { ...role, description: 'Runs the library and its café', permission_ids: permission_ids.slice(1) },
  });
  await client.call('PUT /api/rbac/roles/{id}', { as, path: { id: roleId }, body: { description: 'Books' } });
  const roles = await client.list('GET /api/rbac/roles', { as, search: 'Librarian' });
  await client.call('DELETE /api/rbac/roles/{id}', { as, path: { id: spareRole.id } });

  const emails = ['one', 'two'].map((name) => `${name}@${subdomain}.example`);
  const ids: number[] = [];
  for (const email of emails)
    ids.push(
      (
        await client.call('POST /api/users', {
          as,
          bodyNotShown: { email, first_name: 'Lib', last_name: 'Rarian', password: testPassword, role_ids: [roleId] },
        })
      ).id,
    );
  const [id = 0, spare = 0] = ids;
  const tokens = await Promise.all(
    emails.map(async (email) => (await mailTo(service, email, 'Verify your email address')).token),
  );
  await client.call('GET /api/auth/email/verify', { query: { token: tokens[0] ?? '' } });
  await client.call('POST /api/auth/email/verify', { body: { token: tokens[1] ?? '' } });
  await client.call('GET /api/users/{id}', { as, path: { id } });
  await client.call('PUT /api/users/{id}', { as, path: { id }, bodyNotShown: { first_name: 'Libby' } });
  await client.list('GET /api/users', { as, search: 'Libby', filters: [{ role_id: roleId }] });
  await client.call('DELETE /api/users/{id}', { as, path: { id: spare } });

  const teacherRole = Number(roles.records.find(({ name }) => name === 'teacher')?.['id'] ?? 0);
  const path = { user_id: id };
  const rolesOfUser = async () =>
    (await client.call('GET /api/rbac/users/{user_id}/roles', { as, path })).records.map((each) => each['id']);
  await client.call('POST /api/rbac/users/{user_id}/roles', { as, path, body: { role_id: teacherRole } });
  client.check('POST /api/rbac/users/{user_id}/roles', (await rolesOfUser()).includes(teacherRole), 'has no effect');
  await client.list('GET /api/rbac/users/{user_id}/roles', { as, path, search: 'Librarian' });
  await client.call('DELETE /api/rbac/users/{user_id}/roles/{role_id}', {
    as,
    path: { ...path, role_id: teacherRole },
  });
  client.check(
    'DELETE /api/rbac/users/{user_id}/roles/{role_id}',
    !(await rolesOfUser()).includes(teacherRole),
    'has no effect',
  );
  return Number(roles.records.find(({ name }) => name === 'student')?.['id'] ?? 0);
}
