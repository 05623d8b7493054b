import { setImmediate as nextTurn } from 'node:timers/promises';
import ical, { type ICalEventData, ICalEventBusyStatus, ICalEventTransparency } from 'ical-generator';

/** What the operation `calendar_get` answers. */
export interface CalendarData {
  kind: 'own' | 'class' | 'teacher' | 'holidays';
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

function eventData(event: Lesson | Holiday, host: string): ICalEventData {
  const changed = new Date(event.changed_at);
  // What it is called, when it changed last: the same each time it is read, so that the calendar as a whole is too.
  const common = { id: `${event.uid}@${host}`, summary: event.title, stamp: changed, lastModified: changed, sequence: sequence(changed) };
  if (event.starts_at === null) {
    const start = new Date(`${event.date}T00:00:00Z`);
    return { ...common, start, allDay: true, transparency: ICalEventTransparency.TRANSPARENT, busystatus: ICalEventBusyStatus.FREE };
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
const chunkEvents = 200;

/**
 * An iCalendar (RFC 5545). Moments are in UTC, holidays are days.
 * @param host  where the service is, for identifiers that no other service makes
 */
export async function calendarText(data: CalendarData, host: string): Promise<string> {
  const text = (events: CalendarData['events']) =>
    ical({
      name: nameOf(data),
      prodId: '//School management service//Calendar//EN',
      ttl: 3600,
      timezone: null,
      events: events.map((event) => eventData(event, host)),
    }).toString();
  // Line breaks in front: no name can hold these lines.
  const [begin, end] = ['\r\nBEGIN:VEVENT', '\r\nEND:VCALENDAR'];
  const empty = text([]);
  let calendar = empty.slice(0, empty.lastIndexOf(end));
  for (let from = 0; from < data.events.length; from += chunkEvents) {
    if (from > 0) await nextTurn();
    const some = text(data.events.slice(from, from + chunkEvents));
    calendar += some.slice(some.indexOf(begin), some.lastIndexOf(end));
  }
  return `${calendar}${end}\r\n`;
}
