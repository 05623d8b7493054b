/** The message says why an uploaded file is refused. */
export class FileRefusal extends Error {}

/** @param maxRows  including the header */
export const tooManyRows = (maxRows: number): FileRefusal =>
  new FileRefusal(`The file has more than ${String(maxRows - 1)} rows below the header. Split it.`);

/** @param line  from 1 */
export const tooManyColumns = (line: number, maxColumns: number): FileRefusal =>
  new FileRefusal(`Line ${String(line)} has more than ${String(maxColumns)} columns.`);
