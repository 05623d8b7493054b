import { buffer } from 'node:stream/consumers';
import type { Readable } from 'node:stream';
import { describe, expect, test } from '@jest/globals';
import { strFromU8, unzipSync } from 'fflate';
import { type Cell, readSheet, type Sheet, sheetFile } from '../../src/documents/spreadsheets.ts';

const written = (format: 'csv' | 'xlsx', ...sheets: [Sheet, ...Sheet[]]) =>
  buffer(sheetFile(format, 'x', sheets).content as Readable);
const columns = (...headers: string[]) => headers.map((header) => ({ header }));
const readBack = async (format: 'csv' | 'xlsx', rows: Cell[][]) => {
  const content = await written(format, { name: 'S', columns: columns('a', 'b'), rows });
  return (await readSheet({ content, contentType: format === 'csv' ? 'text/csv' : 'xlsx' }, 100))
    .slice(1)
    .map(({ cells }) => cells);
};

describe.each(['csv', 'xlsx'] as const)('a .%s', (format) => {
  test('is read as it was written', async () => {
    const rows: Cell[][] = [
      ['a "quoted", text; & <more>', 'two\nlines'],
      [1.5, -3],
      [true, false],
      [new Date('2024-02-29'), new Date('1850-12-31')],
      [new Date('1900-02-28'), new Date('1900-03-01')],
      [null, '大江 🌻'],
      ['_x0041_', '_x_'],
    ];
    expect(await readBack(format, rows)).toEqual([
      ['a "quoted", text; & <more>', 'two\nlines'],
      ['1.5', '-3'],
      ['true', 'false'],
      ['2024-02-29', '1850-12-31'],
      ['1900-02-28', '1900-03-01'],
      ['', '大江 🌻'],
      ['_x0041_', '_x_'],
    ]);
  });

  test('has no text that a program could run as a formula, and is read as the original text', async () => {
    const formulas = ['=1+1', '+1', '-1', '@x', '\t=1', '\r=1', '＝1+1', '＋1', '－1', '＠x'];
    const content = await written(format, {
      name: 'S',
      columns: columns('=header', 'b'),
      rows: formulas.map((formula) => [formula, 'x']),
    });
    const shown =
      format === 'csv'
        ? content.toString()
        : strFromU8(unzipSync(content)['xl/worksheets/sheet1.xml'] ?? new Uint8Array());
    for (const formula of ['=header', ...formulas])
      expect(shown).toContain(`'${formula.replace('\r', format === 'csv' ? '\r' : '&#13;')}`);
    expect(await readBack(format, [['=1+1', "''-x", '＝1']])).toEqual([['=1+1', "''-x", '＝1']]);
  });

  test('is written while it is sent, so a client that stops early does not cause all rows to be read', async () => {
    let asked = 0;
    function* rows(): Generator<Cell[]> {
      for (; asked < 1_000_000; asked++) yield [asked, 'some text that takes place'];
    }
    const content = sheetFile(format, 'x', [{ name: 'S', columns: columns('a', 'b'), rows: rows() }])
      .content as Readable;
    let bytes = 0;
    for await (const chunk of content) {
      bytes += (chunk as Buffer).length;
      if (bytes > 100_000) break;
    }
    expect(asked).toBeGreaterThan(1000);
    expect(asked).toBeLessThan(500_000);
  });

  test('fails with the error of its rows', async () => {
    async function* rows(): AsyncGenerator<Cell[]> {
      await Promise.resolve();
      yield ['1', '2'];
      throw new Error('the rows ran out');
    }
    await expect(written(format, { name: 'S', columns: columns('a', 'b'), rows: rows() })).rejects.toThrow(
      'the rows ran out',
    );
  });
});

describe('an .xlsx', () => {
  test('can have several sheets, of which the first is read; declares all parts, and formats text columns as text', async () => {
    const content = await written(
      'xlsx',
      { name: 'One & <only>', columns: [{ header: 'a', isText: true }, { header: 'b' }], rows: [['1', '2']] },
      { name: 'Two', columns: columns('c'), rows: [['3']] },
    );
    const parts = Object.fromEntries(Object.entries(unzipSync(content)).map(([name, part]) => [name, strFromU8(part)]));
    const types = parts['[Content_Types].xml'] ?? '';
    expect(
      Object.keys(parts).filter(
        (name) => name.startsWith('xl/') && !name.endsWith('.rels') && !types.includes(`PartName="/${name}"`),
      ),
    ).toEqual([]);
    expect(parts['xl/workbook.xml']).toContain('name="One &#38; &#60;only&#62;"');
    expect(parts['xl/worksheets/sheet1.xml']).toMatch(/<col min="1" max="1" [^>]*style="2"/);
    expect(await readSheet({ content, contentType: 'xlsx' }, 10)).toEqual([
      { line: 1, cells: ['a', 'b'] },
      { line: 2, cells: ['1', '2'] },
    ]);
  });

  test('has no characters that XML does not allow', async () => {
    expect(await readBack('xlsx', [['a\0b\u0001c\ufffed', 'x\ud800y']])).toEqual([['abcd', 'x\ufffdy']]);
  });

  test('has cells of 32,767 characters at most', async () => {
    const content = await written('xlsx', { name: 'S', columns: columns('a'), rows: [['x'.repeat(40_000)]] });
    expect(strFromU8(unzipSync(content)['xl/worksheets/sheet1.xml'] ?? new Uint8Array())).toMatch(/>x{32767}</);
  });
});
