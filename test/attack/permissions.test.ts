import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { platformKind, platformRecords } from '../support/fixtures/platform-records.ts';
import { passwords } from '../../src/domain/passwords.ts';
import { createOperator } from '../../src/database/operator.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { isUpdate, readOnlyFields } from '../../src/http/body/validate.ts';
import type { Client } from '../support/client/client.ts';
import { populate } from '../support/fixtures/populate.ts';
import {
  findErrors,
  isForSchools,
  multipart,
  type Registered,
  isForOperators,
  registry,
  sampleBody,
  sampleFile,
  sampleRequest,
} from '../support/server/registry.ts';
import { operatorEmail, type School, testPassword, testService } from '../support/server/service.ts';
import { checksums } from '../support/database/traces.ts';
import { numbered, share } from '../support/client/share.ts';
import { type Answered, envelopeError, errorMismatch, send } from '../support/client/wire.ts';
import { endpoints as specified } from '../specification/client.ts';

const service = await testService();
afterAll(() => service.close());
const { endpoints, document } = await registry(service);
/** Endpoints that nobody can call without their permission. */
const guarded = endpoints.filter(({ operation }) => operation.permission !== null && operation.open_to === null);
const permissions = [...new Set(guarded.flatMap(({ operation }) => operation.permission ?? []))].sort();

/** The id of the one record in every table of the school. */
const id = 500_001;

interface Probe {
  client: Client & { id: number; email: string };
  /** Gives the role exactly these permissions, through the API. */
  may: (names: string[]) => Promise<void>;
}

let school: School;
/** A school whose records no test changes: other tests delete records and generate a timetable. */
let untouched: School;
let allPermissions: { id: number; name: string }[];

/** A user whose only role can be given any permissions. */
async function probe(of: School, name: string): Promise<Probe> {
  const { data: role } = await of.admin.post<{ id: number }>('/api/rbac/roles', { name }, 201);
  const client = await of.user([name]);
  return {
    client,
    may: async (names) => {
      const permission_ids = allPermissions
        .filter((permission) => names.includes(permission.name))
        .map((permission) => permission.id);
      const { data } = await of.admin.put<{ permissions: string[] }>(`/api/rbac/roles/${role.id}`, { permission_ids });
      expect([...data.permissions].sort()).toEqual([...names].sort());
    },
  };
}

/** A valid request, for an existing record by default. */
const sendRequest = (endpoint: Registered, token: string, at = id) =>
  send(service.url, { ...sampleRequest(document, endpoint, { id: at }), token });

beforeAll(async () => {
  school = await service.school();
  await populate(service, school, { endpoints, document }, id - 1, 'School');
  untouched = await service.school();
  await populate(service, untouched, { endpoints, document }, id - 1, 'Untouched');
  allPermissions = (await school.admin.get<typeof allPermissions>('/api/rbac/permissions')).data;
});

