import { describe, expect, test } from '@jest/globals';
import { serviceWithSchool, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Template as TemplateSchema } from '../../src/endpoints/notification-templates.ts';

const { service, school } = await serviceWithSchool();
const path = '/api/notifications/templates';

type Template = OutputOf<typeof TemplateSchema>;

const exam = {
  title: 'Exam in {{exam}}',
  message: 'Dear {{first_name}}, the exam in {{ exam }} is on {{day}}.',
  variables: ['exam', 'day'],
};
const add = async (fields: object = {}) =>
  (await school.admin.post<Template>(path, { name: unique('Exam'), ...exam, ...fields }, 201)).data;
const errorOf = async (body: object, method = 'POST', url = path) => {
  const { status, details } = (await school.admin.send(method, url, { body })) as {
    status: number;
    details?: { path: string; message: string }[];
  };
  return [status, details?.[0]?.path, details?.[0]?.message];
};

describe('notification templates', () => {
  test('can be created, read, searched by title, updated in part, and deleted', async () => {
    const template = await add({ name: 'Zeta', title: 'Prüfung in {{exam}}' });
    expect(template).toMatchObject({
      name: 'Zeta',
      type: 'info',
      channels: ['in_app', 'push'],
      variables: ['exam', 'day'],
      event: null,
    });
    expect((await school.admin.get<Template>(`${path}/${template.id}`)).data).toEqual(template);
    expect((await school.admin.get<Template[]>(`${path}?search=prufung`)).data).toEqual([template]);
    const { data: changed } = await school.admin.put<Template>(`${path}/${template.id}`, {
      type: 'exam',
      channels: ['email'],
    });
    expect(changed).toMatchObject({ type: 'exam', channels: ['email'], title: template.title });
    expect((await school.admin.put<Template>(`${path}/${template.id}`, changed)).data).toMatchObject({ type: 'exam' });
    await school.admin.post(path, { ...exam, name: 'ZETA' }, 409);
    expect((await school.admin.delete<{ id: number }>(`${path}/${template.id}`)).data).toEqual({ id: template.id });
    await school.admin.get(`${path}/${template.id}`, 404);
  });

  test('may contain {{…}} that is not a placeholder, but cannot declare a built-in variable', async () => {
    const literal = await add({ name: 'Literal', title: '{{day}}', message: '{{who}} {{exam}}', variables: ['exam'] });
    expect(literal).toMatchObject({ title: '{{day}}', message: '{{who}} {{exam}}' });
    expect(await errorOf({ name: 'X', title: 'T', message: 'M', variables: ['first_name'] })).toEqual([
      400,
      'variables',
      'first_name is a built-in variable. Remove it from the list.',
    ]);
    expect((await errorOf({ name: 'X', title: 'T', message: 'M', variables: ['Exam'] })).slice(0, 2)).toEqual([
      400,
      'variables.0',
    ]);
    const template = await add();
    // A variable that is no longer declared is text.
    const { data: changed } = await school.admin.put<Template>(`${path}/${template.id}`, { variables: ['exam'] });
    expect(changed).toMatchObject({ variables: ['exam'], message: exam.message });
    expect((await school.admin.get<Template>(`${path}/${template.id}`)).data).toEqual(changed);
  });

  test('with the key of an event as name have the variables of the event, and no others', async () => {
    const event = {
      name: 'Attendance.Absent',
      title: '{{student_name}} fehlt',
      message: '{{student_name}} ({{class_name}}), {{date}}',
    };
    expect((await errorOf({ ...event, variables: ['exam'] })).slice(0, 2)).toEqual([400, 'variables']);
    const { data } = await school.admin.post<Template>(path, event, 201);
    expect(data).toMatchObject({ event: 'attendance.absent', variables: ['date', 'class_name', 'student_name'] });
    const found = (
      await school.admin.get<{ key: string; title: string; template_id: number | null }[]>('/api/notifications/events')
    ).data.find(({ key }) => key === 'attendance.absent');
    expect(found).toMatchObject({ title: event.title, template_id: data.id });
    // Under another name, the placeholders of the event are text.
    expect((await school.admin.put<Template>(`${path}/${data.id}`, { name: 'Absence' })).data).toMatchObject({
      event: null,
      variables: [],
    });
  });

  test('can be read by every role but student, which does not allow changing them', async () => {
    const { id } = await add();
    const sender = await school.user([await school.role('notification.send')]);
    expect((await sender.get<Template>(`${path}/${id}`)).data.id).toBe(id);
    await sender.put(`${path}/${id}`, { type: 'x' }, 403);
    await sender.post(path, { name: 'X', ...exam }, 403);
    await sender.delete(`${path}/${id}`, 403);
    expect((await (await school.user(['teacher'])).get<Template[]>(path)).data.map((one) => one.id)).toContain(id);
    const teacher = await school.user(['teacher']);
    expect((await teacher.get<Template>(`${path}/${id}`)).data.id).toBe(id);
    const student = await school.user(['student']);
    expect((await student.get<Template[]>(path)).data).toEqual([]);
    await student.get(`${path}/${id}`, 404);
  });
});

