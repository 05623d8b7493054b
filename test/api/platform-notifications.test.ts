import { afterEach, describe, expect, test } from '@jest/globals';
import { serviceWithSchool } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type {
  Settings as SettingsSchema,
  Template as TemplateSchema,
} from '../../src/endpoints/platform-notifications.ts';

const { service, school } = await serviceWithSchool();
const { operator } = service;
const settingsPath = '/api/platform/notification-settings';
const templatesPath = '/api/platform/notification-templates';

type Settings = OutputOf<typeof SettingsSchema>;
type Template = OutputOf<typeof TemplateSchema>;
const defaults = (await operator.get<Settings>(settingsPath)).data;
afterEach(async () => {
  const { channels, sender_name, quiet_hours, limits } = defaults;
  await operator.put(settingsPath, { channels, sender_name, quiet_hours, limits });
});

const audit = async (action: string) =>
  (await operator.get<{ action: string; changes: unknown }[]>(`/api/platform/audit-logs?action=${action}`)).data;
async function inbox() {
  await service.settled();
  const { data } = await school.admin.get<{ title: string; message: string }[]>('/api/notifications');
  return data.map(({ title, message }) => [title, message]);
}
let serial = 0;
const addHoliday = () => school.admin.post('/api/holidays', { name: `Holiday ${++serial}`, date: '2034-06-01' }, 201);

describe('notification settings', () => {
  test('enable every channel by default, without quiet hours', () => {
    expect(defaults).toMatchObject({
      channels: { in_app: true, push: true, email: true },
      sender_name: null,
      quiet_hours: null,
      limits: { push_per_user_per_day: 50, emails_per_user_per_day: 20 },
    });
  });

  test('accept a partial update, and the audit entry has the changed fields', async () => {
    const { data } = await operator.put<Settings>(settingsPath, {
      channels: { push: false },
      limits: { emails_per_user_per_day: null },
      quiet_hours: { start: '21:00', end: '07:00' },
    });
    expect(data).toMatchObject({
      channels: { in_app: true, push: false, email: true },
      quiet_hours: { start: '21:00', end: '07:00' },
      limits: { push_per_user_per_day: 50, emails_per_user_per_day: null },
    });
    expect((await operator.get<Settings>(settingsPath)).data).toEqual(data);
    expect((await audit('notification_settings.update'))[0]?.changes).toEqual({
      channels: { before: defaults.channels, after: data.channels },
      limits: { before: defaults.limits, after: data.limits },
      quiet_hours: { before: null, after: data.quiet_hours },
    });
    expect((await operator.put<Settings>(settingsPath, { ...data, sender_name: 'School Cloud' })).data).toMatchObject({
      sender_name: 'School Cloud',
      quiet_hours: data.quiet_hours,
    });
    expect((await operator.put<Settings>(settingsPath, { sender_name: '', quiet_hours: null })).data).toMatchObject({
      sender_name: null,
      quiet_hours: null,
    });
  });

  test.each([
    [{ quiet_hours: { start: '21:00', end: '21:00' } }, 'quiet_hours.end'],
    [{ quiet_hours: { start: '24:00', end: '07:00' } }, 'quiet_hours.start'],
    [{ quiet_hours: { start: '21:00' } }, 'quiet_hours.end'],
    [{ channels: { sms: true } }, 'channels.sms'],
    [{ limits: { push_per_user_per_day: -1 } }, 'limits.push_per_user_per_day'],
    [{ limits: { emails_per_user_per_day: 1.5 } }, 'limits.emails_per_user_per_day'],
    [{ sender_name: 'x'.repeat(101) }, 'sender_name'],
    [{ updated_at: '2020-01-01T00:00:00Z', created_at: '2020-01-01T00:00:00Z' }, 'created_at'],
  ])('%j returns 400 and names the field', async (body, field) => {
    const { details } = (await operator.send('PUT', settingsPath, { body }, 400)) as unknown as {
      details: { path: string }[];
    };
    expect(details[0]?.path).toBe(field);
  });

  test('a disabled channel sends nothing until it is enabled again', async () => {
    const before = await inbox();
    await operator.put(settingsPath, { channels: { in_app: false } });
    await addHoliday();
    expect(
      (await school.admin.post<{ sent: number }>('/api/notifications/send', { all: true, title: 'T', message: 'M' }))
        .data,
    ).toEqual({ sent: 0 });
    expect(await inbox()).toEqual(before);
    await operator.put(settingsPath, { channels: { in_app: true } });
    await addHoliday();
    expect(await inbox()).toHaveLength(before.length + 1);
  });
});