describe('permissions', () => {
  test('every school endpoint needs a permission or a role, except for own data, lists of names and the setup', () => {
    // The names are listed by hand, here and in the next test, so that nobody opens an operation by mistake.
    const open = endpoints.filter(
      ({ operation }) => operation.access === 'tenant' && operation.permission === null && operation.role === null,
    );
    const lists = [
      'grades',
      'school_units',
      'programmes',
      'mediums',
      'religions',
      'subject_contexts',
      'document_types',
    ];
    expect(open.map(({ operation }) => operation.name)).toEqual([
      ...['me_children_list', 'me_children_dashboard'],
      ...[
        'teachers_me',
        'teachers_me_classes',
        'attendance_my_classes',
        'attendance_calendar_holidays',
        'rooms_list',
        'rooms_get',
        'timetable_config_get',
        'schedule_today',
        'schedule_feeds_list',
        'schedule_feeds_get',
        'schedule_feeds_delete',
        ...[
          'notifications_list',
          'notifications_stream',
          'notifications_stream_token',
          'notifications_read_all',
          'notifications_delete',
          'notifications_read',
        ],
        'holidays_list',
        'holidays_get',
      ],
      ...[
        'rbac_permissions_list',
        'school_setup_status',
        'school_setup_logo',
        'devices_register',
        'devices_web_push_key',
        'devices_delete',
      ],
      ...lists.flatMap((list) => [`${list}_list`, `${list}_get`]),
    ]);
    expect(
      endpoints
        .filter(({ operation }) => operation.access === 'any' && !operation.name.startsWith('auth_'))
        .map(({ name }) => name),
    ).toEqual([]);
    expect(permissions.length).toBeGreaterThan(8);
  });

  test('an operation for staff or for everyone admits users without its permission, but students only if it is for everyone', async () => {
    const open = endpoints.filter(({ operation }) => operation.open_to !== null);
    expect(open.map(({ operation }) => [operation.name, operation.open_to, operation.writes])).toEqual([
      ['students_absences_list', 'everyone', false],
      ['students_guardians_list', 'everyone', false],
      ['students_guardians_get', 'everyone', false],
      ['guardians_preferences_get', 'everyone', false],
      ['guardians_list', 'everyone', false],
      ['guardians_get', 'everyone', false],
      ['students_promotion_preview', 'staff', false],
      ['students_documents_list', 'everyone', false],
      ['students_documents_get', 'everyone', false],
      ['students_documents_file', 'everyone', false],
      ['attendance_class', 'everyone', false],
      ['attendance_class_summary', 'everyone', false],
      ['attendance_student', 'everyone', false],
      ['attendance_absences_list', 'everyone', false],
      ['timetable_slots_list', 'everyone', false],
      ['timetable_slots_get', 'everyone', false],
      ['timetable_check_conflicts', 'staff', false],
      ['timetable_print', 'everyone', false],
      ['schedule_week', 'everyone', false],
      ['schedule_class', 'everyone', false],
      ['notification_templates_list', 'everyone_staff_all', false],
      ['notification_templates_get', 'everyone_staff_all', false],
      ['dashboard_get', 'everyone', false],
    ]);
    const staff = await probe(school, 'Without permissions');
    const nobody = await school.user([]);
    const addStudent = async (...roles: string[]) => {
      const { id: user_id, email } = await school.user(['student', ...roles]);
      const admission_number = `user ${user_id}`;
      await school.insert('student', { first_name: 'Stu', last_name: 'Dent', admission_number, user_id });
      // A log-in reads which student the user is.
      return service.anonymous.login({ tenant_id: school.id, email, password: testPassword });
    };
    const [student, studentWithRole] = [await addStudent(), await addStudent('Without permissions')];
    const outcome = async (endpoint: Registered, token: string) =>
      (await sendRequest(endpoint, token)).status === 403 ? 'refused' : 'admitted';
    for (const endpoint of open) {
      const isForStaff = endpoint.operation.open_to === 'staff';
      expect([endpoint.name, await outcome(endpoint, staff.client.token)]).toEqual([endpoint.name, 'admitted']);
      for (const { token } of [nobody, student, studentWithRole])
        expect([endpoint.name, await outcome(endpoint, token)]).toEqual([
          endpoint.name,
          isForStaff ? 'refused' : 'admitted',
        ]);
    }
  });

  describe('a user whose role has every permission but one', () => {
    let all: Probe;
    beforeAll(async () => {
      all = await probe(school, 'All but one');
    });

    test.each(permissions)('%s is refused by everything that needs it, and nothing changes', async (permission) => {
      await all.may(allPermissions.map(({ name }) => name).filter((name) => name !== permission));
      const before = await checksums(service.database, school.schema, 'platform');
      const lines = await findErrors(
        guarded.filter(({ operation }) => operation.permission === permission),
        async (endpoint) => {
          const answer = await sendRequest(endpoint, all.client.token);
          const fault = errorMismatch(answer, 403, 'forbidden');
          return (
            fault ??
            (answer.json?.message === `This needs the permission ${permission}.`
              ? undefined
              : `says ${answer.json?.message ?? ''}`)
          );
        },
      );
      expect(lines).toEqual([]);
      expect(await checksums(service.database, school.schema, 'platform')).toEqual(before);
    });
  });

  describe('a user whose role has one permission', () => {
    let only: Probe;
    beforeAll(async () => {
      only = await probe(school, 'One alone');
    });

    test.each(numbered(permissions))(
      '%s admits a user to every operation that needs it, and to no other',
      async (permission, n) => {
        await only.may([permission]);
        const others = share(permissions, n, 4)
          .filter((name) => name !== permission)
          .map((name) => guarded.find(({ operation }) => operation.permission === name));
        const lines = await findErrors(
          [
            ...endpoints.filter(({ operation }) => operation.permission === permission),
            ...others.filter((endpoint) => endpoint !== undefined),
          ],
          async (endpoint) => {
            // A record that does not exist: an admitted request must not change the data of the next test.
            const answer = await sendRequest(endpoint, only.client.token, 999_999_999);
            if (endpoint.operation.permission !== permission) return errorMismatch(answer, 403, 'forbidden');
            if (endpoint.route.response.kind === 'page' && endpoint.parameters.length === 0 && answer.status !== 200)
              return `is a list and returned ${answer.status} ${answer.text}`;
            return answer.json?.message?.startsWith('This needs')
              ? `answered ${answer.status} ${answer.text}`
              : envelopeError(answer);
          },
        );
        expect(lines).toEqual([]);
      },
    );
  });

  test('an operation for one role is refused to everyone without it, including the admin', async () => {
    const ofRoles = endpoints.filter(({ operation }) => operation.role !== null);
    const nobody = await school.user([]);
    for (const token of [school.admin.token, nobody.token]) {
      expect(
        await findErrors(ofRoles, async (endpoint) =>
          errorMismatch(await sendRequest(endpoint, token), 403, 'forbidden'),
        ),
      ).toEqual([]);
    }
    expect(ofRoles.length).toBeGreaterThan(0);
  });

  test('a user without a role is refused wherever a permission is needed, but can read their own profile', async () => {
    const nobody = await school.user([]);
    const lines = await findErrors(
      endpoints.filter(({ operation }) => operation.permission !== null && [null, 'staff'].includes(operation.open_to)),
      async (endpoint) => errorMismatch(await sendRequest(endpoint, nobody.token), 403, 'forbidden'),
    );
    expect(lines).toEqual([]);
    expect(
      (await nobody.get<{ id: number; permissions: string[]; roles: string[] }>('/api/auth/profile')).data,
    ).toMatchObject({
      id: nobody.id,
      permissions: [],
      roles: [],
    });
  });

  describe('a change of rights takes effect at the next request, with the same token', () => {
    interface Who {
      permissions: string[];
      roles: string[];
    }

    test('a permission that a role gains and loses', async () => {
      const { client, may } = await probe(school, 'Gains and loses');
      await client.get('/api/students', 403);
      await may(['student.read']);
      expect((await client.get<{ id: number }[]>('/api/students')).data.map((student) => student.id)).toContain(id);
      await may([]);
      expect((await client.get('/api/students', 403)).error).toBe('forbidden');
    });

    test('a role that a user gains and loses', async () => {
      const client = await school.user([]);
      const { data: roles } = await school.admin.get<{ id: number; name: string }[]>('/api/rbac/roles?pageSize=100');
      const accountant = roles.find(({ name }) => name === 'accountant')?.id ?? 0;
      await client.get('/api/students', 403);
      await school.admin.post(`/api/rbac/users/${client.id}/roles`, { role_id: accountant });
      expect((await client.get<Who>('/api/auth/profile')).data.roles).toEqual(['accountant']);
      await client.get('/api/students', 200);
      await school.admin.delete(`/api/rbac/users/${client.id}/roles/${accountant}`);
      await client.get('/api/students', 403);
    });

    test('role_ids that a change of the user sets', async () => {
      const client = await school.user(['teacher']);
      await client.get('/api/students', 200);
      await school.admin.put(`/api/users/${client.id}`, { role_ids: [] });
      expect((await client.get<Who>('/api/auth/profile')).data).toMatchObject({ permissions: [], roles: [] });
      await client.get('/api/students', 403);
    });

    test('a refreshed token has the current rights, not those at login', async () => {
      const client = await school.user(['teacher']);
      await school.admin.put(`/api/users/${client.id}`, { role_ids: [] });
      const refreshed = await send(service.url, {
        method: 'POST',
        path: '/api/auth/refresh',
        headers: { 'x-refresh-token': client.refreshToken },
      });
      const { access_token } = refreshed.json?.data as { access_token: string };
      expect(
        errorMismatch(await send(service.url, { path: '/api/students', token: access_token }), 403, 'forbidden'),
      ).toBeUndefined();
    });
  });

  test('the name of a custom role gives no rights', async () => {
    for (const name of ['custom:admin', 'Admin ', 'аdmin', 'platform admin', '{admin}', 'admin,admin', '*']) {
      const answer = await school.admin.send<{ id: number }>('POST', '/api/rbac/roles', { body: { name } });
      if (answer.status === 409) continue; // "Admin " is trimmed, and that name is in use.
      expect(answer.status).toBe(201);
      const client = await school.user([name.trim()]);
      expect((await client.get<{ permissions: string[] }>('/api/auth/profile')).data.permissions).toEqual([]);
      await client.get('/api/users', 403);
      await client.get('/api/platform/tenants', 403);
    }
  });
});

