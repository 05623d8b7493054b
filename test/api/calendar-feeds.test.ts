import { beforeAll, describe, expect, test } from '@jest/globals';
import ICAL from 'ical.js';
import pg from 'pg';
import { type CalendarData, calendarText } from '../../src/documents/calendar.ts';
import type { Client } from '../support/client/client.ts';
import { steadyDay } from '../support/fixtures/days.ts';
import { race } from '../support/client/race.ts';
import { serviceWithSchool, testPassword, unique } from '../support/server/service.ts';
import { withRole } from '../support/database/tenants.ts';
import { type Planned, planned } from '../support/fixtures/planned-school.ts';
import { send } from '../support/client/wire.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { NewFeed as NewFeedSchema } from '../../src/endpoints/schedule.ts';

await steadyDay();
const { service, school: elsewhere } = await serviceWithSchool({ BASE_DOMAIN: 'schools.example' }, 10);

/** A feed as its creation answers it: with its address. */
type Feed = OutputOf<typeof NewFeedSchema> & { url: string };

let one: Planned;
/** The date that many days after today, in the time zone of the school. */
let day: (n: number) => string;
/** Today's weekday. The lessons that `planned` puts on Monday are moved to it. */
let weekday: number;

beforeAll(async () => {
  one = await planned(service);
  const [row] = await one.sql<{ today: string; weekday: number }>(
    "select (now() at time zone 'UTC')::date::text as today, extract(isodow from now() at time zone 'UTC')::integer as weekday",
  );
  day = (n) => new Date(Date.parse(row?.today ?? '') + n * 86_400_000).toISOString().slice(0, 10);
  weekday = row?.weekday ?? 0;
  await one.sql('update @academic_year set start_date = $1, end_date = $2', [day(-100), day(20)]);
  await one.sql("update @timetable_config set working_days = '{1,2,3,4,5,6,7}'");
  await one.sql('delete from @timetable_slot where day_of_week = 3');
  await one.sql('update @timetable_slot set day_of_week = $1', [weekday]);
});

const make = async (client: Pick<Client, 'post'>, body: object) =>
  (await client.post<Feed>('/api/schedule/feeds', body, 201)).data;
const pathOf = (feed: Feed) => new URL(feed.url).pathname;
const read = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
  send(service.url, { method, path, headers });

/** One lesson or holiday on one day. */
interface Occurrence {
  /** `YYYY-MM-DDTHH:MM:SSZ`, or `YYYY-MM-DD` for a whole day. */
  start: string;
  end: string;
  summary: string;
  description: string;
  location: string;
  uid: string;
  sequence: number;
}

interface Detail {
  item: ICAL.Event;
  startDate: ICAL.Time;
  endDate: ICAL.Time;
}

/** Parses a feed with an independent iCalendar library, with the time zones that the feed defines. */
async function parsed(feed: Feed) {
  const { status, text } = await read(pathOf(feed));
  expect(status).toBe(200);
  const calendar = new ICAL.Component(ICAL.parse(text) as unknown[]);
  for (const zone of calendar.getAllSubcomponents('vtimezone')) ICAL.TimezoneService.register(zone);
  return calendar.getAllSubcomponents('vevent').map((component) => new ICAL.Event(component));
}

/** The weekly events and holidays of a feed, without the changes of single weeks. */
const series = async (feed: Feed) => (await parsed(feed)).filter((event) => !event.isRecurrenceException());

/** All days of all events of a feed in order, as a calendar app shows them. */
async function events(feed: Feed): Promise<Occurrence[]> {
  const all = await parsed(feed);
  const moment = (time: ICAL.Time) =>
    time.isDate ? time.toString() : time.toJSDate().toISOString().replace('.000Z', 'Z');
  const occurrence = (item: ICAL.Event, startDate: ICAL.Time, endDate: ICAL.Time): Occurrence => ({
    ...{ start: moment(startDate), end: moment(endDate) },
    ...{ summary: item.summary, description: item.description, location: item.location },
    ...{ uid: item.uid, sequence: item.sequence },
  });
  return all
    .filter((event) => !event.isRecurrenceException())
    .flatMap((event) => {
      if (!event.isRecurring()) return [occurrence(event, event.startDate, event.endDate)];
      for (const exception of all)
        if (exception.isRecurrenceException() && exception.uid === event.uid) event.relateException(exception);
      const found: Occurrence[] = [];
      const days = event.iterator();
      for (let next = days.next() as ICAL.Time | undefined; next; next = days.next() as ICAL.Time | undefined) {
        // ical.js declares this type as an alias that its package lacks.
        const { item, startDate, endDate } = event.getOccurrenceDetails(next) as Detail;
        found.push(occurrence(item, startDate, endDate));
      }
      return found;
    })
    .sort((a, b) => a.start.localeCompare(b.start));
}
const moments = (found: Occurrence[]) => found.map(({ start }) => start);
const isNothing = async (path: string) => {
  const { status, json } = await read(path);
  return status === 404 && json?.error === 'not_found' && json.message === 'There is no such calendar.';
};

