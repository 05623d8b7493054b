import { setImmediate as nextTurn } from 'node:timers/promises';
import { ApiError } from '../domain/errors.ts';
import ical, { type ICalEventData, ICalEventBusyStatus, ICalEventTransparency } from 'ical-generator';

/** What the operation `calendar_get` answers. */
export interface CalendarData {
  kind: 'own' | 'class' | 'teacher' | 'holidays';
  tenant_id: number;
  school: string;
  /** Whose lessons they are; null for holidays alone. */
  whose: { name: string } | null;
  events: (Lesson | Holiday)[];
}

interface Event {
  uid: string;
  title: string;
  changed_at: string;
}
interface Lesson extends Event {
  starts_at: string;
  ends_at: string;
  date: null;
  class_name: string | null;
  teacher_name: string | null;
  is_teacher_on_leave: boolean;
  period: number;
  room: string | null;
}
interface Holiday extends Event {
  starts_at: null;
  /** The whole of this day. */
  date: string;
}

/** Seconds since 2020: it grows whenever something that an event tells is changed, and fits the 31 bits that programs have for it. */
const sequence = (changed: Date) => Math.max(0, Math.floor((changed.getTime() - Date.UTC(2020, 0)) / 1000));

function eventData(event: Lesson | Holiday, domain: string): ICalEventData {
  const changed = new Date(event.changed_at);
  // What it is called, when it changed last: the same each time it is read, so that the calendar as a whole is too.
  const common = {
    id: `${event.uid}@${domain}`,
    summary: event.title,
    stamp: changed,
    lastModified: changed,
    sequence: sequence(changed),
  };
  if (event.starts_at === null) {
    const start = new Date(`${event.date}T00:00:00Z`);
    return {
      ...common,
      start,
      allDay: true,
      transparency: ICalEventTransparency.TRANSPARENT,
      busystatus: ICalEventBusyStatus.FREE,
    };
  }
  const lines = [
    event.class_name ?? undefined,
    event.teacher_name && event.teacher_name + (event.is_teacher_on_leave ? ' (on leave)' : ''),
    `Period ${String(event.period)}`,
  ];
  return {
    ...common,
    summary: event.class_name === null ? event.title : `${event.title}, ${event.class_name}`,
    start: new Date(event.starts_at),
    end: new Date(event.ends_at),
    description: lines.filter(Boolean).join('\n'),
    ...(event.room === null ? {} : { location: event.room }),
  };
}

/** The name of a calendar, as text of iCalendar: ical-generator writes this one as it is. */
const nameOf = ({ kind, school, whose }: CalendarData) =>
  [whose?.name, kind === 'holidays' ? `Holidays of ${school}` : school]
    .filter(Boolean)
    .join(', ')
    .replace(/\s+/g, ' ')
    .replace(/[\\;,]/g, '\\$&');

/** Events at a time; others have their turn between. */
const chunkEvents = 100;

/** How many may wait for their calendar, the one that is being made among them: in all, and of a school, so that none takes the places of all others. */
const maxWaiting = { all: 50, school: 25 };
const waiting = new Map<number, number>();
let last: Promise<unknown> = Promise.resolve();

interface Reader {
  tenantId: number;
  /** Where the service is, for identifiers that no other service makes. */
  host: string;
  signal?: AbortSignal;
}

/**
 * An iCalendar (RFC 5545). Moments are in UTC, holidays are days. One is made at a time, in pieces, so that ten of them do not hold
 * everybody else up.
 * @param data  CalendarData as JSON
 * @throws ApiError unavailable when too many wait; the signal's reason
 */
export async function calendarText(data: string, { tenantId, host, signal }: Reader): Promise<string> {
  const ofSchool = waiting.get(tenantId) ?? 0;
  const all = [...waiting.values()].reduce((sum, count) => sum + count, 0);
  if (ofSchool >= maxWaiting.school || all >= maxWaiting.all)
    throw new ApiError('unavailable', 'Too many calendars are being read. Try again in a moment.', { retryAfter: 10 });
  waiting.set(tenantId, ofSchool + 1);
  const leave = () => {
    const left = (waiting.get(tenantId) ?? 1) - 1;
    if (left > 0) waiting.set(tenantId, left);
    else waiting.delete(tenantId);
  };
  const made = last.then(() => write(JSON.parse(data) as CalendarData, host, signal)).finally(leave);
  last = made.catch(() => undefined);
  return made;
}

async function write(data: CalendarData, host: string, signal: AbortSignal | undefined): Promise<string> {
  // Two schools of one service may have lessons of the same numbers.
  const domain = `${String(data.tenant_id)}.${host}`;
  const text = (events: CalendarData['events']) =>
    ical({
      name: nameOf(data),
      prodId: '//School management service//Calendar//EN',
      ttl: 3600,
      timezone: null,
      events: events.map((event) => eventData(event, domain)),
    }).toString();
  // Line breaks in front: no name can hold these lines.
  const [begin, end] = ['\r\nBEGIN:VEVENT', '\r\nEND:VCALENDAR'];
  const empty = text([]);
  let calendar = empty.slice(0, empty.lastIndexOf(end));
  for (let from = 0; from < data.events.length; from += chunkEvents) {
    await nextTurn();
    signal?.throwIfAborted();
    const some = text(data.events.slice(from, from + chunkEvents));
    calendar += some.slice(some.indexOf(begin), some.lastIndexOf(end));
  }
  return `${calendar}${end}\r\n`;
}