/** A value of the same JSON type that differs. A timestamp becomes one that no record of the test has. */
function changed(value: unknown): unknown {
  if (typeof value === 'string') return /^\d{4}-\d\d-\d\dT/.test(value) ? '2001-02-03T04:05:06Z' : `${value}x`;
  if (Array.isArray(value)) return [...(value as unknown[]), 'changed'];
  if (value !== null && typeof value === 'object') return { ...value, changed: true };
  if (typeof value === 'number') return value + 1;
  return value === null ? 'changed' : !value;
}

/** The fields of an object, or of the entries of a list. */
function fieldsOf(schema: object): string[] {
  if ('element' in schema) return fieldsOf(schema.element as object);
  return 'shape' in schema ? Object.keys(schema.shape as object) : [];
}

/** The error of a request that must be refused with a detail for `field`. */
const unnamed = (answer: Answered, field: string) =>
  errorMismatch(answer, 400, 'validation_error') ??
  (answer.json?.details?.some(({ path }) => path === field) ? undefined : answer.text);

describe('a GET whose access in the specification is only a valid token', () => {
  const shape = (method: string, path: string) => `${method} ${path.replace(/[<{]\w+[>}]/g, '{}')}`;
  const promised = specified
    .filter(({ method, access }) => method === 'GET' && access === 'required')
    .map(({ method, path }) => {
      const endpoint = endpoints.find((each) => shape(each.method, each.path) === shape(method, path));
      if (!endpoint) throw new Error(`There is no ${method} ${path}.`);
      return endpoint;
    })
    // A stream does not end.
    .filter(({ route }) => route.response.kind !== 'stream');
  /** These, and the operations beside them that show the same rows. */
  const open = [
    ...promised,
    ...endpoints.filter((each) => each.method === 'GET' && each.operation.open_to !== null && !promised.includes(each)),
  ];

  /** A user with these roles who is linked to a new record, in the class with the id if `isInClass`. */
  async function linked(table: 'student' | 'teacher', roles: string[], isInClass = false): Promise<Client> {
    const { id: user_id, email } = await untouched.user(roles);
    await untouched.insert(table, {
      first_name: 'Linked',
      last_name: 'Record',
      user_id,
      ...(table === 'student' ? { admission_number: `linked ${user_id}`, class_id: isInClass ? id : null } : {}),
    });
    // A log-in reads which student the user is.
    return service.anonymous.login({ tenant_id: untouched.id, email, password: testPassword });
  }

  test('is never refused to a user of the school, and shows no row to a user without the permission', async () => {
    expect(promised.map(({ operation }) => operation.name)).toEqual(
      expect.arrayContaining(['students_documents_list', 'timetable_slots_list', 'timetable_config_get']),
    );
    const people: Record<string, Client> = {
      'no role': await untouched.user([]),
      'a role without permissions': await untouched.user([await untouched.role()]),
      teacher: await untouched.user(['teacher']),
      accountant: await untouched.user(['accountant']),
      transport_manager: await untouched.user(['transport_manager']),
      student: await untouched.user(['student']),
      'a student with a record': await linked('student', ['student']),
      'a student with a record and no role': await linked('student', []),
      'a teacher with a record': await linked('teacher', ['teacher']),
      'a teacher with a record and no role': await linked('teacher', []),
    };
    const lines: string[] = [];
    for (const [name, { token }] of Object.entries(people)) {
      const profile = await send(service.url, { path: '/api/auth/profile', token });
      const { permissions: held, roles } = profile.json?.data as { permissions: string[]; roles: string[] };
      const isStaff = roles.some((role) => role !== 'student');
      for (const endpoint of open) {
        const answer = await sendRequest(endpoint, token);
        const { permission, open_to: openTo } = endpoint.operation;
        if (![200, 400, 404].includes(answer.status))
          lines.push(`${name}: ${endpoint.name} answered ${answer.status} ${answer.text.slice(0, 200)}`);
        const hidesRows =
          permission !== null && !held.includes(permission) && !(openTo === 'everyone_staff_all' && isStaff);
        // The current year and the holidays are no secret.
        const shown = answer.text.replaceAll(
          /"(academic_year(_id)?|holiday|upcoming_holidays)" ?: ?(\d+|\{[^}]*\}|\[[^\]]*\])/g,
          '',
        );
        if (hidesRows && answer.status === 200 && shown.includes(String(id)))
          lines.push(`${name}: ${endpoint.name} shows ${answer.text.slice(0, 300)}`);
      }
    }
    expect(lines).toEqual([]);
    // The records exist, so the answers above hide them.
    const hidden = open.filter(({ operation }) => operation.permission !== null);
    expect(
      await findErrors(hidden, async (endpoint) => {
        const answer = await sendRequest(endpoint, untouched.admin.token);
        return answer.status === 200 && (answer.json === undefined || answer.text.includes(String(id)))
          ? undefined
          : `answered the admin ${answer.status} ${answer.text.slice(0, 200)}`;
      }),
    ).toEqual([]);
  });

  test('shows their own rows, and no others, to a student without any permission', async () => {
    const student = await linked('student', [], true);
    const { data: profile } = await student.get<{ permissions: string[] }>('/api/auth/profile');
    expect(profile.permissions).toEqual([]);
    const slots = await student.get<{ id: number }[]>('/api/timetable/slots');
    expect(slots.data.map((slot) => slot.id)).toContain(id);
    const marks = await student.get<{ student_name: string }[]>(`/api/attendance/class/${id}`);
    expect(marks.data.map((mark) => mark.student_name)).toEqual(['Linked Record']);
    await student.get(`/api/students/${id}/documents`, 404);
    await student.get(`/api/attendance/student/${id}`, 404);
  });

  test('still needs the permission of an API key, as do the writes beside it', async () => {
    const { token } = await untouched.user([]);
    const writes = specified
      .filter(({ method, access }) => method !== 'GET' && access === 'required')
      .map(({ method, path }) => endpoints.find((each) => shape(each.method, each.path) === shape(method, path)))
      .filter((endpoint) => endpoint !== undefined)
      .filter(({ operation }) => operation.permission !== null);
    expect(writes.length).toBeGreaterThan(9);
    expect(
      await findErrors(writes, async (endpoint) => errorMismatch(await sendRequest(endpoint, token), 403, 'forbidden')),
    ).toEqual([]);
    for (const { documented, operation } of [...open, ...writes]) {
      if (operation.permission === null) continue;
      expect(documented['x-permission']).toBe(operation.permission);
      expect(documented.description).toContain(`\`${operation.permission}\``);
    }
  });
});

