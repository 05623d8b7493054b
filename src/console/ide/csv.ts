/** The cells of a .csv. */
export function parseCsv(text: string): string[][] {
  const rows: string[][] = [[]];
  const cells = text.replace(/^\uFEFF/, '').matchAll(/("(?:[^"]|"")*"|[^,\r\n]*)(,|\r?\n|$)/g);
  for (const [found, cell = '', end = ''] of cells) {
    if (found === '') break;
    rows.at(-1)?.push(cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell);
    if (end !== ',' && end !== '') rows.push([]);
  }
  return rows.filter((row) => row.length > 0);
}
