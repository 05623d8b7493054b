import { setImmediate as yieldToEventLoop } from 'node:timers/promises';
import ical, { type ICalEventData, ICalEventBusyStatus, ICalEventTransparency } from 'ical-generator';
import PQueue from 'p-queue';
import { ApiError } from '../domain/errors.ts';

/** The answer of the operation `calendar_get`. */
export interface CalendarData {
  kind: 'own' | 'class' | 'teacher' | 'holidays';
  tenant_id: number;
  school: string;
  /** The class or teacher of the lessons; null for a calendar of holidays. */
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
  /** `YYYY-MM-DD`. */
  date: string;
}

/** Seconds since 2020. SEQUENCE must grow with each change of an event, and calendar apps store it in 31 bits. */
const sequence = (changed: Date) => Math.max(0, Math.floor((changed.getTime() - Date.UTC(2020, 0)) / 1000));

function eventData(event: Lesson | Holiday, domain: string): ICalEventData {
  const changed = new Date(event.changed_at);
  // Nothing here depends on the time of the request, so that an unchanged calendar keeps its ETag.
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
const queue = new PQueue({ concurrency: 1 });

/** How many calendars may be in the queue, including the one in progress: in total, and for one school. */
const maxQueued = { total: 50, school: 25 };
const queuedPerSchool = new Map<number, number>();

interface CalendarOptions {
  tenantId: number;
  /** The host of the service, which makes the identifiers of events globally unique. */
  host: string;
  /** Aborts when the client disconnects. */
  signal?: AbortSignal;
}

/**
 * Writes an iCalendar (RFC 5545). Times are in UTC; holidays are whole days.
 * @param data  CalendarData as JSON
 * @throws ApiError `unavailable` when too many calendars are in the queue; the reason of the signal
 */
export async function calendarText(data: string, { tenantId, host, signal }: CalendarOptions): Promise<string> {
  const ofSchool = queuedPerSchool.get(tenantId) ?? 0;
  if (ofSchool >= maxQueued.school || queue.pending + queue.size >= maxQueued.total)
    throw new ApiError('unavailable', 'Too many calendars are being read. Try again in a moment.', { retryAfter: 10 });
  queuedPerSchool.set(tenantId, ofSchool + 1);
  try {
    return await queue.add(() => write(JSON.parse(data) as CalendarData, host, signal));
  } finally {
    const left = (queuedPerSchool.get(tenantId) ?? 1) - 1;
    if (left > 0) queuedPerSchool.set(tenantId, left);
    else queuedPerSchool.delete(tenantId);
  }
}

async function write(data: CalendarData, host: string, signal: AbortSignal | undefined): Promise<string> {
  // The same ids exist at several schools.
  const domain = `${String(data.tenant_id)}.${host}`;
  const text = (events: CalendarData['events']) =>
    ical({
      name: nameOf(data),
      prodId: '//School management service//Calendar//EN',
      ttl: 3600,
      timezone: null,
      events: events.map((event) => eventData(event, domain)),
    }).toString();
  // The line break keeps these from matching inside a name.
  const [begin, end] = ['\r\nBEGIN:VEVENT', '\r\nEND:VCALENDAR'];
  const empty = text([]);
  let calendar = empty.slice(0, empty.lastIndexOf(end));
  for (let from = 0; from < data.events.length; from += chunkEvents) {
    await yieldToEventLoop();
    signal?.throwIfAborted();
    const some = text(data.events.slice(from, from + chunkEvents));
    calendar += some.slice(some.indexOf(begin), some.lastIndexOf(end));
  }
  return `${calendar}${end}\r\n`;
}