describe('read-only fields', () => {
  test('no update of any record changes a read-only field, alone or in the whole record', async () => {
    const ids: Record<string, number> = await platformRecords(service, school);
    const updates = endpoints.filter(
      ({ route, method }) => isUpdate(route, method) && readOnlyFields(route, method).length > 0,
    );
    expect(updates.length).toBeGreaterThan(35);
    const lines: string[] = [];
    for (const endpoint of updates) {
      const { name, method, path, route, operation } = endpoint;
      const token = isForOperators({ operation }) ? service.operator.token : untouched.admin.token;
      const parameter = isForOperators({ operation }) ? (ids[platformKind(path)] ?? id) : id;
      const at = path.replace('{key}', 'holiday.added').replaceAll(/\{\w+\}/g, String(parameter));
      const read = async () => {
        const { status, json } = await send(service.url, { path: at, token });
        return status === 200 ? (json?.data as Record<string, unknown>) : undefined;
      };
      // Without a GET of the same path, an update that changes nothing returns the record.
      const required = sampleBody(document, endpoint, { id }) as Record<string, unknown>;
      const update = (body: object) => send(service.url, { method, path: at, token, body });
      const record = (await read()) ?? ((await update(required)).json?.data as Record<string, unknown> | undefined);
      if (!record) {
        lines.push(`${name} has no record`);
        continue;
      }
      for (const field of readOnlyFields(route, method)) {
        const value = changed(record[field]);
        for (const body of [
          { ...required, [field]: value },
          { ...record, [field]: value },
        ]) {
          const answer = await update(body);
          const after = (await read()) ?? (answer.json?.data as Record<string, unknown> | undefined) ?? record;
          const isRefused = unnamed(answer, field) === undefined;
          if (!isRefused && isDeepStrictEqual(after[field], value))
            lines.push(`${name} ${field} of ${String(Object.keys(body).length)}: ${answer.text}`);
        }
      }
    }
    expect(lines).toEqual([]);
  });

  test('no create, action or replaced list accepts a field that only its response has', async () => {
    const lines: string[] = [];
    let count = 0;
    for (const endpoint of endpoints) {
      const { body, response } = endpoint.route;
      if ((isUpdate(endpoint.route, endpoint.method) && 'shape' in (body ?? {})) || !body || !('data' in response))
        continue;
      const [given, returned] = [fieldsOf(body), fieldsOf(response.data)];
      const token = isForOperators(endpoint) ? service.operator.token : untouched.admin.token;
      for (const field of returned.filter((one) => !given.includes(one))) {
        const { upload } = endpoint.route;
        const request = sampleRequest(document, endpoint, { id });
        const sample = sampleBody(document, endpoint, { id });
        const sent =
          upload && upload.isOptional !== true
            ? multipart(upload.fields[0] ?? 'file', ...sampleFile(upload.types), { [field]: 'none' })
            : {
                body: Array.isArray(sample)
                  ? [{ ...(sample[0] as object), [field]: 'none' }]
                  : { ...sample, [field]: 'none' },
              };
        const refused = await send(service.url, { method: endpoint.method, path: request.path, ...sent, token });
        const fault = unnamed(refused, Array.isArray(sample) ? `0.${field}` : field);
        count += 1;
        // Entries of a list may have derived fields, which are ignored. A create fails earlier if the school has such a record.
        const isHarmless =
          (refused.status === 409 && response.kind === 'created') || (Array.isArray(sample) && refused.status === 200);
        if (fault && !isHarmless) lines.push(`${endpoint.name} ${field}: ${fault}`);
      }
    }
    expect(lines).toEqual([]);
    expect(count).toBeGreaterThan(200);
  });
});

