import { localFormats } from './local-formats.ts';
import {
  closeDocument,
  colors,
  contentBottom,
  type Letterhead,
  margin,
  openDocument,
  printable,
  writeFooter,
  writeHeader,
} from './page.ts';
import { addElement, contentsOf, drawDecoration, drawElement, type Element, english } from './tags.ts';
import { type Box, type Document, joinParts, lineHeight, truncate, wrap, writeLine, writeLines } from './text.ts';

interface Row {
  kind: 'period' | 'lunch' | 'break';
  /** Null for a break. */
  period: number | null;
  start_time: string;
  end_time: string;
}

/** The answer of the operation `timetable_print`. */
export interface TimetableData {
  letterhead: Letterhead;
  whose: { kind: 'class' | 'teacher'; name: string };
  academic_year: string;
  printed_on: string;
  /** 1 is Monday. */
  days: number[];
  rows: Row[];
  slots: { day_of_week: number; period: number; subject: string; with_whom: string | null; room: string | null }[];
}

/** Background colors of the subjects: pale, to save ink. */
const fills = [
  '#e8f0fe',
  '#fdeee3',
  '#e6f5ea',
  '#f6e9f7',
  '#fff7d6',
  '#e3f4f6',
  '#fbe7ea',
  '#eceff1',
  '#eef4d9',
  '#ece8fb',
];

const timeWidth = 66;
const headerHeight = 20;
const breakHeight = 11;
const lunchHeight = 18;
const padding = 3;

const minSize = 5;

/** Writes the subject and its details centered in a box, in the largest size that fits. */
function writeSlot(doc: Document, subject: string, details: string[], { x, y, width }: Box, height: number): void {
  const styles = (size: number) =>
    [
      { font: 'bold', size, align: 'center' } as const,
      { font: 'regular', size: size - 0.5, align: 'center' } as const,
    ] as const;
  const write = (size: number, head: string[], below: string[]) => {
    const [bold, regular] = styles(size);
    const top = y + (height - head.length * lineHeight(bold.size) - below.length * lineHeight(regular.size)) / 2;
    writeLines(doc, below, regular, { x, y: writeLines(doc, head, bold, { x, y: top, width }), width });
  };
  for (let size = 9.5; size >= minSize; size -= 0.5) {
    const [bold, regular] = styles(size);
    const head = wrap(doc, subject, bold, width);
    for (const layout of head ? [details, joinParts(doc, details, regular, width)] : []) {
      const below = layout.length > 0 ? wrap(doc, layout.join('\n'), regular, width) : [];
      if (!head || !below || head.length * lineHeight(bold.size) + below.length * lineHeight(regular.size) > height)
        continue;
      write(size, head, below);
      return;
    }
  }
  // Still too long: break words and truncate. The subject gets the larger half.
  const [bold, regular] = styles(minSize);
  const lines = Math.max(1, Math.floor(height / lineHeight(minSize)));
  const head = truncate(doc, subject, bold, width, Math.ceil(lines / 2));
  write(
    minSize,
    head,
    lines > head.length && details.length > 0
      ? truncate(doc, joinParts(doc, details, regular, width).join('\n'), regular, width, lines - head.length)
      : [],
  );
}

interface BreakRow {
  name: string;
  times: string;
  /** The number of days. */
  columns: number;
}

/** Writes the row of a break, or of lunch without lessons. */
function writeBreak(
  doc: Document,
  row: Element,
  { name, times, columns }: BreakRow,
  { x, y, width }: Box,
  height: number,
): void {
  const size = Math.min(8, height * 0.6);
  const style = { font: 'regular', size, color: colors.quiet, align: 'center' } as const;
  const top = y + (height - lineHeight(size)) / 2;
  drawDecoration(doc, () => doc.rect(x, y, width, height).fill(colors.shade));
  drawElement(doc, row, 'TH', () => writeLine(doc, times, style, { x, y: top, width: timeWidth }), { scope: 'Row' });
  drawElement(
    doc,
    row,
    'TD',
    () => writeLine(doc, name, style, { x: x + timeWidth, y: top, width: width - timeWidth }),
    { columns, ...english },
  );
}

/** Writes the number and the times of a period. */
function writePeriod(doc: Document, period: string, times: string, { x, y, width }: Box, height: number): void {
  const size = Math.min(10, height / 2.6);
  const top = y + (height - lineHeight(size) - lineHeight(size - 2)) / 2;
  writeLine(doc, period, { font: 'bold', size, align: 'center' }, { x, y: top, width }, 4);
  writeLine(
    doc,
    times,
    { font: 'regular', size: size - 2, color: colors.quiet, align: 'center' },
    { x, y: top + lineHeight(size), width },
    4,
  );
}

