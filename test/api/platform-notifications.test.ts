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
const first = (await operator.get<Settings>(settingsPath)).data;
afterEach(async () => {
  const { channels, sender_name, quiet_hours, limits } = first;
  await operator.put(settingsPath, { channels, sender_name, quiet_hours, limits });
});

const audit = async (action: string) =>
  (await operator.get<{ action: string; changes: unknown }[]>(`/api/platform/audit-logs?action=${action}`)).data;
const inbox = async () =>
  (await school.admin.get<{ title: string; message: string }[]>('/api/notifications')).data.map(
    ({ title, message }) => [title, message],
  );
let serial = 0;
const holiday = () => school.admin.post('/api/holidays', { name: `Holiday ${++serial}`, date: '2090-06-01' }, 201);

describe('the settings', () => {
  test('begin open, without quiet hours', () => {
    expect(first).toMatchObject({
      channels: { in_app: true, push: true, email: true },
      sender_name: null,
      quiet_hours: null,
      limits: { push_per_user_per_day: 50, emails_per_user_per_day: 20 },
    });
  });

  test('are changed in part, with an audit entry of what changed', async () => {
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
      channels: { before: first.channels, after: data.channels },
      limits: { before: first.limits, after: data.limits },
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
  ])('refuse %j', async (body, at) => {
    const { details } = (await operator.send('PUT', settingsPath, { body }, 400)) as unknown as {
      details: { path: string }[];
    };
    expect(details[0]?.path).toBe(at);
  });

  test('hold for what is sent: a closed channel carries nothing', async () => {
    const before = await inbox();
    await operator.put(settingsPath, { channels: { in_app: false } });
    await holiday();
    expect(
      (await school.admin.post<{ sent: number }>('/api/notifications/send', { all: true, title: 'T', message: 'M' }))
        .data,
    ).toEqual({ sent: 0 });
    expect(await inbox()).toEqual(before);
    await operator.put(settingsPath, { channels: { in_app: true } });
    await holiday();
    expect(await inbox()).toHaveLength(before.length + 1);
  });
});

describe('the words of operators', () => {
  const words = {
    key: 'holiday.added',
    channel: 'in_app',
    subject: 'No school on {{date}}',
    body: '{{holiday_name}}, dear {{first_name}}',
  };

  test('hold for every school that has none of its own, while they are active', async () => {
    const { data: template } = await operator.post<Template>(templatesPath, words, 201);
    expect(template).toMatchObject({ ...words, is_active: true });
    await holiday();
    expect((await inbox())[0]).toEqual(['No school on 1 June 2090', `Holiday ${serial}, dear School`]);
    const { data: own } = await school.admin.post<{ id: number }>(
      '/api/notifications/templates',
      { name: 'holiday.added', title: 'Ours', message: '{{date}}' },
      201,
    );
    await holiday();
    expect((await inbox())[0]).toEqual(['Ours', '1 June 2090']);
    await school.admin.delete(`/api/notifications/templates/${own.id}`);
    await operator.put(`${templatesPath}/${template.id}`, { is_active: false });
    await holiday();
    expect((await inbox())[0]?.[0]).toBe(`Holiday: Holiday ${serial}`);
    await operator.delete(`${templatesPath}/${template.id}`);
    await operator.get(`${templatesPath}/${template.id}`, 404);
    for (const action of ['create', 'update', 'delete'])
      expect((await audit(`notification_template.${action}`)).length).toBeGreaterThan(0);
  });

  test('are one for an event and a channel, listed and filtered, and name only what the event knows', async () => {
    const { data: template } = await operator.post<Template>(templatesPath, { ...words, channel: 'push' }, 201);
    await operator.post(templatesPath, { ...words, channel: 'push' }, 409);
    const listed = async (query: string) =>
      (await operator.get<Template[]>(`${templatesPath}${query}`)).data.map(({ id }) => id);
    expect(await listed('?channel=push&key=holiday.added&is_active=true&search=dear')).toEqual([template.id]);
    expect(await listed('?channel=email')).toEqual([]);
    const fault = async (body: object, method = 'POST', at = templatesPath) => {
      const { status, details } = (await operator.send(method, at, { body })) as {
        status: number;
        details?: { path: string }[];
      };
      return [status, details?.[0]?.path];
    };
    expect(await fault({ ...words, channel: 'email', body: '{{receipt_number}}' })).toEqual([400, 'body']);
    expect(await fault({ ...words, channel: 'email', subject: '{{nobody}}' })).toEqual([400, 'subject']);
    expect(await fault({ ...words, key: 'no.event' })).toEqual([400, 'key']);
    const bare = { key: words.key, channel: words.channel, body: words.body };
    expect(await fault({ ...bare, key: 'no.event' })).toEqual([400, 'key']);
    const { data: plain } = await operator.post<Template>(templatesPath, { ...bare, channel: 'email' }, 201);
    expect(plain).toMatchObject({ ...bare, channel: 'email', subject: 'Holiday: {{holiday_name}}' });
    await operator.delete(`${templatesPath}/${plain.id}`);
    expect(await fault({ ...words, channel: 'sms' })).toEqual([400, 'channel']);
    expect(await fault({ key: 'trial.ending' }, 'PUT', `${templatesPath}/${template.id}`)).toEqual([400, 'subject']);
    expect((await operator.get<Template>(`${templatesPath}/${template.id}`)).data).toEqual(template);
  });

  test('may name what the catalogue of events says', async () => {
    const { data } = await operator.get<
      { key: string; variables: string[]; sample: Record<string, string>; message: string }[]
    >('/api/platform/notification-events');
    expect(data.length).toBeGreaterThan(10);
    for (const { variables, sample } of data) expect(variables).toEqual(expect.arrayContaining(Object.keys(sample)));
  });
});