describe('schools and operators', () => {
  const platform = endpoints.filter(isForOperators);

  test('every platform endpoint refuses the admin of a school, and nothing changes', async () => {
    const before = await checksums(service.database, school.schema, 'platform');
    // Both a record that exists in `platform` (the school itself, the first plan) and one that does not.
    for (const at of [school.id, 1, 999_999_999]) {
      expect(
        await findErrors(
          // It checks the password first.
          platform.filter(({ name }) => name !== 'POST /api/auth/two-factor/passkeys/options'),
          async (endpoint) => errorMismatch(await sendRequest(endpoint, school.admin.token, at), 403, 'forbidden'),
        ),
      ).toEqual([]);
    }
    expect(platform.length).toBeGreaterThan(10);
    expect(await checksums(service.database, school.schema, 'platform')).toEqual(before);
  });

  test('every school endpoint refuses an operator, even with X-Tenant-ID, and nothing changes', async () => {
    const before = await checksums(service.database, school.schema, 'platform');
    const schools = endpoints.filter(({ operation }) => operation.access === 'tenant');
    for (const headers of [{}, { 'x-tenant-id': String(school.id) }]) {
      const lines = await findErrors(schools, async (endpoint) => {
        const request = sampleRequest(document, endpoint, { id });
        return errorMismatch(
          await send(service.url, {
            ...request,
            headers: { ...request.headers, ...headers },
            token: service.operator.token,
          }),
          403,
          'forbidden',
        );
      });
      expect(lines).toEqual([]);
    }
    expect(schools.length).toBeGreaterThan(15);
    expect(await checksums(service.database, school.schema, 'platform')).toEqual(before);
  });

  test('every endpoint for administrators of the platform refuses an analyst, and nothing changes', async () => {
    const passwordHash = await passwords().hash(testPassword);
    const email = 'analyst@test.example';
    await withOwner(service.database.url, (owner) =>
      createOperator(owner, {
        email,
        passwordHash,
        firstName: 'Ana',
        lastName: 'Lyst',
        role: 'analyst',
        tenantIds: null,
      }),
    );
    const analyst = await service.anonymous.login({ is_platform: true, email, password: testPassword });
    const before = await checksums(service.database, school.schema, 'platform');
    for (const at of [school.id, 999_999_999]) {
      expect(
        await findErrors(
          platform.filter(({ operation }) => operation.access === 'platform'),
          async (endpoint) => errorMismatch(await sendRequest(endpoint, analyst.token, at), 403, 'forbidden'),
        ),
      ).toEqual([]);
    }
    expect(await checksums(service.database, school.schema, 'platform')).toEqual(before);
    expect((await analyst.get<{ roles: string[] }>('/api/auth/profile')).data.roles).toEqual(['analyst']);
  });

  test('an operator who becomes an analyst loses platform access at once, and a deactivated one all access', async () => {
    const passwordHash = await passwords().hash(testPassword);
    const email = 'demoted@test.example';
    await withOwner(service.database.url, (owner) =>
      createOperator(owner, {
        email,
        passwordHash,
        firstName: 'De',
        lastName: 'Moted',
        role: 'admin',
        tenantIds: null,
      }),
    );
    const demoted = await service.anonymous.login({ is_platform: true, email, password: testPassword });
    await demoted.get('/api/platform/plans', 200);
    await service.database.query("update platform.user_account set role = 'analyst' where email = $1", [email]);
    await demoted.get('/api/platform/plans', 403);
    await service.database.query('update platform.user_account set is_active = false where email = $1', [email]);
    await demoted.get('/api/auth/profile', 401);
    await service.operator.get('/api/platform/plans', 200);
  });

  test('an operator cannot log in to a school, and a school admin cannot log in to the platform', async () => {
    const wrongDoors = [
      { is_platform: true, email: school.adminEmail, password: testPassword },
      { tenant_id: school.id, email: operatorEmail, password: testPassword },
    ];
    for (const body of wrongDoors) {
      const answer = await send(service.url, { method: 'POST', path: '/api/auth/login', body });
      expect(errorMismatch(answer, 401, 'invalid_credentials')).toBeUndefined();
    }
  });

  test('the admin of a school is refused by no school endpoint', async () => {
    const fresh = await service.school();
    const forAdmins = endpoints.filter((endpoint) => isForSchools(endpoint) && endpoint.operation.role === null);
    const lines = await findErrors(forAdmins, async (endpoint) => {
      // These also need the right password or code.
      const needProof = ['auth_password_change', 'auth_totp_begin', 'auth_totp_confirm', 'auth_recovery_codes_create'];
      if (endpoint.operation.name === 'auth_logout' || needProof.includes(endpoint.operation.name)) return undefined;
      const answer = await sendRequest(endpoint, fresh.admin.token, 999_999_999);
      return answer.status === 403 || answer.status === 401 ? `answered ${answer.text}` : envelopeError(answer);
    });
    expect(lines).toEqual([]);
  });
});
