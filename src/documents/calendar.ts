import { setImmediate as yieldToEventLoop } from 'node:timers/promises';
import { TZDate, tzOffset, tzScan } from '@date-fns/tz';
import ical, {
  type ICalEventData,
  ICalEventBusyStatus,
  ICalEventRepeatingFreq,
  ICalEventTransparency,
} from 'ical-generator';
import { fairQueue } from '../concurrency/fair-queue.ts';
import { ApiError } from '../domain/errors.ts';

/** The answer of the operation `calendar_get`. Moments are ISO timestamps. */
export interface CalendarData {
  kind: 'own' | 'class' | 'teacher' | 'holidays';
  tenant_id: number;
  subdomain: string;
  school: string;
  /** The class or teacher of the lessons; null for a calendar of holidays. */
  whose: { name: string } | null;
  /** IANA name. */
  time_zone: string;
  lessons: Lesson[];
  holidays: Holiday[];
}

interface Event {
  uid: string;
  title: string;
  changed_at: string;
}
/** A lesson of every week. */
interface Lesson extends Event {
  /** The first lesson. */
  starts_at: string;
  ends_at: string;
  /** The start of the last lesson. */
  last_starts_at: string;
  /** The starts of the lessons in between that do not take place. */
  excluded: string[];
  /** The starts of the lessons whose teacher is on leave. */
  on_leave_at: string[];
  class_name: string | null;
  teacher_name: string | null;
  period: number;
  room: string | null;
}
interface Holiday extends Event {
  /** `YYYY-MM-DD`. */
  date: string;
}

/** Seconds since 2020. SEQUENCE must grow with each change of an event, and calendar apps store it in 31 bits. */
const sequence = (changed: Date) => Math.max(0, Math.floor((changed.getTime() - Date.UTC(2020, 0)) / 1000));

/** Nothing here depends on the time of the request, so that an unchanged calendar keeps its ETag. */
function common({ uid, title, changed_at }: Event, domain: string) {
  const changed = new Date(changed_at);
  return {
    id: `${uid}@${domain}`,
    summary: title,
    stamp: changed,
    lastModified: changed,
    sequence: sequence(changed),
  };
}

const holidayEvent = (holiday: Holiday, domain: string): ICalEventData => ({
  ...common(holiday, domain),
  start: new Date(`${holiday.date}T00:00:00Z`),
  allDay: true,
  transparency: ICalEventTransparency.TRANSPARENT,
  busystatus: ICalEventBusyStatus.FREE,
});

/** The weekly event of a lesson, followed by an event for each week in which its teacher is on leave. */
function lessonEvents(lesson: Lesson, domain: string, zone: string): ICalEventData[] {
  // ical-generator writes a TZDate as local time of its zone. The weeks repeat in local time, so that lessons do not
  // move when daylight saving time begins or ends.
  const local = (moment: string | number) => new TZDate(new Date(moment).getTime(), zone);
  const durationMs = Date.parse(lesson.ends_at) - Date.parse(lesson.starts_at);
  const event = (startsAt: string, isTeacherOnLeave: boolean): ICalEventData => {
    const lines = [
      lesson.class_name,
      lesson.teacher_name && lesson.teacher_name + (isTeacherOnLeave ? ' (on leave)' : ''),
      `Period ${String(lesson.period)}`,
    ];
    return {
      ...common(lesson, domain),
      summary: lesson.class_name === null ? lesson.title : `${lesson.title}, ${lesson.class_name}`,
      timezone: zone,
      start: local(startsAt),
      end: local(Date.parse(startsAt) + durationMs),
      description: lines.filter(Boolean).join('\n'),
      ...(lesson.room === null ? {} : { location: lesson.room }),
    };
  };
  return [
    {
      ...event(lesson.starts_at, false),
      repeating: {
        freq: ICalEventRepeatingFreq.WEEKLY,
        until: new Date(lesson.last_starts_at),
        ...(lesson.excluded.length === 0 ? {} : { exclude: lesson.excluded.map(local) }),
      },
    },
    ...lesson.on_leave_at.map((startsAt) => ({ ...event(startsAt, true), recurrenceId: local(startsAt) })),
  ];
}

const [minuteMs, hourMs] = [60_000, 3_600_000];

/**
 * The minute at which a time zone changed to `offset` (minutes from UTC). tzScan reports the next full hour, which is
 * up to 59 minutes late: the clocks of St. John's change at 05:30 UTC.
 */
function exactChange(zone: string, found: Date, offset: number): number {
  let before = found.getTime() - hourMs;
  let after = found.getTime();
  while (after - before > minuteMs) {
    const middle = before + Math.floor((after - before) / (2 * minuteMs)) * minuteMs;
    if (tzOffset(zone, new Date(middle)) === offset) after = middle;
    else before = middle;
  }
  return after;
}

/**
 * The definition of a time zone (VTIMEZONE, RFC 5545 section 3.6.5) from one moment to another. ical-generator writes
 * none itself.
 */