describe('a calendar', () => {
  test('for a class has subject, teacher, room and times of the whole academic year', async () => {
    const feed = await make(one.school.admin, { kind: 'class', class_id: one.classId });
    const found = await events(feed);
    const weeks = Array.from({ length: 17 }, (_, n) => 7 * (n - 14));
    expect(moments(found)).toEqual(
      weeks.flatMap((n) => ['08:00', '08:45', '10:15'].map((time) => `${day(n)}T${time}:00Z`)),
    );
    const [first] = found;
    expect([first?.summary, first?.description, first?.location, first?.end]).toEqual([
      'Mathematics',
      'Tess Teacher\nPeriod 1',
      'R5',
      `${day(-98)}T08:45:00Z`,
    ]);
    const stamps = (await series(feed)).map(({ component }) =>
      [component.getFirstPropertyValue('dtstamp'), component.getFirstPropertyValue('last-modified')].map(String),
    );
    expect(
      stamps.every(([stamp, modified]) => stamp === modified && /^\d{4}-\d\d-\d\dT[\d:]+Z$/.test(stamp ?? '')),
    ).toBe(true);
    expect(found.every(({ sequence }) => sequence > 0)).toBe(true);
  });

  test('has one weekly event for each slot, which ends with the last lesson of the academic year', async () => {
    const found = await series(await make(one.school.admin, { kind: 'class', class_id: one.classId }));
    expect(found).toHaveLength(3);
    const host = `${one.school.subdomain}.schools.example`;
    expect(found.map(({ uid }) => uid)).toEqual(
      [1, 2, 4].map((period) => `lesson-${one.classId}-${weekday}-${period}@${host}`),
    );
    for (const { component } of found) {
      const rule = component.getFirstPropertyValue('rrule') as ICAL.Recur;
      expect([rule.freq, rule.until?.toString().slice(0, 10)]).toEqual(['WEEKLY', day(14)]);
      expect(component.hasProperty('exdate')).toBe(false);
    }
  });

  test('has the same lessons as the schedule of each day, with holidays, exceptions and days without school', async () => {
    const school = await planned(service);
    await school.sql("update platform.tenant set time_zone = 'America/New_York' where id = $1", [school.school.id]);
    await school.sql('update @academic_year set start_date = $1, end_date = $2', [day(-30), day(300)]);
    for (const n of [-13, 8, 9, 10, 11, 12, 100, 101, 102])
      await school.insert('holiday', { name: `Holiday ${n}`, date: day(n) });
    await school.insert('teacher_leave', {
      ...{ teacher_id: school.teacher.id, leave_type: 'sick', start_date: day(20), end_date: day(40), reason: 'ill' },
      ...{ status: 'approved', decided_at: '2030-10-01' },
    });
    for (const [kind, id] of [
      ['class', school.classId],
      ['teacher', school.teacher.id],
    ] as const) {
      const query = `${kind}_id=${id}`;
      const expected: string[] = [];
      for (let n = -35; n <= 305; n += 7) {
        const { data } = await school.school.admin.get<{ days: { date: string; slots: { start_time: string }[] }[] }>(
          `/api/schedule/week?${query}&date=${day(n)}`,
        );
        for (const { date, slots } of data.days)
          for (const { start_time } of slots) expected.push(`${date} ${start_time}`);
      }
      const feed = await make(school.school.admin, { kind, [`${kind}_id`]: id });
      const local = new Intl.DateTimeFormat('sv', {
        ...({ dateStyle: 'short', timeStyle: 'short', timeZone: 'America/New_York' } as const),
      });
      const found = (await events(feed)).filter(({ start }) => start.includes('T'));
      expect(found.map(({ start }) => local.format(new Date(start)))).toEqual(expected);
      expect(expected.length).toBeGreaterThan(40);
      expect((await series(feed)).filter((event) => event.isRecurring())).toHaveLength(kind === 'class' ? 4 : 2);
    }
  });

  test('is in the time zone of the school, which it defines for calendar apps that do not know it', async () => {
    const school = await planned(service);
    await school.sql("update platform.tenant set time_zone = 'Europe/London' where id = $1", [school.school.id]);
    await school.sql('update @academic_year set start_date = $1, end_date = $2', [day(-100), day(300)]);
    const feed = await make(school.student.client, { kind: 'own' });
    const { text } = await read(pathOf(feed));
    expect(text).toMatch(/\r\nDTSTART;TZID=Europe\/London:\d{8}T080000\r\n/);
    expect(text).toMatch(/\r\nRRULE:FREQ=WEEKLY;UNTIL=\d{8}T\d{6}Z\r\n/);
    const [zone] = new ICAL.Component(ICAL.parse(text) as unknown[]).getAllSubcomponents('vtimezone');
    const london = ICAL.Timezone.fromData({ component: zone });
    const year = new Date(`${day(0)}T00:00:00Z`).getUTCFullYear();
    const offset = (month: number) => london.utcOffset(ICAL.Time.fromData({ year, month, day: 15, hour: 12 }));
    expect([offset(1), offset(6)]).toEqual([0, 3600]);
  });

  test.each(['America/St_Johns', 'Australia/Lord_Howe', 'Pacific/Chatham', 'Europe/Berlin'])(
    'defines the time zone %s with the exact minutes at which its clocks change',
    async (name) => {
      const school = await planned(service);
      await school.sql('update platform.tenant set time_zone = $2 where id = $1', [school.school.id, name]);
      await school.sql('update @academic_year set start_date = $1, end_date = $2', [day(-100), day(300)]);
      const { text } = await read(pathOf(await make(school.student.client, { kind: 'own' })));
      const [zone] = new ICAL.Component(ICAL.parse(text) as unknown[]).getAllSubcomponents('vtimezone');
      // The first part says how the definition begins; the others are changes.
      const changes = (zone?.getAllSubcomponents() ?? []).slice(1).map((part) => {
        const seconds = ['tzoffsetfrom', 'tzoffsetto'].map((offset) =>
          (part.getFirstPropertyValue(offset) as ICAL.UtcOffset).toSeconds(),
        );
        const local = String(part.getFirstPropertyValue('dtstart'));
        return { at: Date.parse(`${local}Z`) / 1000 - (seconds[0] ?? 0), seconds };
      });
      expect(changes.length).toBeGreaterThanOrEqual(2);
      for (const { at, seconds } of changes) {
        const [actual] = await school.sql<{ before: number; after: number }>(
          `select extract(epoch from (m - interval '1 minute') at time zone $2 - (m - interval '1 minute') at time zone 'UTC')::integer as before,
              extract(epoch from m at time zone $2 - m at time zone 'UTC')::integer as after
            from to_timestamp($1) m`,
          [at, name],
        );
        expect([actual?.before, actual?.after]).toEqual(seconds);
      }
    },
  );

  test('has UIDs that differ from those of another school with the same lesson ids', async () => {
    const uids = async (school: Planned) => {
      await school.sql(
        "update @academic_year set start_date = now() - interval '20 days', end_date = now() + interval '20 days'",
      );
      return (await events(await make(school.school.admin, { kind: 'class', class_id: school.classId }))).map(
        ({ uid }) => uid,
      );
    };
    const [first, second] = [await uids(await planned(service)), await uids(await planned(service))];
    expect(first.length).toBeGreaterThan(0);
    expect(first.map((uid) => uid.split('@')[0])).toEqual(second.map((uid) => uid.split('@')[0]));
    expect(first.filter((uid) => second.includes(uid))).toEqual([]);
  });

  test('can be read 60 times a minute; further requests get a 429 and do not limit other calendars', async () => {
    const [busy, quiet] = [
      await make(one.school.admin, { kind: 'holidays' }),
      await make(one.school.admin, { kind: 'holidays' }),
    ];
    const answers = await Promise.all(Array.from({ length: 62 }, () => read(pathOf(busy))));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(60);
    const [refused] = answers.filter(({ status }) => status !== 200);
    expect([refused?.status, refused?.json?.error, Number(refused?.headers['retry-after']) > 0]).toEqual([
      429,
      'rate_limited',
      true,
    ]);
    expect((await read(pathOf(quiet))).status).toBe(200);
  });

  test('keeps lessons at the same local time when daylight saving time ends', async () => {
    const school = await planned(service);
    await school.sql("update platform.tenant set time_zone = 'Europe/London' where id = $1", [school.school.id]);
    const [year] = await school.sql<{ year: number }>('select extract(year from now())::integer as year');
    // The academic year includes a January and the following May, and there are lessons every day.
    await school.sql(
      "update @academic_year set start_date = now() - interval '150 days', end_date = now() + interval '540 days'",
    );
    await school.sql("update @timetable_config set working_days = '{1,2,3,4,5,6,7}'");
    await school.sql(
      'insert into @timetable_slot (class_id, academic_year_id, subject_id, day_of_week, period) select $1, $2, $3, n, 5 from generate_series(1, 7) n',
      [school.classId, school.yearId, school.art],
    );
    const hours = new Map<string, number>();
    for (const { start, description } of await events(await make(school.student.client, { kind: 'own' })))
      if (description.endsWith('Period 5')) hours.set(start.slice(0, 10), Number(start.slice(11, 13)));
    const next = (year?.year ?? 0) + 1;
    expect([hours.get(`${next}-01-15`), hours.get(`${next}-05-15`)]).toEqual([11, 10]);
  });

  test('includes the next academic year if it starts within 60 days', async () => {
    const school = await planned(service);
    await school.sql('update @academic_year set start_date = $1, end_date = $2', [day(-100), day(20)]);
    const next = await school.insert('academic_year', { name: 'Next', start_date: day(60), end_date: day(100) });
    const grown = await school.insert('class', { name: '6', grade_id: school.gradeId, academic_year_id: next });
    await school.insert('timetable_slot', {
      ...{
        class_id: grown,
        academic_year_id: next,
        subject_id: school.maths,
        teacher_id: school.teacher.id,
        day_of_week: 2,
        period: 1,
      },
    });
    const feed = await make(school.teacher.client, { kind: 'own' });
    const last = async () => moments(await events(feed)).at(-1) ?? '';
    expect((await last()) >= day(60)).toBe(true);
    await school.sql('update @academic_year set start_date = $2 where id = $1', [next, day(61)]);
    expect((await last()) <= day(21)).toBe(true);
  });

  test('of kind own shows a teacher their lessons with the classes, and a student those of their class with the teachers', async () => {
    const taught = await events(await make(one.teacher.client, { kind: 'own' }));
    expect(taught).toHaveLength(34);
    expect([taught[0]?.summary, taught[0]?.description]).toEqual(['Mathematics, 5 A', '5 A\nPeriod 1']);
    expect(await events(await make(one.student.client, { kind: 'own' }))).toHaveLength(51);
    expect((await one.school.admin.post('/api/schedule/feeds', { kind: 'own' }, 409)).error).toBe('invalid_state');
  });

  test('shows holidays as all-day events without lessons, and leaves out the lessons of a teacher on approved leave', async () => {
    const holiday = await one.insert('holiday', { name: 'Day of the; river,\nand all', date: day(7) });
    const leave = await one.insert('teacher_leave', {
      ...{ teacher_id: one.teacher.id, leave_type: 'sick', start_date: day(0), end_date: day(1), reason: 'secret' },
      ...{ status: 'approved', decided_at: '2030-10-01' },
    });
    const own = await events(await make(one.teacher.client, { kind: 'own' }));
    expect(moments(own).filter((moment) => moment >= day(0))).toEqual([
      day(7),
      `${day(14)}T08:00:00Z`,
      `${day(14)}T08:45:00Z`,
    ]);
    const off = own.find(({ start }) => !start.includes('T'));
    expect([off?.summary, off?.start, off?.end]).toEqual(['Day of the; river,\nand all', day(7), day(8)]);
    const ofClass = await make(one.student.client, { kind: 'own' });
    const today = (await events(ofClass)).filter(({ start }) => start.startsWith(day(0)));
    expect(today.map(({ description }) => description)).toEqual([
      'Tess Teacher (on leave)\nPeriod 1',
      'Tess Teacher (on leave)\nPeriod 2',
      'Otto Other\nPeriod 4',
    ]);
    expect((await read(pathOf(ofClass))).text).not.toContain('secret');
    expect(moments(await events(await make(await one.school.user([]), { kind: 'holidays' })))).toEqual([day(7)]);
    await one.sql('delete from @holiday where id = $1', [holiday]);
    await one.sql('delete from @teacher_leave where id = $1', [leave]);
  });

  test('escapes commas, semicolons, backslashes and line breaks, and folds lines at 75 octets in any script', async () => {
    const school = await planned(service);
    const name = `Οικολογία; «біо», ${'Nguyễn '.repeat(8)}\\n end`;
    await school.sql(
      "update @academic_year set start_date = now() - interval '20 days', end_date = now() + interval '20 days'",
    );
    await school.sql("update @timetable_config set working_days = '{1,2,3,4,5,6,7}'");
    await school.sql('update @subject set name = $1', [name]);
    await school.sql("update @class set name = e'5\\nBEGIN:VEVENT'");
    const feed = await make(school.school.admin, { kind: 'class', class_id: school.classId });
    const found = await events(feed);
    expect(found.length).toBeGreaterThan(5);
    expect(new Set(found.map(({ summary }) => summary))).toEqual(new Set([name]));
    const lines = (await read(pathOf(feed))).text.split('\r\n');
    expect(lines.filter((line) => Buffer.byteLength(line) > 75)).toEqual([]);
    expect(lines.filter((line) => line.startsWith('X-WR-CALNAME'))).toEqual([
      expect.stringMatching(/^X-WR-CALNAME:5 BEGIN:VEVENT A\\, School/),
    ]);
  });

  test('is private text/calendar with an ETag that changes when a lesson changes, while its UID stays', async () => {
    const feed = await make(one.school.admin, { kind: 'class', class_id: one.classId });
    const first = await read(pathOf(feed));
    expect(first.headers).toMatchObject({
      'content-type': 'text/calendar; charset=utf-8',
      'cache-control': expect.stringContaining('private') as unknown,
      'x-content-type-options': 'nosniff',
      etag: expect.stringMatching(/^"\w+"$/) as unknown,
    });
    const etag = String(first.headers['etag']);
    const again = await read(pathOf(feed), { 'if-none-match': `W/${etag}` });
    expect([again.status, again.text, again.headers['etag']]).toEqual([304, '', etag]);
    const head = await read(pathOf(feed), {}, 'HEAD');
    expect([head.status, head.headers['etag']]).toEqual([200, etag]);
    const before = await events(feed);
    await one.sql("update @subject set name = 'Arts' where id = $1", [one.art]);
    expect((await read(pathOf(feed), { 'if-none-match': etag })).status).toBe(200);
    const after = await events(feed);
    expect(after.map(({ uid }) => uid)).toEqual(before.map(({ uid }) => uid));
    const changed = after.filter(({ summary }) => summary === 'Arts');
    expect(changed.length).toBeGreaterThan(3);
    for (const event of changed)
      expect(event.sequence).toBeGreaterThan(before.find(({ uid }) => uid === event.uid)?.sequence ?? Infinity);
    await one.sql("update @subject set name = 'Art' where id = $1", [one.art]);
  });

  test('keeps its UIDs when the timetable is generated again', async () => {
    const feed = await make(one.school.admin, { kind: 'class', class_id: one.classId });
    const before = (await events(feed)).map(({ uid }) => uid);
    await one.sql(
      'create table public.kept_slots as select class_id, academic_year_id, subject_id, teacher_id, day_of_week, period, room from @timetable_slot',
    );
    await one.sql('delete from @timetable_slot');
    await one.sql(
      'insert into @timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period, room) select * from public.kept_slots order by period desc',
    );
    await one.sql('drop table public.kept_slots');
    expect((await events(feed)).map(({ uid }) => uid)).toEqual(before);
  });
});

