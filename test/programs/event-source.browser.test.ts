import { expect } from '@jest/globals';
import jwt from 'jsonwebtoken';
import type { Page } from 'playwright-core';
import { browserOfFile } from '../support/client/browser.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

const { service, school } = await serviceWithSchool();
const { test, openSession } = await browserOfFile(service);

type User = Awaited<ReturnType<typeof school.user>>;

const notify = (user: User, title: string) =>
  school.admin.post('/api/notifications/send', { user_ids: [user.id], title, message: 'In the hall.' });

/** The state of the EventSource of a page: 0 connecting, 1 open, 2 closed. */
const stateOf = (page: Page) => page.evaluate<number>('source.readyState');

/** Opens the stream in a page of this origin, in the way that the documentation shows. */
async function listen(user: User) {
  const { openTab } = await openSession({ as: 'nobody' });
  const page = await openTab('/');
  const { data } = await user.post<{ token: string }>('/api/notifications/stream-token');
  await page.evaluate(`
    received = [];
    source = new EventSource('/api/notifications/stream?token=${data.token}');
    source.onmessage = ({ data, lastEventId }) => received.push([lastEventId, JSON.parse(data).title]);
  `);
  await until(async () => (await stateOf(page)) === 1 || undefined);
  const titles = (count: number) =>
    until(async () => {
      const received = await page.evaluate<[string, string][]>('received');
      return received.length >= count ? received.map(([, title]) => title) : undefined;
    });
  return { page, titles };
}

test('EventSource.onmessage gets each notification, with its id', async () => {
  const user = await school.user(['teacher']);
  const { page, titles } = await listen(user);
  await notify(user, 'First');
  await notify(user, 'Second');
  expect(await titles(2)).toEqual(['First', 'Second']);
  const { data } = await user.get<{ id: number }[]>('/api/notifications?pageSize=2');
  const ids = await page.evaluate<string[]>('received.map(([id]) => id)');
  expect(ids).toEqual(data.map(({ id }) => String(id)).reverse());
});

test('an EventSource that loses its connection reconnects and misses nothing', async () => {
  const user = await school.user(['teacher']);
  const { page, titles } = await listen(user);
  await notify(user, 'Before');
  await titles(1);
  // Ends the connection without ending the session.
  const { sid } = jwt.decode(user.token) as { sid: number };
  await service.database.query("select pg_notify('school_events', $1)", [JSON.stringify({ ended: { session: sid } })]);
  await until(async () => (await stateOf(page)) === 0 || undefined);
  await notify(user, 'Meanwhile');
  await titles(2);
  await notify(user, 'After');
  expect(await titles(3)).toEqual(['Before', 'Meanwhile', 'After']);
});

test('an EventSource closes when the session has ended', async () => {
  const user = await school.user(['teacher']);
  const { page } = await listen(user);
  await user.post('/api/auth/logout');
  await until(async () => (await stateOf(page)) === 2 || undefined);
});