describe('the action_url of a template', () => {
  const send = '/api/notifications/send';
  async function opened(user: Awaited<ReturnType<typeof school.user>>): Promise<string | null | undefined> {
    await service.settled();
    return (await user.get<{ action_url: string | null }[]>('/api/notifications')).data[0]?.action_url;
  }

  test('is stored, changed and removed, and null by default', async () => {
    expect((await add()).action_url).toBeNull();
    const template = await add({ action_url: 'myapp://exams' });
    expect(template.action_url).toBe('myapp://exams');
    const at = `${path}/${template.id}`;
    expect((await school.admin.put<Template>(at, { ...template, title: 'T' })).data.action_url).toBe('myapp://exams');
    expect((await school.admin.put<Template>(at, { action_url: '' })).data.action_url).toBeNull();
    expect((await errorOf({ action_url: 'javascript:x' }, 'PUT', at)).slice(0, 2)).toEqual([400, 'action_url']);
  });

  test('is opened by its messages, unless the sender gives another one or null', async () => {
    const user = await school.user([]);
    const template = await add({ title: 'T', message: 'M', variables: [], action_url: '/exams/{{exam}}' });
    const to = { user_ids: [user.id], template_id: template.id };
    await school.admin.post(send, to);
    expect(await opened(user)).toBe('/exams/{{exam}}');
    await school.admin.post(send, { ...to, action_url: 'https://news.example/' });
    expect(await opened(user)).toBe('https://news.example/');
    await school.admin.post(send, { ...to, action_url: null });
    expect(await opened(user)).toBeNull();
  });

  test('is opened by the notifications of its event', async () => {
    await add({ name: 'account.created', title: 'Hello', message: 'M', variables: undefined, action_url: '/welcome' });
    expect(await opened(await school.user([]))).toBe('/welcome');
  });
});

describe('sending with a template', () => {
  test('uses its texts, type and channels, and requires a value for each of its variables', async () => {
    const user = await school.user([], { first_name: 'Amina', last_name: 'Okafor' });
    const template = await add({ type: 'exam', channels: ['in_app', 'email'] });
    const to = { user_ids: [user.id], template_id: template.id };
    const send = '/api/notifications/send';
    expect(await errorOf({ ...to, variables: { exam: 'Maths' } }, 'POST', send)).toEqual([
      400,
      'variables.day',
      'is required by the template',
    ]);
    expect(
      (await errorOf({ ...to, variables: { exam: 'Maths', day: '1', room: '2' } }, 'POST', send)).slice(0, 2),
    ).toEqual([400, 'variables.room']);
    await school.admin.post(send, { ...to, variables: { exam: 'Maths', day: '3 May' }, action_url: '/exams' });
    await service.settled();
    const { data } =
      await user.get<{ title: string; message: string; type: string; action_url: string }[]>(
        '/api/notifications?type=exam',
      );
    expect(data).toMatchObject([
      { title: 'Exam in Maths', message: 'Dear Amina, the exam in Maths is on 3 May.', action_url: '/exams' },
    ]);
    const rows = await service.database.query(
      `select channel from ${school.schema}.notification_delivery where user_id = $1`,
      [user.id],
    );
    expect(rows).toEqual([{ channel: 'email' }]);
    await school.admin.post(send, { ...to, variables: { exam: 'Maths', day: '3 May' }, channels: ['in_app'] });
    await service.settled();
    expect(
      await service.database.query(`select channel from ${school.schema}.notification_delivery where user_id = $1`, [
        user.id,
      ]),
    ).toHaveLength(1);
  });
});
