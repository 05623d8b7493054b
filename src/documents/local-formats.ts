import { dayFormat, defaultLocale, moneyFormat } from '../domain/money.ts';
import { glyphsOf } from './glyphs.ts';
import { isRightToLeft } from './scripts.ts';
import type { Document } from './text.ts';

/** How a document writes dates and numbers. */
interface LocalFormats {
  /** A day, given as `YYYY-MM-DD`. */
  day: (day: string) => string;
  /** The name of a day of the week; 1 is Monday. */
  weekday: (day: number) => string;
  number: (value: number) => string;
  money: (currency: string, decimals: number) => (amount: number) => string;
}

const monday = Date.UTC(2024, 0, 1);
const formatsByLocale = new Map<string, LocalFormats>();

function createFormats(locale: string): LocalFormats {
  const weekday = new Intl.DateTimeFormat(locale, { weekday: 'long', timeZone: 'UTC' });
  const number = new Intl.NumberFormat(locale);
  return {
    day: dayFormat(locale),
    weekday: (day) => weekday.format(monday + (day - 1) * 86_400_000),
    number: (value) => number.format(value),
    money: (currency, decimals) => moneyFormat(currency, decimals, locale),
  };
}

/** Whether the fonts have all letters of its dates and numbers, and they are written from left to right. */
function isPrintable(doc: Document, { day, weekday, number }: LocalFormats): boolean {
  const sample = [
    ...Array.from({ length: 12 }, (_, month) => day(`2024-${String(month + 1).padStart(2, '0')}-01`)),
    ...Array.from({ length: 7 }, (_, n) => weekday(n + 1)),
    number(1_234_567_890.5),
  ].join(' ');
  const hasGlyph = glyphsOf(doc);
  return !isRightToLeft(sample) && Array.from(sample).every((letter) => /\s/.test(letter) || hasGlyph(letter));
}

/** The formats of a locale, or of the default one if the locale cannot be printed. */
export function localFormats(doc: Document, locale: string): LocalFormats {
  let formats = formatsByLocale.get(locale);
  if (!formats) {
    const own = createFormats(locale);
    formats = isPrintable(doc, own) ? own : createFormats(defaultLocale);
    formatsByLocale.set(locale, formats);
  }
  return formats;
}