describe('notification templates of operators', () => {
  const template = {
    key: 'holiday.added',
    channel: 'in_app',
    subject: 'No school on {{date}}',
    body: '{{holiday_name}}, dear {{first_name}}',
  };

  test('apply to every school without a template of its own, while they are active', async () => {
    const { data: created } = await operator.post<Template>(templatesPath, template, 201);
    expect(created).toMatchObject({ ...template, is_active: true });
    await addHoliday();
    expect((await inbox())[0]).toEqual(['No school on 1 June 2034', `Holiday ${serial}, dear School`]);
    const { data: own } = await school.admin.post<{ id: number }>(
      '/api/notifications/templates',
      { name: 'holiday.added', title: 'Ours', message: '{{date}}' },
      201,
    );
    await addHoliday();
    expect((await inbox())[0]).toEqual(['Ours', '1 June 2034']);
    await school.admin.delete(`/api/notifications/templates/${own.id}`);
    await operator.put(`${templatesPath}/${created.id}`, { is_active: false });
    await addHoliday();
    expect((await inbox())[0]?.[0]).toBe(`Holiday: Holiday ${serial}`);
    await operator.delete(`${templatesPath}/${created.id}`);
    await operator.get(`${templatesPath}/${created.id}`, 404);
    for (const action of ['create', 'update', 'delete'])
      expect((await audit(`notification_template.${action}`)).length).toBeGreaterThan(0);
  });

  test('are unique per event and channel, can be filtered, and need an event that exists', async () => {
    const { data: created } = await operator.post<Template>(templatesPath, { ...template, channel: 'push' }, 201);
    await operator.post(templatesPath, { ...template, channel: 'push' }, 409);
    const listed = async (query: string) =>
      (await operator.get<Template[]>(`${templatesPath}${query}`)).data.map(({ id }) => id);
    expect(await listed('?channel=push&key=holiday.added&is_active=true&search=dear')).toEqual([created.id]);
    expect(await listed('?channel=email')).toEqual([]);
    const errorOf = async (body: object, method = 'POST', path = templatesPath) => {
      const { status, details } = (await operator.send(method, path, { body })) as {
        status: number;
        details?: { path: string }[];
      };
      return [status, details?.[0]?.path];
    };
    expect(await errorOf({ ...template, key: 'no.event' })).toEqual([400, 'key']);
    const bare = { key: template.key, channel: template.channel, body: template.body };
    expect(await errorOf({ ...bare, key: 'no.event' })).toEqual([400, 'key']);
    const { data: plain } = await operator.post<Template>(templatesPath, { ...bare, channel: 'email' }, 201);
    expect(plain).toMatchObject({ ...bare, channel: 'email', subject: 'Holiday: {{holiday_name}}' });
    await operator.delete(`${templatesPath}/${plain.id}`);
    expect(await errorOf({ ...template, channel: 'sms' })).toEqual([400, 'channel']);
    expect(await errorOf({ key: 'no.event' }, 'PUT', `${templatesPath}/${created.id}`)).toEqual([400, 'key']);
    expect((await operator.get<Template>(`${templatesPath}/${created.id}`)).data).toEqual(created);
  });

  test('the list of events has a variable for every sample value', async () => {
    const { data } = await operator.get<
      { key: string; variables: string[]; sample: Record<string, string>; message: string }[]
    >('/api/platform/notification-events');
    expect(data.length).toBeGreaterThan(10);
    for (const { variables, sample } of data) expect(variables).toEqual(expect.arrayContaining(Object.keys(sample)));
  });
});