/** The weekly timetable of a class or a teacher on one A4 page: days are columns, periods are rows. */
export async function timetablePdf(data: TimetableData): Promise<Buffer> {
  const { whose, days, rows, slots, letterhead } = data;
  const heading = {
    title: whose.name,
    subtitle: [
      whose.kind === 'class' ? 'Class timetable' : 'Teacher timetable',
      data.academic_year,
      ...(slots.length === 0 ? ['no lessons yet'] : []),
    ].join(' · '),
    printed_on: data.printed_on,
  };
  const doc = openDocument({ ...heading, title: `Timetable ${whose.name}` }, letterhead, 'landscape');
  const top = writeHeader(doc, letterhead, heading);
  const { weekday } = localFormats(doc, letterhead.locale);
  const [left, right] = [margin, doc.page.width - margin];

  const bySlot = new Map(slots.map((slot) => [`${String(slot.day_of_week)} ${String(slot.period)}`, slot]));
  const periodsWithLessons = new Set(slots.map(({ period }) => period));
  const subjects = [...new Set(slots.map(({ subject }) => subject))].sort();
  // Lunch gets a full row if there is a lesson in it.
  const breakHeightOf = ({ kind, period }: Row) =>
    kind === 'break' ? breakHeight : kind === 'lunch' && !periodsWithLessons.has(period ?? 0) ? lunchHeight : undefined;
  const lessonRows = rows.filter((row) => breakHeightOf(row) === undefined).length;
  const freeHeight =
    contentBottom(doc) - top - headerHeight - rows.reduce((sum, row) => sum + (breakHeightOf(row) ?? 0), 0);
  const rowHeight = Math.min(64, freeHeight / Math.max(1, lessonRows));
  const dayWidth = (right - left - timeWidth) / days.length;
  const columns = days.map((_, n) => left + timeWidth + n * dayWidth);
  const cell = (n: number, y: number): Box => ({ x: (columns[n] ?? left) + padding, y, width: dayWidth - 2 * padding });
  const edges: [number, number, number, number][] = [];

  const table = addElement(doc, contentsOf(doc), 'Table');
  const titles = addElement(doc, table, 'TR');
  addElement(doc, titles, 'TD');
  drawDecoration(doc, () => doc.rect(left, top, right - left, headerHeight).fill(colors.shade));
  for (const [n, day] of days.entries())
    drawElement(
      doc,
      titles,
      'TH',
      () => writeLine(doc, weekday(day), { font: 'bold', size: 9.5, align: 'center' }, cell(n, top + 4)),
      { scope: 'Column' },
    );
  edges.push([left, top, right, top], ...columns.map((x): (typeof edges)[number] => [x, top, x, top + headerHeight]));

  let y = top + headerHeight;
  for (const row of rows) {
    const breakRowHeight = breakHeightOf(row);
    const height = breakRowHeight ?? rowHeight;
    const times = `${row.start_time}–${row.end_time}`;
    const tableRow = addElement(doc, table, 'TR');
    edges.push([left, y, right, y], [columns[0] ?? left, y, columns[0] ?? left, y + height]);
    if (breakRowHeight !== undefined) {
      const pause = { name: row.kind === 'break' ? 'Break' : 'Lunch', times, columns: days.length };
      writeBreak(doc, tableRow, pause, { x: left, y, width: right - left }, height);
    } else {
      const box = { x: left, y, width: timeWidth };
      drawElement(doc, tableRow, 'TH', () => writePeriod(doc, String(row.period), times, box, height), {
        scope: 'Row',
      });
      for (const [n, day] of days.entries()) {
        const slot = bySlot.get(`${String(day)} ${String(row.period)}`);
        const x = columns[n] ?? left;
        edges.push([x, y, x, y + height]);
        if (!slot) {
          addElement(doc, tableRow, 'TD');
          continue;
        }
        const top = y;
        const fill = fills[subjects.indexOf(slot.subject) % fills.length] ?? 'white';
        drawDecoration(doc, () => doc.rect(x, top, dayWidth, height).fill(fill));
        const details = [slot.with_whom, slot.room]
          .map((part) => printable(doc, part ?? ''))
          .filter((part) => part !== '');
        drawElement(doc, tableRow, 'TD', () =>
          writeSlot(doc, printable(doc, slot.subject), details, cell(n, top + 2), height - 4),
        );
      }
    }
    y += height;
  }
  edges.push([left, y, right, y], [left, top, left, y], [right, top, right, y]);

  drawDecoration(doc, () => {
    doc.lineWidth(0.6).strokeColor(colors.line);
    for (const [fromX, fromY, toX, toY] of edges) doc.moveTo(fromX, fromY).lineTo(toX, toY);
    doc.stroke();
  });
  writeFooter(doc, letterhead, heading);
  return closeDocument(doc);
}
