import { describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { fileForm } from '../support/fixtures/pictures.ts';
import { relationships, sheet, text, workbook } from '../support/fixtures/workbooks.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { strToU8 } from 'fflate';

// The shapes of the files that spreadsheet programs, databases and other school systems write.

const { service, school } = await serviceWithSchool();

interface Report {
  rows: number;
  valid: number;
  errors: { row: number | null; column: string | null; message: string }[];
  ids: number[];
}

const send = (who: Client, content: Buffer | string, name: string, query = '?allow_duplicates=true') => {
  const form = fileForm(Buffer.from(content), name, 'application/octet-stream', 'file');
  return who.send<Report>('POST', `/api/students/import${query}`, { body: form });
};

/** Imports a file. @returns the stored values of its students */
async function imported(content: Buffer | string, name = 'people.xlsx') {
  const answer = await send(school.admin, content, name);
  expect({ status: answer.status, message: answer.message, details: answer.details }).toMatchObject({ status: 201 });
  return service.database.query(
    `select first_name, last_name, date_of_birth::text, phone, admission_number, roll_number, address, is_active
     from ${school.schema}.student where id = any ($1) order by id`,
    [answer.data.ids],
  );
}

const errorsOf = async (content: Buffer | string, name = 'people.xlsx') => {
  const answer = await send(school.admin, content, name, '?dry_run=true');
  return answer.status === 200
    ? answer.data.errors.map(({ row, column, message }) => `${row ?? '-'} ${column ?? '-'}: ${message}`)
    : answer.message;
};

const columns = ['first_name', 'last_name', 'date_of_birth', 'phone', 'roll_number', 'address', 'is_active'];
const header = `<row r="1">${columns.map((column, at) => text(`${'ABCDEFG'.charAt(at)}1`, column)).join('')}</row>`;
const names = `${text('A2', 'Ada')}${text('B2', 'Byron')}`;
/** A sheet with one student. Styles: 1 day, 2 day and time, 3 `000000`, 4 `"E-"0000`, 5 phone, 6 percent, 7 currency. */
const styles =
  '<styleSheet><numFmts count="5"><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd\\ hh:mm"/><numFmt numFmtId="165" formatCode="000000"/>' +
  '<numFmt numFmtId="166" formatCode="&quot;E-&quot;0000"/><numFmt numFmtId="167" formatCode="\\(000\\)\\ 000\\-0000;@"/>' +
  '<numFmt numFmtId="168" formatCode="&quot;$&quot;#,##0.00"/></numFmts><cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>' +
  `<cellXfs>${['0', '14', '164', '165', '166', '167', '9', '168'].map((id) => `<xf numFmtId="${id}"/>`).join('')}<xf xfId="0"/></cellXfs>` +
  '<dxfs><dxf><numFmt numFmtId="165" formatCode="yyyy"/></dxf></dxfs></styleSheet>';
const one = (cells: string, others: Record<string, string | Uint8Array> = {}) =>
  workbook(sheet(`${header}<row r="2">${names}${cells}</row>`), { 'xl/styles.xml': styles, ...others });
const settings = (workbookPr: string, sheets = '<sheet name="S" sheetId="1" r:id="rId1"/>') => ({
  'xl/workbook.xml': `<workbook xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">${workbookPr}<sheets>${sheets}</sheets></workbook>`,
});
const base = { first_name: 'Ada', last_name: 'Byron' };

describe('an .xlsx', () => {
  test.each([
    ['1', '2015-02-28'],
    ['true', '2015-02-28'],
    ['TRUE', '2015-02-28'],
    [' true ', '2015-02-28'],
    ['0', '2011-02-27'],
    ['false', '2011-02-27'],
    ['', '2011-02-27'],
  ])('counts days from 1904 or 1900 as date1904="%s" says', async (value, day) => {
    const content = one('<c r="C2" s="1"><v>40601</v></c>', settings(`<workbookPr date1904="${value}"/>`));
    expect(await imported(content)).toMatchObject([{ ...base, date_of_birth: day }]);
  });

  test.each([
    ['1', true],
    ['0', false],
    ['true', true],
    ['false', false],
  ])('has the boolean <v>%s</v>', async (value, isActive) => {
    expect(await imported(one(`<c r="G2" t="b"><v>${value}</v></c>`))).toMatchObject([{ is_active: isActive }]);
  });

  test.each<[string, string, object]>([
    ['a day', '<c r="C2" s="1"><v>42063</v></c>', { date_of_birth: '2015-02-28' }],
    [
      'a day whose format is that of the base style',
      '<c r="C2" s="8"><v>42063</v></c>',
      { date_of_birth: '2015-02-28' },
    ],
    ['a day and an evening hour', '<c r="C2" s="2"><v>42063.97</v></c>', { date_of_birth: '2015-02-28' }],
    ['a day less a rounding error', '<c r="C2" s="1"><v>42062.99999999</v></c>', { date_of_birth: '2015-02-28' }],
    ['an ISO day', '<c r="C2" t="d"><v>2015-02-28</v></c>', { date_of_birth: '2015-02-28' }],
    ['an ISO time without a zone', '<c r="C2" t="d"><v>2015-02-28T00:00:00</v></c>', { date_of_birth: '2015-02-28' }],
    ['a day as text', text('C2', '2015-02-28'), { date_of_birth: '2015-02-28' }],
    ['a day and a time as text', text('C2', '2015-02-28 23:30:00'), { date_of_birth: '2015-02-28' }],
    ['a text with leading zeros', text('D2', '0049'), { phone: '0049' }],
    ['a long number', '<c r="D2"><v>491761234567890</v></c>', { phone: '491761234567890' }],
    ['a long number with an exponent', '<c r="D2"><v>4.9176123456789E+14</v></c>', { phone: '491761234567890' }],
    ['a number with a format of zeros', '<c r="E2" s="3"><v>42</v></c>', { roll_number: '000042' }],
    ['a number that is longer than its format', '<c r="E2" s="3"><v>12345678</v></c>', { roll_number: '12345678' }],
    ['a number with letters in its format', '<c r="E2" s="4"><v>7</v></c>', { roll_number: 'E-0007' }],
    ['a number with the format of a phone', '<c r="D2" s="5"><v>5551234567</v></c>', { phone: '(555) 123-4567' }],
    ['a number with decimals and a format of zeros', '<c r="E2" s="3"><v>4.5</v></c>', { roll_number: '4.5' }],
    ['a time without a day', '<c r="F2" s="2"><v>0.35416666</v></c>', { address: '08:30:00' }],
    ['a percentage', '<c r="F2" s="6"><v>0.5</v></c>', { address: '0.5' }],
    ['an amount', '<c r="F2" s="7"><v>1234.5</v></c>', { address: '1234.5' }],
    ['a number with an error in its last digit', '<c r="F2"><v>0.30000000000000004</v></c>', { address: '0.3' }],
    ['a number after the last day', '<c r="E2" s="1"><v>123456789</v></c>', { roll_number: '123456789' }],
    ['a huge number as a day', '<c r="D2" s="2"><v>491761234567890</v></c>', { phone: '491761234567890' }],
    ['the last day', '<c r="F2" s="1"><v>2958465</v></c>', { address: '9999-12-31' }],
    ['the number after the last day', '<c r="F2" s="1"><v>2958466</v></c>', { address: '2958466' }],
    ['a mark of direction before a day', text('C2', '\u200e2015-02-28'), { date_of_birth: '2015-02-28' }],
    ['an unknown style', '<c r="E2" s="99"><v>5</v></c>', { roll_number: '5' }],
    ['CDATA', '<c r="F2" t="inlineStr"><is><t><![CDATA[a & <b>]]></t></is></c>', { address: 'a & <b>' }],
    ['a comment in a text', '<c r="F2" t="inlineStr"><is><t>a<!-- x -->b</t></is></c>', { address: 'ab' }],
    [
      'rich text with a phonetic reading',
      '<c r="F2" t="inlineStr"><is><r><rPr><b/></rPr><t>東</t></r><r><t xml:space="preserve"> 京</t></r><rPh sb="0" eb="1"><t>トウ</t></rPh><phoneticPr fontId="1"/></is></c>',
      { address: '東 京' },
    ],
    ['a formula that returns an empty text', '<c r="F2" t="str"><f>A9</f><v></v></c>', { address: null }],
    ['a cell without content', '<c r="F2" s="1"/>', { address: null }],
  ])('can have %s', async (_what, cell, stored) => {
    expect(await imported(one(cell))).toMatchObject([{ ...base, ...stored }]);
  });

  test.each([
    ['1', '1900-01-01'],
    ['58', '1900-02-27'],
    ['59', '1900-02-28'],
    ['61', '1900-03-01'],
  ])('shows day %s as %s, although programs count a 29 February 1900', async (value, day) => {
    expect(await imported(one(`<c r="F2" s="1"><v>${value}</v></c>`))).toMatchObject([{ address: day }]);
  });

  test('can count from 1904 and have days before', async () => {
    const content = one('<c r="F2" s="1"><v>-1</v></c>', settings('<workbookPr date1904="1"/>'));
    expect(await imported(content)).toMatchObject([{ address: '1903-12-31' }]);
  });

  test('can have shared strings with rich text, phonetic readings, CDATA and no text', async () => {
    const strings = [
      '<si><t>first_name</t></si><si><t>last_name</t></si>',
      '<si><r><t>A</t></r><r><rPr><i/></rPr><t>da</t></r><rPh sb="0" eb="1"><t>エイダ</t></rPh></si>',
      '<si><t><![CDATA[By]]><!-- -->ron</t></si><si><t/></si>',
    ].join('');
    const cell = (n: number) => `<c t="s"><v>${n}</v></c>`;
    const content = workbook(
      sheet(`<row>${cell(0)}${cell(1)}${cell(4)}</row><row>${cell(2)}${cell(3)}</row><row>${cell(4)}</row>`),
      { 'xl/sharedStrings.xml': `<sst>${strings}</sst>` },
    );
    expect(await imported(content)).toMatchObject([base]);
  });

  test('need not have references of rows and cells, or may use a prefix for all its tags', async () => {
    const cell = (value: string) => `<x:c t="inlineStr"><x:is><x:t>${value}</x:t></x:is></x:c>`;
    const rows = [
      ['first_name', 'last_name'],
      ['Ada', 'Byron'],
    ].map((row) => `<x:row>${row.map(cell).join('')}</x:row>`);
    const content = workbook(
      `<?xml version="1.0"?><!-- x --><x:worksheet xmlns:x="u"><x:dimension ref="nonsense"/><x:sheetData>${rows.join('')}</x:sheetData></x:worksheet>`,
    );
    expect(await imported(content)).toMatchObject([base]);
  });

  test('can have hidden rows, which are read, empty rows and formatted cells far beyond its values', async () => {
    const rows = Array.from({ length: 9000 }, (_, n) => `<row r="${n + 4}" s="1"><c r="XFD${n + 4}" s="1"/></row>`);
    const content = workbook(
      sheet(
        `${header}<row r="2"/><row r="3" hidden="1">${names.replaceAll('2"', '3"')}</row>${rows.join('')}<row r="20000">${text('A20000', 'Zed')}${text('B20000', 'Last')}</row>`,
        '<cols><col min="1" max="16384"/></cols><sheetView showZeros="0"/>',
      ),
      { 'xl/styles.xml': styles },
    );
    expect(await imported(content)).toMatchObject([base, { first_name: 'Zed', last_name: 'Last' }]);
  });

  const sheets = (...states: (string | undefined)[]) => ({
    ...settings(
      '',
      states
        .map(
          (state, n) =>
            `<sheet name="S${n}" sheetId="${n + 1}"${state ? ` state="${state}"` : ''} r:id="rId${n + 1}"/>`,
        )
        .join(''),
    ),
    'xl/_rels/workbook.xml.rels': relationships(
      ...states.map((_, n): [string, string, string] => [`rId${n + 1}`, 'worksheet', `worksheets/sheet${n + 1}.xml`]),
    ),
    ...Object.fromEntries(
      states.map((_, n) => [
        `xl/worksheets/sheet${n + 1}.xml`,
        sheet(
          `<row r="1">${text('A1', 'first_name')}${text('B1', 'last_name')}</row><row r="2">${text('A2', `Of sheet ${n + 1}`)}${text('B2', 'X')}</row>`,
        ),
      ]),
    ),
  });

  test.each<[string, (string | undefined)[], number]>([
    ['the first', [undefined, undefined], 1],
    ['the first that is visible', ['hidden', 'veryHidden', undefined, 'visible'], 3],
    ['the second that says it is visible', ['hidden', 'visible'], 2],
    ['the first, if none is visible,', ['hidden', 'hidden'], 1],
  ])('of several sheets, %s is read', async (_which, states, expected) => {
    expect(await imported(workbook('', sheets(...states)))).toMatchObject([{ first_name: `Of sheet ${expected}` }]);
  });

  test('with a chart as its first sheet is read from the next one', async () => {
    const content = workbook('', {
      ...sheets(undefined, undefined),
      'xl/_rels/workbook.xml.rels': relationships(
        ['rId1', 'chartsheet', 'chartsheets/sheet1.xml'],
        ['rId2', 'worksheet', '/xl/worksheets/sheet2.xml'],
      ),
    });
    expect(await imported(content)).toMatchObject([{ first_name: 'Of sheet 2' }]);
  });

  test('can have its parts elsewhere, in another case, with backslashes, or in UTF-16', async () => {
    const rows = `<row r="1">${text('A1', 'first_name')}${text('B1', 'last_name')}</row><row r="2">${names}</row>`;
    const content = workbook('', {
      '_rels/.rels': relationships(['r', 'officeDocument', 'book/Main.xml']),
      'book/main.xml': settings('', '<sheet name="S" sheetId="1" r:id="a"/>')['xl/workbook.xml'],
      'book\\_rels\\main.xml.rels': relationships(['a', 'worksheet', '../Tables/One.XML']),
      'tables/one.xml': Buffer.from(`\ufeff<?xml version="1.0" encoding="UTF-16"?>${sheet(rows)}`, 'utf16le'),
      'xl/workbook.xml': strToU8('<damaged'),
    });
    expect(await imported(content)).toMatchObject([base]);
  });

  test('with cells that are merged over several rows has their value in each of these rows, below the header', async () => {
    const row = (n: number, cells: string) => `<row r="${n}">${cells}</row>`;
    const content = workbook(
      sheet(
        row(1, `${text('A1', 'first_name')}${text('B1', 'last_name')}${text('C1', 'address')}`) +
          row(3, `${text('A3', 'Ada')}${text('B3', 'Byron')}${text('C3', 'Long Street')}`) +
          row(4, `${text('A4', 'Bea')}<c r="B4"/>`) +
          row(6, text('A6', 'Cy')) +
          row(7, `${text('A7', 'Di')}${text('B7', 'Other')}`),
        '<mergeCells count="3"><mergeCell ref="A1:A2"/><mergeCell ref="B3:B6"/><mergeCell ref="$C$3:$C$4"/></mergeCells>',
      ),
    );
    expect(await imported(content)).toMatchObject([
      { first_name: 'Ada', last_name: 'Byron', address: 'Long Street' },
      { first_name: 'Bea', last_name: 'Byron', address: 'Long Street' },
      { first_name: 'Cy', last_name: 'Byron', address: null },
      { first_name: 'Di', last_name: 'Other', address: null },
    ]);
  });

  test('with cells that are merged over rows and columns has their value in each of these cells', async () => {
    const row = (n: number, first: string, cells: string) =>
      `<row r="${n}">${text(`A${n}`, first)}${text(`B${n}`, 'Byron')}${cells}</row>`;
    const content = workbook(
      sheet(
        header +
          row(2, 'Ada', text('D2', '0049 30') + text('F2', 'Here')) +
          row(3, 'Bea', text('F3', 'There')) +
          row(4, 'Cy', ''),
        '<mergeCells count="1"><mergeCell ref="D2:E3"/></mergeCells>',
      ),
    );
    expect(await imported(content)).toMatchObject([
      { first_name: 'Ada', phone: '0049 30', roll_number: '0049 30', address: 'Here' },
      { first_name: 'Bea', phone: '0049 30', roll_number: '0049 30', address: 'There' },
      { first_name: 'Cy', phone: null, roll_number: null, address: null },
    ]);
  });

  test('with a formula that failed has an error in this row, and with one without a result is refused', async () => {
    expect(await errorsOf(one('<c r="F2" t="e"><f>1/0</f><v>#DIV/0!</v></c>'))).toEqual([
      '2 address: is #DIV/0!, the error of a formula',
    ]);
    expect(await errorsOf(one('<c r="F2"><f>UPPER(A2)</f></c>'))).toBe(
      'Line 2 has a formula without a result in column F. Open the file in a spreadsheet program and save it again.',
    );
  });
});

describe('a .csv', () => {
  const people = { first_name: 'Ada', last_name: 'By;ron', address: 'a, b\tc|d' };
  test.each<[string, string | Buffer]>([
    ['sep=; and Unix line breaks', 'sep=;\nfirst_name;last_name;address\nAda;"By;ron";"a, b\tc|d"\n'],
    ['sep=; and Windows line breaks', 'sep=;\r\nfirst_name;last_name;address\r\nAda;"By;ron";a, b\tc|d\r\n'],
    ['a byte order mark and SEP=,', '\ufeffSEP=,\r\nfirst_name,last_name,address\r\nAda,By;ron,"a, b\tc|d"\r\n'],
    ['sep= with a tab', 'sep=\t\nfirst_name\tlast_name\taddress\nAda\tBy;ron\t"a, b\tc|d"\n'],
    ['sep=^', 'sep=^\nfirst_name^last_name^address\nAda^By;ron^a, b\tc|d\n'],
    ['"sep=;" in quotes', '"sep=;"\nfirst_name;last_name;address\nAda;"By;ron";a, b\tc|d\n'],
    ['sep=, with empty cells', 'sep=,,,\nfirst_name,last_name,address\nAda,By;ron,"a, b\tc|d"\n'],
    ['bars', 'first_name|last_name|address\nAda|By;ron|"a, b\tc|d"\n'],
    ['the end mark of DOS', 'first_name,last_name,address\r\nAda,By;ron,"a, b\tc|d"\r\n\x1a'],
    ['empty columns and rows at its end', 'first_name,last_name,address,,\nAda,By;ron,"a, b\tc|d",,\n,,,,\n,,,,\n'],
    ['a byte order mark before a quote', '\ufeff"first_name","last_name","address"\n"Ada","By;ron","a, b\tc|d"\n'],
    [
      'UTF-16, as "Unicode text" of a spreadsheet program',
      Buffer.from('\ufefffirst_name\tlast_name\taddress\r\nAda\tBy;ron\t"a, b\tc|d"\r\n', 'utf16le'),
    ],
    [
      'UTF-16 with the high byte first',
      Buffer.from('\ufefffirst_name\tlast_name\taddress\r\nAda\tBy;ron\t"a, b\tc|d"\r\n', 'utf16le').swap16(),
    ],
  ])('can have %s', async (_what, content) => {
    expect(await imported(content, 'people.csv')).toMatchObject([people]);
  });

  test('that names its delimiter has errors with the lines of the file', async () => {
    expect(await errorsOf('sep=;\nfirst_name;last_name\nAda;Byron\nBea;\n', 'people.csv')).toEqual([
      '4 last_name: is required',
    ]);
    expect(await errorsOf('sep=;\nfirst_name;colour\nAda;red\n', 'people.csv')).toEqual([
      '2 last_name: is missing in the header. Required: first_name and last_name',
      expect.stringContaining('2 colour: is not a known column') as unknown,
    ]);
    expect(await errorsOf('sep=;\nfirst_name;last_name\nA;"B\n', 'people.csv')).toBe(
      'Line 3: a quote (") is not closed.',
    );
  });

  test('with the error of a formula has an error in this row', async () => {
    expect(await errorsOf('first_name,last_name,class\nAda,Byron,#N/A\n', 'people.csv')).toEqual([
      '2 class: is #N/A, the error of a formula',
    ]);
  });

  test('with long runs of spaces, brackets and Ts in dates and headers has errors at once', async () => {
    const rows = (cell: string) => `first_name,last_name,date_of_birth\n${`Ada,Byron,${cell}\n`.repeat(400)}`;
    const spaces = `&date_format=${encodeURIComponent('D          M YYYY')}`;
    for (const [content, query] of [
      [rows(`1${' '.repeat(900)}x`), spaces],
      [rows(`1${' '.repeat(50)}x`), spaces],
      [rows('T'.repeat(9_999)), ''],
      [`first_name,last_name${`,"${'('.repeat(9_900)}\nx"`.repeat(100)}\nAda,Byron\n`, '&ignore_unknown=true'],
    ] as const) {
      const { status } = await send(school.admin, content, 'people.csv', `?dry_run=true${query}`);
      expect(status).toBe(200);
    }
  });

  test.each(['2015-02-28 00:00:00', '2015-02-28T23:59', '2015-02-28 23:59:59.999'])(
    'can have a day with a time, as databases write it: %s',
    async (value) => {
      const content = `first_name,last_name,date_of_birth\nAda,Byron,${value}\n`;
      expect(await imported(content, 'people.csv')).toMatchObject([{ date_of_birth: '2015-02-28' }]);
    },
  );
});