describe('a feed', () => {
  test("shows its address only on creation; the list has the user's own feeds, latest first, and when each was last used", async () => {
    const user = await one.school.user(['teacher']);
    const first = await make(user, { kind: 'holidays' });
    const second = await user.post<Feed>('/api/schedule/feeds', { kind: 'holidays' }, 201);
    expect(second.headers.get('location')).toBe(`/api/schedule/feeds/${second.data.id}`);
    expect(new URL(first.url).pathname).toMatch(new RegExp(`^/api/calendar/${one.school.id}\\.[\\w-]{43}\\.ics$`));
    const list = async () => (await user.get<Feed[]>('/api/schedule/feeds')).data;
    expect((await list()).map(({ id, last_used_at }) => [id, last_used_at])).toEqual([
      [second.data.id, null],
      [first.id, null],
    ]);
    expect(JSON.stringify(await list())).not.toContain('url');
    await read(pathOf(first));
    expect((await list()).map(({ last_used_at }) => typeof last_used_at)).toEqual(['object', 'string']);
    expect((await user.get<Feed>(`/api/schedule/feeds/${first.id}`)).data.kind).toBe('holidays');
    // The database does not store the secret.
    const [row] = await one.sql<{ text: string }>('select json_agg(f)::text as text from @calendar_feed f');
    expect(row?.text).not.toContain(first.url.split('.').at(-2));
  });

  test('updates last_used_at at most once an hour, also for conditional requests', async () => {
    const feed = await make(one.school.admin, { kind: 'holidays' });
    const used = async () => (await one.school.admin.get<Feed>(`/api/schedule/feeds/${feed.id}`)).data.last_used_at;
    const { headers } = await read(pathOf(feed));
    const first = await used();
    await read(pathOf(feed));
    expect(await used()).toBe(first);
    await one.sql("update @calendar_feed set last_used_at = now() - interval '61 minutes' where id = $1", [feed.id]);
    await read(pathOf(feed), { 'if-none-match': String(headers['etag']) });
    expect(Date.parse((await used()) ?? '')).toBeGreaterThan(Date.parse(first ?? ''));
  });

  test('answers 404 as soon as its owner revokes it, and only the owner can revoke it', async () => {
    const feed = await make(one.teacher.client, { kind: 'own' });
    for (const client of [one.school.admin, one.other.client, elsewhere.admin]) {
      await client.get(`/api/schedule/feeds/${feed.id}`, 404);
      await client.delete(`/api/schedule/feeds/${feed.id}`, 404);
    }
    expect((await read(pathOf(feed))).status).toBe(200);
    expect((await one.teacher.client.delete<{ id: number }>(`/api/schedule/feeds/${feed.id}`)).data).toEqual({
      id: feed.id,
    });
    expect(await isNothing(pathOf(feed))).toBe(true);
    await one.teacher.client.delete(`/api/schedule/feeds/${feed.id}`, 404);
  });

  test('can only be created for a class or teacher that the user may see', async () => {
    const far = await one.insert('class', { name: 'Far away', grade_id: one.gradeId, academic_year_id: one.yearId });
    for (const client of [one.student.client, one.teacher.client]) {
      expect((await client.post('/api/schedule/feeds', { kind: 'class', class_id: far }, 422)).details).toMatchObject([
        { path: 'class_id' },
      ]);
      expect(
        (await client.post('/api/schedule/feeds', { kind: 'teacher', teacher_id: one.other.id }, 422)).details,
      ).toMatchObject([{ path: 'teacher_id' }]);
      await make(client, { kind: 'class', class_id: one.classId });
    }
    await make(one.teacher.client, { kind: 'teacher', teacher_id: one.teacher.id });
    await make(one.school.admin, { kind: 'teacher', teacher_id: one.other.id });
    const accountant = await one.school.user(['accountant']);
    expect((await accountant.post('/api/schedule/feeds', { kind: 'class', class_id: one.classId }, 403)).error).toBe(
      'forbidden',
    );
    await make(accountant, { kind: 'holidays' });
  });

  test.each<[object, string[]]>([
    [{}, ['kind']],
    [{ kind: 'class' }, ['class_id']],
    [{ kind: 'teacher', class_id: 1 }, ['class_id', 'teacher_id']],
    [{ kind: 'own', teacher_id: 1 }, ['teacher_id']],
    [{ kind: 'own', token_hash: 'x' }, ['token_hash']],
  ])('%j is a 400 that names the fields', async (body, paths) => {
    expect(
      (await one.school.admin.post('/api/schedule/feeds', body, 400)).details.map(({ path }) => path).sort(),
    ).toEqual(paths);
  });

  test('is created once for a repeated Idempotency-Key, and the second answer has no address, because it is not stored', async () => {
    const user = await one.school.user([]);
    const request = () =>
      user.send<Feed>(
        'POST',
        '/api/schedule/feeds',
        { body: { kind: 'holidays' }, headers: { 'idempotency-key': 'once' } },
        201,
      );
    const [first, second] = [(await request()).data, (await request()).data];
    expect(second).toEqual({ ...first, url: null });
    expect((await user.get<Feed[]>('/api/schedule/feeds')).data.map(({ id }) => id)).toEqual([first.id]);
    expect((await read(pathOf(first))).status).toBe(200);
  });

  test('is refused if the user already has 50, also with concurrent requests', async () => {
    const user = await one.school.user([]);
    await one.sql(
      "insert into @calendar_feed (user_id, kind, token_hash) select $1::bigint, 'holidays', md5($1::bigint::text || n) || md5(n::text) from generate_series(1, 49) n",
      [user.id],
    );
    const answers = await race(
      service.database,
      `select from ${one.school.schema}.user_account where id = ${user.id} for update`,
      3,
      () => [1, 2, 3].map(() => user.send('POST', '/api/schedule/feeds', { body: { kind: 'holidays' } })),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409, 409]);
  });
});