function timeZoneText(zone: string, from: Date, to: Date): string {
  const offsetText = (minutes: number) => {
    const total = Math.abs(minutes);
    const digits = [Math.floor(total / 60), total % 60].map((part) => String(part).padStart(2, '0'));
    return `${minutes < 0 ? '-' : '+'}${digits.join('')}`;
  };
  const localText = (moment: number, offset: number) =>
    new Date(moment + offset * 60_000).toISOString().replace(/[-:]|\.000Z/g, '');
  const first = tzOffset(zone, from);
  const changes = [
    { at: from.getTime(), before: first, offset: first },
    ...tzScan(zone, { start: from, end: to }).map(({ date, change, offset }) => ({
      at: exactChange(zone, date, offset),
      before: offset - change,
      offset,
    })),
  ];
  const standard = Math.min(...changes.map(({ offset }) => offset));
  // Each change has a part of its own, because ical.js, with it Thunderbird, reads only the first of several RDATEs.
  const lines = changes.flatMap(({ at, before, offset }) => {
    const name = offset === standard ? 'STANDARD' : 'DAYLIGHT';
    return [
      `BEGIN:${name}`,
      `DTSTART:${localText(at, before)}`,
      `TZOFFSETFROM:${offsetText(before)}`,
      `TZOFFSETTO:${offsetText(offset)}`,
      `END:${name}`,
    ];
  });
  return ['BEGIN:VTIMEZONE', `TZID:${zone}`, ...lines, 'END:VTIMEZONE'].join('\r\n');
}

/** The name of a calendar, escaped: ical-generator does not escape it. */
const nameOf = ({ kind, school, whose }: CalendarData) =>
  [whose?.name, kind === 'holidays' ? `Holidays of ${school}` : school]
    .filter(Boolean)
    .join(', ')
    .replace(/\s+/g, ' ')
    .replace(/[\\;,]/g, '\\$&');

/** Calendars are written in chunks of events, and other requests run between two chunks. */
const chunkEvents = 100;

/** One calendar is written at a time in this process. */
const queue = fairQueue({
  name: 'calendars',
  maxRunning: { total: 1 },
  maxInProgress: { total: 50, school: 25 },
  refusal: () =>
    new ApiError('unavailable', 'Too many calendars are being read. Try again in a moment.', { retryAfter: 10 }),
});

interface CalendarOptions {
  tenantId: number;
  /**
   * The host of the school, which makes the identifiers of events globally unique: below this domain, or the host of
   * the service with the number of the school, because the same ids exist at several schools.
   */
  host: string;
  baseDomain?: string | undefined;
  /** Aborts when the client disconnects. */
  signal?: AbortSignal;
}

/**
 * Writes an iCalendar (RFC 5545). A weekly lesson is one event with a recurrence rule, in the time zone of the school;
 * holidays are whole days.
 * @param data  CalendarData as JSON
 * @throws ApiError `unavailable` when too many calendars are in the queue; the reason of the signal
 */
export async function calendarText(data: string, options: CalendarOptions): Promise<string> {
  const owner = { tenantId: options.tenantId, userId: undefined };
  return queue.run(owner, () => write(JSON.parse(data) as CalendarData, options), options.signal);
}

async function write(data: CalendarData, { host, baseDomain, signal }: CalendarOptions): Promise<string> {
  const domain = baseDomain ? `${data.subdomain}.${baseDomain}` : `${String(data.tenant_id)}.${host}`;
  // Lessons come first, because ical-generator writes the time zone in front of events that use it.
  const events = [
    ...data.lessons.flatMap((lesson) => lessonEvents(lesson, domain, data.time_zone)),
    ...data.holidays.map((holiday) => holidayEvent(holiday, domain)),
  ];
  const years = data.lessons.flatMap(({ starts_at, last_starts_at }) =>
    [starts_at, last_starts_at].map((moment) => new Date(moment).getUTCFullYear()),
  );
  const timeZone =
    years.length === 0
      ? null
      : timeZoneText(
          data.time_zone,
          new Date(Date.UTC(Math.min(...years) - 1, 0)),
          new Date(Date.UTC(Math.max(...years) + 1, 1)),
        );
  const text = (some: ICalEventData[]) =>
    ical({
      name: nameOf(data),
      prodId: '//School management service//Calendar//EN',
      ttl: 3600,
      // Without a zone of the calendar, DTSTAMP and UNTIL are in UTC, as RFC 5545 requires.
      timezone: { name: null, generator: () => timeZone },
      events: some,
    }).toString();
  // The line break keeps these from matching inside a name.
  const [begin, end] = ['\r\nBEGIN:VEVENT', '\r\nEND:VCALENDAR'];
  let calendar = '';
  for (let from = 0; from === 0 || from < events.length; from += chunkEvents) {
    await yieldToEventLoop();
    signal?.throwIfAborted();
    const some = text(events.slice(from, from + chunkEvents));
    calendar += some.slice(from === 0 ? 0 : some.indexOf(begin), some.lastIndexOf(end));
  }
  return `${calendar}${end}\r\n`;
}
