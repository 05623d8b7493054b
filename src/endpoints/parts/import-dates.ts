/** The day that a cell shows, both days that it may show, or what is wrong with it. */
export type DateReading = { day: string } | { either: EitherDay } | { message: string };

/** A date of which the school has to say whether it begins with the day or the month. Null: that is no date. */
export interface EitherDay {
  text: string;
  day_first: string | null;
  month_first: string | null;
  is_dotted: boolean;
}

/** `YYYY-MM-DD`; null if there is no such day. */
function isoDay(year: number, month: number, day: number): string | null {
  const date = new Date(Date.UTC(year, month - 1, day));
  date.setUTCFullYear(year);
  const text = date.toISOString().slice(0, 10);
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day && year >= 1000 ? text : null;
}

const months = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const fullMonths = [
  'january',
  'february',
  'march',
  'april',
  'may',
  'june',
  'july',
  'august',
  'september',
  'october',
  'november',
  'december',
];

/** The number of a month by its English name, also shortened: Sep, Sept and September. */
function monthOf(name: string): number {
  const word = name.toLowerCase();
  return (
    fullMonths.findIndex((month, at) => month === word || months[at] === word || (word === 'sept' && at === 8)) + 1
  );
}

/** No date is longer. A limit, because the time of some expressions below grows with the square of the length. */
const maxLength = 60;

/** A time of day after a date, as exports of databases write it. */
const timeOfDay = /[T ]+\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[AP]M)?$/i;

const yearFirst = /^(\d{4})([/.-])(\d{1,2})\2(\d{1,2})$/;
const compact = /^([12]\d{3})(\d\d)(\d\d)$/;
const yearLast = /^(\d{1,2})([/.-])(\d{1,2})\2(\d{4})$/;
const namedDay = /^(\d{1,2})(?:st|nd|rd|th)?[ ./-]+([a-z]{3,9})[ .,/-]+(\d{4})$/i;
const namedMonth = /^([a-z]{3,9})\.? +(\d{1,2})(?:st|nd|rd|th)?,? +(\d{4})$/i;

/**
 * Reads a date that is not `YYYY-MM-DD`. Texts that are no date, among them those with a year of two digits, stay as
 * they are: the validation reports them.
 */
export function readDate(cell: string): DateReading {
  if (cell.length > maxLength) return { day: cell };
  const text = cell.replace(timeOfDay, '');
  const [, y = '', , ym = '', yd = ''] = yearFirst.exec(text) ?? [];
  const [, cy = '', cm = '', cd = ''] = compact.exec(text) ?? [];
  const [, nd = '', nm = '', ny = ''] = namedDay.exec(text) ?? [];
  const [, mm = '', md = '', my = ''] = namedMonth.exec(text) ?? [];
  for (const [year, month, day] of [
    [y, Number(ym), yd],
    [cy, Number(cm), cd],
    [ny, monthOf(nm), nd],
    [my, monthOf(mm), md],
  ] as const)
    if (year !== '' && month > 0) return { day: isoDay(Number(year), month, Number(day)) ?? cell };
  const [, first = '', separator, second = '', year = ''] = yearLast.exec(text) ?? [];
  if (year === '') return { day: cell };
  const [one, other] = [Number(first), Number(second)];
  const either = {
    text,
    day_first: isoDay(Number(year), other, one),
    month_first: isoDay(Number(year), one, other),
    is_dotted: separator === '.',
  };
  return either.day_first === null && either.month_first === null ? { day: cell } : { either };
}

/** A format such as `DD/MM/YYYY`, `M/D/YYYY`, `DD MMM YYYY` or `YYYYMMDD`. */
export const isDateFormat = (format: string): boolean =>
  /^[DMY /.,-]{6,20}$/i.test(format) &&
  (format.match(/D+/gi) ?? []).every((part) => part.length <= 2) &&
  (format.match(/M+/gi) ?? []).every((part) => part.length <= 4) &&
  (format.match(/Y+/gi) ?? []).every((part) => part.length === 4) &&
  [/D+/gi, /M+/gi, /Y+/gi].every((part) => format.match(part)?.length === 1);

/** The reader of dates in a format of `isDateFormat`. */
export function dateReader(format: string): (cell: string) => DateReading {
  const order: string[] = [];
  const pattern = format.replace(/(D+|M+|Y+)| +|[^DMY]/gi, (part, token?: string) => {
    if (token === undefined) return part.startsWith(' ') ? ' +' : `\\${part}`;
    const letter = token.charAt(0).toUpperCase();
    order.push(letter);
    if (letter === 'Y') return '(\\d{4})';
    if (token.length > 2) return '([A-Za-z]{3,9})';
    // Without separators the widths tell the parts apart.
    return /^[DMY]+$/i.test(format) ? '(\\d\\d)' : '(\\d{1,2})';
  });
  const whole = new RegExp(`^${pattern}$`, 'i');
  return (cell) => {
    const parts = cell.length > maxLength ? undefined : whole.exec(cell.replace(timeOfDay, ''))?.slice(1);
    const part = (letter: string) => parts?.[order.indexOf(letter)] ?? '';
    const month = /^\d/.test(part('M')) ? Number(part('M')) : monthOf(part('M'));
    const day = parts && month > 0 ? isoDay(Number(part('Y')), month, Number(part('D'))) : null;
    return day === null ? { message: `must be a date in the format ${format.toUpperCase()}, or YYYY-MM-DD` } : { day };
  };
}
