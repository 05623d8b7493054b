import { ask, isInteractive } from './prompt.ts';

/** The option that every command with a result has. */
export interface Format {
  json?: boolean;
}

export const print = (text: string): void => void process.stdout.write(`${text}\n`);

/** Formats a table; columns of numbers are right-aligned. */
export function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const widths = head.map((name, column) => Math.max(name.length, ...rows.map((row) => String(row[column]).length)));
  const isNumber = head.map((_, column) => rows.every((row) => typeof row[column] === 'number'));
  return [head, ...rows]
    .map((row) =>
      row.map((cell, column) =>
        isNumber[column] ? String(cell).padStart(widths[column] ?? 0) : String(cell).padEnd(widths[column] ?? 0),
      ),
    )
    .map((cells) => `${cells.join('  ').trimEnd()}\n`)
    .join('');
}

/** Formats names and values in two columns. */
export const fields = (lines: readonly (readonly [string, string])[]): string => {
  const width = Math.max(...lines.map(([name]) => name.length));
  return lines.map(([name, value]) => `${name.padEnd(width)}  ${value}\n`).join('');
};

/** A text of several lines whose second and further lines begin with so many spaces more. */
export const indented = (text: string, spaces: number): string => text.replaceAll('\n', `\n${' '.repeat(spaces)}`);

/** Formats a duration with its two largest units: `2 d 3 h`. */
export function duration(seconds: number): string {
  const whole = Math.floor(seconds);
  const units = [
    [Math.floor(whole / 86_400), 'd'],
    [Math.floor(whole / 3_600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ] as const;
  const first = units.findIndex(([value]) => value > 0);
  if (first < 0) return '0 s';
  return units
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${String(value)} ${unit}`)
    .join(' ');
}

/** `1 school`, `2 schools`. */
export const counted = (count: number, noun: string): string => `${String(count)} ${noun}${count === 1 ? '' : 's'}`;

/**
 * Asks before something is deleted. @param consequence  a sentence without a full stop
 * @throws unless the user types yes, or `isConfirmed`
 */
export async function confirm(consequence: string, isConfirmed: boolean | undefined): Promise<void> {
  if (isConfirmed) return;
  if (!isInteractive()) throw new Error(`${consequence}. Without a terminal, confirm with --yes.`);
  if ((await ask(`${consequence}. Type yes to continue: `)) !== 'yes') throw new Error('Nothing was changed.');
}