describe('an address', () => {
  test('gets the same 404 if it is unknown, malformed or belongs to another school', async () => {
    const feed = await make(one.school.admin, { kind: 'holidays' });
    const secret = /\.([\w-]{43})\.ics$/.exec(feed.url)?.[1] ?? '';
    const other = secret.replace(/^./, (first) => (first === 'A' ? 'B' : 'A'));
    const tokens = [
      ...[
        `${one.school.id}.${other}`,
        `${elsewhere.id}.${secret}`,
        `999999999.${secret}`,
        `999999999999999.${secret}`,
        `0.${secret}`,
        secret,
        `.${secret}`,
      ],
      ...[
        `${one.school.id}.${secret.slice(1)}`,
        `${one.school.id}.${secret}A`,
        `${one.school.id}`,
        'x',
        '1.1',
        '%00',
        `1'--.${secret}`,
        'a'.repeat(5000),
      ],
    ];
    const answers = await Promise.all(tokens.map((token) => read(`/api/calendar/${token}.ics`)));
    for (const { status, json } of answers)
      expect([status, json?.error, json?.message, json?.details]).toEqual([
        404,
        'not_found',
        'There is no such calendar.',
        undefined,
      ]);
    expect((await read(pathOf(feed))).status).toBe(200);
    // The secret of a feed is not an access token.
    const bySecret = await send(service.url, { path: '/api/auth/profile', token: secret });
    expect(bySecret.status).toBe(401);
  });

  test('ends with a reset password, also one that an admin sets, and with a changed one if the user asks for it', async () => {
    const at = await service.school();
    const { email } = await at.user(['teacher']);
    let password = testPassword;
    const login = () => service.anonymous.login({ tenant_id: at.id, email, password });
    const feed = async () => {
      const { data } = await (await login()).post<{ url: string }>('/api/schedule/feeds', { kind: 'holidays' }, 201);
      return async () => (await fetch(service.url + new URL(data.url, service.url).pathname)).status;
    };
    const change = async (options: object) => {
      const client = await login();
      const next = unique('another password');
      const body = { current_password: password, password: next, ...options };
      await client.post('/api/auth/password/change', body);
      password = next;
    };
    const [first, ofAdmin] = [
      await feed(),
      await at.admin.post<{ url: string }>('/api/schedule/feeds', { kind: 'holidays' }, 201),
    ];
    await change({});
    expect(await first()).toBe(200);
    await change({ end_calendar_feeds: true });
    expect(await first()).toBe(404);
    const second = await feed();
    const [user] = await service.database.query<{ id: number }>(
      `select id::integer from ${at.schema}.user_account where email = $1`,
      [email],
    );
    password = unique('third password');
    await at.admin.put(`/api/users/${user?.id}`, { password });
    expect(await second()).toBe(404);
    const third = await feed();
    const token = `${at.id}.${unique('token')}`;
    await at.database.query(
      `insert into platform.one_time_token (tenant_id, user_id, purpose, hash, expires_at)
       values ($1, $2, 'password_reset', core.token_hash($3), now() + interval '1 hour')`,
      [at.id, user?.id, token],
    );
    await service.anonymous.post('/api/auth/password/reset', { token, password: unique('fourth password') });
    expect(await third()).toBe(404);
    expect((await at.admin.get<unknown[]>('/api/schedule/feeds')).data).toHaveLength(1);
    expect(ofAdmin.status).toBe(201);
  });

  test("answers 404 while its owner's account is inactive, and for good after the user is deleted", async () => {
    const user = await one.school.user(['teacher']);
    const feed = await make(user, { kind: 'holidays' });
    await one.school.admin.put(`/api/users/${user.id}`, { is_active: false });
    expect(await isNothing(pathOf(feed))).toBe(true);
    await one.school.admin.put(`/api/users/${user.id}`, { is_active: true });
    expect((await read(pathOf(feed))).status).toBe(200);
    await one.school.admin.delete(`/api/users/${user.id}`);
    expect(await isNothing(pathOf(feed))).toBe(true);
  });

  test('answers 404 once its owner no longer teaches the class or is no longer linked to the teacher', async () => {
    const school = await planned(service);
    const [ofClass, own, ofTeacher] = [
      await make(school.other.client, { kind: 'class', class_id: school.classId }),
      await make(school.other.client, { kind: 'own' }),
      await make(school.other.client, { kind: 'teacher', teacher_id: school.other.id }),
    ];
    const open = async () =>
      Promise.all([ofClass, own, ofTeacher].map(async (feed) => (await read(pathOf(feed))).status));
    expect(await open()).toEqual([200, 200, 200]);
    await school.sql('update @timetable_slot set teacher_id = null where teacher_id = $1', [school.other.id]);
    expect(await open()).toEqual([404, 200, 200]);
    const again = await school.insert('teaching_assignment', { class_id: school.classId, teacher_id: school.other.id });
    expect(await open()).toEqual([200, 200, 200]);
    // Without the role the owner still sees their own lessons.
    const roles =
      (await school.sql<{ id: number }>("select id::integer from @role where name = 'teacher'"))[0]?.id ?? 0;
    await school.school.admin.delete(`/api/rbac/users/${school.other.userId}/roles/${roles}`);
    expect(await open()).toEqual([200, 200, 200]);
    await school.sql('update @teacher set user_id = null where id = $1', [school.other.id]);
    expect(await open()).toEqual([404, 404, 404]);
    await school.sql('delete from @teaching_assignment where id = $1', [again]);
  });

  test('for a teacher answers 404 after the teacher is deleted, regardless of who created it', async () => {
    const school = await planned(service);
    const feed = await make(school.school.admin, { kind: 'teacher', teacher_id: school.other.id });
    expect((await read(pathOf(feed))).status).toBe(200);
    await school.sql('update @teacher set deleted_at = now() where id = $1', [school.other.id]);
    expect((await read(pathOf(feed))).status).toBe(404);
    expect(
      (await school.school.admin.post('/api/schedule/feeds', { kind: 'teacher', teacher_id: school.other.id }, 422))
        .error,
    ).toBe('invalid_reference');
  });

  test('created by an admin who becomes an accountant answers 404 for classes and teachers, but not for holidays', async () => {
    const user = await one.school.user(['admin']);
    const feeds = [
      await make(user, { kind: 'class', class_id: one.classId }),
      await make(user, { kind: 'teacher', teacher_id: one.teacher.id }),
      await make(user, { kind: 'holidays' }),
    ];
    const open = async () => Promise.all(feeds.map(async (feed) => (await read(pathOf(feed))).status));
    expect(await open()).toEqual([200, 200, 200]);
    const [accountant] = await one.sql<{ id: number }>("select id::integer from @role where name = 'accountant'");
    await one.school.admin.put(`/api/users/${user.id}`, { role_ids: [accountant?.id] });
    expect(await open()).toEqual([404, 404, 200]);
  });

  test('answers 404 while the school is suspended or lacks the feature, and 503 while the school is migrated', async () => {
    const school = await planned(service);
    const feed = await make(school.teacher.client, { kind: 'own' });
    const { operator } = service;
    const status = async () => (await read(pathOf(feed))).status;
    await operator.put(`/api/platform/tenants/${school.school.id}`, { feature_flags: { timetable: false } });
    expect(await isNothing(pathOf(feed))).toBe(true);
    await operator.put(`/api/platform/tenants/${school.school.id}`, { feature_flags: {} });
    expect(await status()).toBe(200);
    await operator.post(`/api/platform/tenants/${school.school.id}/suspend`);
    expect(await isNothing(pathOf(feed))).toBe(true);
    await operator.post(`/api/platform/tenants/${school.school.id}/activate`);
    expect(await status()).toBe(200);
    await school.school.database.query('update platform.tenant set schema_version = schema_version - 1 where id = $1', [
      school.school.id,
    ]);
    expect(await status()).toBe(503);
    await school.school.database.query('update platform.tenant set schema_version = schema_version + 1 where id = $1', [
      school.school.id,
    ]);
    await operator.delete(`/api/platform/tenants/${school.school.id}`);
    expect(await isNothing(pathOf(feed))).toBe(true);
  });
});

test('the database refuses schedule_feeds_create_own for kinds that need the permission', async () => {
  const { sid } = JSON.parse(Buffer.from(one.student.client.token.split('.')[1] ?? '', 'base64url').toString()) as {
    sid: number;
  };
  const body = { kind: 'class', class_id: one.classId, token_hash: 'a'.repeat(64) };
  await expect(one.sql("select core.call('schedule_feeds_create_own', $1, $2, '{}')", [sid, body])).rejects.toThrow(
    'timetable.read',
  );
});

describe('the row-level security of feeds', () => {
  /** The feeds that the database role of a school sees and updates with these settings: their users and counts. */
  const visibleFeeds = async (settings: Record<string, string>) =>
    withRole(
      await one.school.database.addressFor(),
      'school_tenant',
      { 'app.tenant_id': String(one.school.id), 'app.scope': 'all', ...settings },
      async ({ rows, attempt }) => {
        const table = `${one.school.schema}.calendar_feed`;
        const seen = await rows<{ user: number }>(`select user_id::integer as user from ${table} order by 1`);
        return {
          seen: [...new Set(seen.map(({ user }) => user))],
          changed: await attempt(`update ${table} set kind = kind`),
          all: seen.length,
        };
      },
    );
  const userOf = (client: Client) =>
    (JSON.parse(Buffer.from(client.token.split('.')[1] ?? '', 'base64url').toString()) as { user_id: number }).user_id;

  test('a feed is visible to its user and to a request with its token; only the service itself sees all feeds', async () => {
    const [mine, theirs] = [one.teacher.client, one.other.client].map(userOf) as [number, number];
    await make(one.teacher.client, { kind: 'holidays' });
    await make(one.other.client, { kind: 'holidays' });
    const [shown] = await one.sql<{ hash: string }>(
      'select token_hash as hash from @calendar_feed where user_id = $1',
      [theirs],
    );
    for (const off of [{}, { 'app.is_system': '' }, { 'app.is_system': 'no' }, { 'app.is_system': 'true' }] as Record<
      string,
      string
    >[]) {
      const own = await visibleFeeds({ ...off, 'app.user_id': String(mine) });
      expect([own.seen, own.changed]).toEqual([[mine], own.all]);
      expect(await visibleFeeds({ ...off, 'app.user_id': '' })).toMatchObject({ seen: [], changed: 0 });
      expect(
        (await visibleFeeds({ ...off, 'app.user_id': String(mine), 'app.feed': shown?.hash ?? '' })).seen.sort(),
      ).toEqual([mine, theirs].sort());
    }
    expect((await visibleFeeds({ 'app.is_system': 'yes' })).seen).toEqual(expect.arrayContaining([mine, theirs]));
  });

  test('no request gets the rights of the service, from an earlier setting of the connection or by a function that it may call', async () => {
    const { database } = one.school;
    await database.query(`
      insert into core.operation (name, access, runs_on, allows_own_rows, needs_session, needs_setup, needs_subscription, works_when_cancelled, writes, idempotent, errors)
        values ('probe', 'tenant', 'school', false, false, false, false, false, false, false, '{}');
      create function api.probe(p jsonb) returns json language plpgsql stable as $$ begin
        return json_build_object('is_system', current_setting('app.is_system', true), 'users', (select count(distinct user_id) from calendar_feed)); end $$;
      grant execute on function api.probe(jsonb) to school_tenant;
      select core.define_run_operation()`);
    const { sid } = JSON.parse(Buffer.from(one.teacher.client.token.split('.')[1] ?? '', 'base64url').toString()) as {
      sid: number;
    };
    const connection = new pg.Client({ connectionString: await database.addressFor() });
    await connection.connect();
    try {
      await connection.query("set app.is_system = 'yes'; set role school_api");
      const { rows } = await connection.query<{ answer: string }>(
        "select answer from core.call('probe', $1, '{}', '{}')",
        [sid],
      );
      expect(JSON.parse(rows[0]?.answer ?? '')).toEqual({ is_system: '', users: 1 });
    } finally {
      await connection.end();
      await database.query(
        "drop function api.probe(jsonb); delete from core.operation where name = 'probe'; select core.define_run_operation()",
      );
    }
    const setters = await database.query<{ name: string; open: boolean }>(
      `select p.oid::regprocedure::text as name, has_function_privilege('school_tenant', p.oid, 'execute') or has_function_privilege('school_platform', p.oid, 'execute') as open
       from pg_proc p where p.pronamespace in ('core'::regnamespace, 'api'::regnamespace, $1::regnamespace) and p.prosrc like '%set_config(''app.is_system''%'
       order by 1`,
      [one.school.schema],
    );
    expect(setters).toEqual([
      { name: 'core.admit(text,bigint,jsonb,jsonb)', open: false },
      { name: 'core.enter_tenant(bigint)', open: false },
      { name: 'core.leave_tenant(text[])', open: false },
    ]);
  });
});

test('creating a feed answers the same ETag as reading it', async () => {
  const created = await one.school.admin.post<Feed>('/api/schedule/feeds', { kind: 'holidays' }, 201);
  const version = (headers: Headers) => headers.get('etag')?.split('.')[0];
  expect(version(created.headers)).toMatch(/^"\w+$/);
  expect(version(created.headers)).toBe(
    version((await one.school.admin.get(`/api/schedule/feeds/${created.data.id}`)).headers),
  );
});

test('a school can fill at most half of the calendar queue, and further requests get a 503 with Retry-After', async () => {
  const data = JSON.stringify({
    kind: 'holidays',
    tenant_id: 1,
    school: 'One',
    whose: null,
    subdomain: 'one',
    time_zone: 'UTC',
    lessons: [],
    holidays: [],
  } satisfies CalendarData);
  const of = (tenantId: number, count: number) =>
    Array.from({ length: count }, () => calendarText(data, { tenantId, host: 'localhost' }));
  const outcomes = async (all: Promise<string>[]) =>
    (await Promise.allSettled(all)).map((one): unknown => (one.status === 'rejected' ? one.reason : one.status));
  const busy = expect.objectContaining({ error: 'unavailable', retryAfter: 10 });
  const [first, second, third] = await Promise.all([outcomes(of(1, 26)), outcomes(of(2, 25)), outcomes(of(3, 1))]);
  expect([first.slice(0, 25), first[25]]).toEqual([Array(25).fill('fulfilled'), busy]);
  // The queue is full with 50: a school with the most calendars gives a place to the third one.
  expect([second.slice(0, 24), second[24]]).toEqual([Array(24).fill('fulfilled'), busy]);
  expect(third).toEqual(['fulfilled']);
  expect(await outcomes(of(1, 1))).toEqual(['fulfilled']);
});
