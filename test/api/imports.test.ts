import { buffer } from 'node:stream/consumers';
import type { Readable } from 'node:stream';
import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { strFromU8, strToU8, unzipSync, zipSync } from 'fflate';
import { type Cell, readSheet, sheetFile, xlsxType } from '../../src/documents/spreadsheets.ts';
import type { Answer, Client } from '../support/client/client.ts';
import { isFull } from '../support/client/share.ts';
import { until } from '../support/client/until.ts';
import { mailTo } from '../support/fakes/mail.ts';
import { fileForm, png } from '../support/fixtures/pictures.ts';
import { relationships, sheet, text, workbook } from '../support/fixtures/workbooks.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';
import { checksums } from '../support/database/traces.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Report as ReportSchema } from '../../src/endpoints/imports.ts';

const { service, school } = await serviceWithSchool({}, 13);

type Report = OutputOf<typeof ReportSchema>;

interface Student extends Record<string, unknown> {
  id: number;
  admission_number: string;
}

type Table = (string | number | null)[][];

/** Builds a .csv file. */
const csv = (rows: Table, delimiter = ',') =>
  rows
    .map((row) =>
      row
        .map((cell) =>
          /[",;\t\n]/.test(String(cell ?? '')) ? `"${String(cell).replaceAll('"', '""')}"` : (cell ?? ''),
        )
        .join(delimiter),
    )
    .join('\n');

/** Builds an .xlsx file. The first row is the header. */
const xlsx = ([header = [], ...rows]: Cell[][]) =>
  buffer(
    sheetFile('xlsx', 'people', [{ name: 'people', columns: header.map((cell) => ({ header: String(cell) })), rows }])
      .content as Readable,
  );

interface Sending {
  people?: 'students' | 'teachers';
  name?: string;
  query?: string;
  headers?: Record<string, string>;
}

/** Uploads an import file. */
function send(
  who: Client,
  content: string | Buffer,
  { people = 'students', name = 'people.csv', query = '', headers = {} }: Sending = {},
): Promise<Answer<Report>> {
  const form = fileForm(Buffer.from(content), name, 'application/octet-stream', 'file');
  return who.send<Report>('POST', `/api/${people}/import${query}`, { body: form, headers });
}

const sendXlsx = async (who: Client, rows: Cell[][], sending: Sending = {}) =>
  send(who, await xlsx(rows), { name: 'people.xlsx', ...sending });
const dryRun = (who: Client, content: string | Buffer, sending: Sending = {}) =>
  send(who, content, { ...sending, query: '?dry_run=true' });

/** Imports a valid file. */
async function importFile(who: Client, content: string | Buffer, sending: Sending = {}): Promise<Report> {
  const answer = await send(who, content, sending);
  expect({ status: answer.status, details: answer.details }).toEqual({ status: 201, details: undefined });
  return answer.data;
}

const read = async (id: number | undefined, at = school) =>
  (await at.admin.get<Student>(`/api/students/${id ?? 0}`)).data;
const count = async (at = school) => (await at.admin.get('/api/students?pageSize=1')).pagination.totalItems;

/** The errors of a dry run as `row column: message`. */
const errorLines = ({ errors }: Report) =>
  errors.map(({ row, column, message }) => `${row ?? '-'} ${column ?? '-'}: ${message}`);

/** The warnings of a dry run as `row: message`. */
const warningLines = ({ warnings }: Report) => warnings.map(({ row, message }) => `${row ?? '-'}: ${message}`);

/** Creates a class with a unique name. */
async function classroom(fields: { section?: string; capacity?: number } = {}, at = school) {
  const name = unique('Room');
  const made = await at.classroom(name);
  await service.database.query(`update ${at.schema}.class set section = $2, capacity = $3 where id = $1`, [
    made.classId,
    fields.section ?? null,
    fields.capacity ?? null,
  ]);
  return { ...made, name };
}

const headerRow = `<row r="1">${text('A1', 'first_name')}${text('B1', 'last_name')}</row>`;

describe('a file of students', () => {
  const filled = {
    first_name: 'Zoë 🌻',
    last_name: 'O"Brien; de la Cruz, Jr.',
    roll_number: '007',
    date_of_birth: '2015-02-28',
    gender: 'female',
    email: 'Zoe@Example.org',
    phone: '+234 1',
    parent_name: 'Ōe 大江',
    parent_phone: '=0',
    parent_email: 'parent@example.org',
    address: '1 Long Street\nFlat 2',
    is_active: 'no',
  };

  test.each(['csv', 'xlsx'])('can be based on the .%s template, and is imported as filled in', async (format) => {
    const { name, classId, gradeId } = await classroom({ section: 'B' });
    const religion = unique('Religion');
    await service.database.query(`insert into ${school.schema}.religion (name) values ($1)`, [religion]);
    const number = unique('T');
    const template = await school.admin.get<Buffer>(`/api/students/import/template?format=${format}`);
    expect(template.headers.get('content-disposition')).toContain(`students.${format}`);
    const [header] = await readSheet(
      { content: template.data, contentType: template.headers.get('content-type')?.split(';')[0] ?? '' },
      10,
    );
    const values: Record<string, string> = {
      ...filled,
      class: `${name} B`,
      grade: `${name} grade`,
      religion,
      admission_number: number,
    };
    const columns = header?.cells ?? [];
    const unused = ['create_user_account', 'left_on', 'leaving_reason'];
    expect([...columns].sort()).toEqual([...Object.keys(values), ...unused].sort());
    const row = columns.map((column) => values[column] ?? '');
    const { ids } = await importFile(
      school.admin,
      format === 'csv'
        ? `${template.data.toString()}${csv([row])}`
        : await xlsx([columns, row.map((cell, at) => (columns[at] === 'date_of_birth' ? new Date(cell) : cell))]),
      { name: `people.${format}`, query: '?allow_duplicates=true' },
    );
    expect(ids).toHaveLength(1);
    expect(await read(ids[0])).toMatchObject({
      ...filled,
      email: 'zoe@example.org',
      is_active: false,
      class_id: classId,
      class_name: `${name} B`,
      grade_id: gradeId,
      admission_number: number,
      user_id: null,
    });
    const [stored] = await service.database.query(
      `select r.name as religion, e.class_id::integer, e.status from ${school.schema}.student s join ${school.schema}.religion r on r.id = s.religion_id
       left join ${school.schema}.enrollment e on e.student_id = s.id where s.id = $1`,
      [ids[0]],
    );
    // Who is not active has left today, and attends no class.
    expect(stored).toEqual({ religion, class_id: null, status: null });
  });

  test('can have its columns in any order and case, with spaces, underscores or neither', async () => {
    const { ids } = await importFile(
      school.admin,
      'LAST NAME,date-of-birth,FirstName, Parent_name \nAdams,2015-01-02,Yan,Eve\n',
    );
    expect(await read(ids[0])).toMatchObject({
      first_name: 'Yan',
      last_name: 'Adams',
      date_of_birth: '2015-01-02',
      parent_name: 'Eve',
    });
  });

  test.each([
    ['with a byte order mark', '\ufefffirst_name,last_name,address\nÉva,Nagy,"Fő utca 1, 2"\n', 'Fő utca 1, 2'],
    ['with semicolons', 'first_name;last_name;address\nÉva;Nagy;Fő utca 1, 2\n', 'Fő utca 1, 2'],
    ['with tabs', 'first_name\tlast_name\taddress\nÉva\tNagy\tFő utca; 1, 2\n', 'Fő utca; 1, 2'],
    ['with Windows line breaks', 'first_name,last_name,address\r\nÉva,Nagy,"Fő utca\r\n1"\r\n', 'Fő utca\n1'],
    ['with old Mac line breaks', 'first_name,last_name,address\rÉva,Nagy,"Fő utca\r1"\r', 'Fő utca\n1'],
    ['with quotes in cells', 'first_name,last_name,address\nÉva,Nagy,"the ""old"" house"\n', 'the "old" house'],
    ['with a header in quotes', '"first_name";"last_name";"address"\n"Éva";"Nagy";" spaces "\n', 'spaces'],
    ['without a final line break', 'first_name,last_name,address\nÉva,Nagy,x', 'x'],
  ])('is read %s', async (_how, content, address) => {
    const { ids } = await importFile(school.admin, content);
    expect(await read(ids[0])).toMatchObject({ first_name: 'Éva', last_name: 'Nagy', address });
  });

  test('from a spreadsheet program can contain dates, numbers, booleans, and formulas, which are imported as their results', async () => {
    const styles = '<styleSheet><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>';
    const columns = ['first_name', 'last_name', 'date_of_birth', 'roll_number', 'is_active', 'address'];
    const content = workbook(
      sheet(
        `<row r="1">${columns.map((column, at) => text(`${'ABCDEF'.charAt(at)}1`, column)).join('')}</row>
         <row r="2"><c r="A2" t="str"><f>CONCATENATE("An","a")</f><v>Ana</v></c>${text('B2', 'Formula')}<c r="C2" s="1"><v>42063</v></c><c r="D2"><f>8+9</f><v>17</v></c>
         <c r="E2" t="b"><v>0</v></c><c r="F2" t="str"><f>""</f><v></v></c></row>`,
      ),
      { 'xl/styles.xml': styles },
    );
    const { ids } = await importFile(school.admin, content, { name: 'people.xlsx' });
    expect(await read(ids[0])).toMatchObject({
      first_name: 'Ana',
      date_of_birth: '2015-02-28',
      roll_number: '17',
      is_active: false,
      address: null,
    });
  });

  test('with formulas as text is imported as text, and a template exports them as text', async () => {
    const formula = '=HYPERLINK("http://evil.example","x")';
    const { ids } = await importFile(
      school.admin,
      csv([
        ['first_name', 'last_name', 'address', 'phone'],
        [formula, '@SUM(1)', '-1+1', '+1'],
        ["'=x", '\t=y', "''", "'"],
      ]),
    );
    expect(await read(ids[0])).toMatchObject({
      first_name: formula,
      last_name: '@SUM(1)',
      address: '-1+1',
      phone: '+1',
    });
    expect(await read(ids[1])).toMatchObject({ first_name: '=x', last_name: '=y', address: "''", phone: "'" });
    const other = await service.school();
    await other.classroom('=1+1');
    const { data } = await other.admin.get<Buffer>('/api/students/import/template?format=excel');
    const parts = unzipSync(data);
    const [columns = '', names = ''] = ['2', '3'].map((n) =>
      strFromU8(parts[`xl/worksheets/sheet${n}.xml`] ?? new Uint8Array()),
    );
    expect(columns).toContain('first_name');
    expect(names).toContain("'=1+1");
    expect(names).not.toContain('<f>');
  });

  test('can contain empty lines, which are skipped; errors still name the line of the file', async () => {
    const { data } = await dryRun(
      school.admin,
      '\n\nfirst_name,last_name,address\n\nA,B,"two\nlines"\n,,\n,B,\n   ,  ,\nC,,\n',
    );
    expect(data).toMatchObject({ rows: 3, valid: 1 });
    expect(errorLines(data)).toEqual(['8 first_name: is required', '10 last_name: is required']);
    const inSheet = await sendXlsx(
      school.admin,
      [['first_name', 'last_name'], ['A', 'B'], [null], ['', ''], ['C', null]],
      { query: '?dry_run=true' },
    );
    expect(errorLines(inSheet.data)).toEqual(['5 last_name: is required']);
  });
});

describe('a class, a grade, a religion', () => {
  const place = async (rows: Table, at = school) =>
    (
      await dryRun(
        at.admin,
        csv([['first_name', 'last_name', 'class', 'class_id', 'grade', 'grade_id', 'religion'], ...rows]),
      )
    ).data;

  test('is found by its name, ignoring case, or by its id', async () => {
    const { name, classId, gradeId } = await classroom({ section: 'a' });
    const report = await place([
      ['A', 'B', `${name.toUpperCase()} A`, null, null, null, null],
      ['A', 'B', null, classId, null, null, null],
      ['A', 'B', `${name} a`, classId, `${name} GRADE`, gradeId, null],
      ['A', 'B', null, null, null, gradeId, null],
    ]);
    expect(report).toMatchObject({ rows: 4, valid: 4, errors: [] });
  });

  test('is an error of its column if it is unknown or if name and id differ', async () => {
    const one = await classroom();
    const other = await classroom();
    const report = await place([
      ['A', 'B', 'Nowhere', null, 'No grade', null, 'None at all'],
      ['A', 'B', null, 999_999, null, 999_999, null],
      ['A', 'B', one.name, other.classId, null, null, null],
      ['A', 'B', one.name, null, `${other.name} grade`, null, null],
      ['A', 'B', null, one.classId, null, other.gradeId, null],
    ]);
    expect(errorLines(report)).toEqual([
      '2 class: There is no class Nowhere in the current academic year.',
      '2 grade: There is no grade No grade.',
      '2 religion: There is no religion None at all.',
      '3 class_id: There is no class 999999.',
      '3 grade_id: There is no grade 999999.',
      `4 class: There is no class ${one.name} in the current academic year.`,
      '5 grade: The class belongs to another grade.',
      '6 grade_id: The class belongs to another grade.',
    ]);
  });

  test('is an error if its name is ambiguous and no id is given', async () => {
    const { name, classId, gradeId, yearId } = await classroom({ section: 'X Y' });
    await service.database.query(
      `insert into ${school.schema}.class (name, section, grade_id, academic_year_id) values ($1 || ' X', 'Y', $2, $3)`,
      [name, gradeId, yearId],
    );
    const report = await place([
      ['A', 'B', `${name} x y`, null, null, null, null],
      ['A', 'B', `${name} x y`, classId, null, null, null],
    ]);
    expect(errorLines(report)).toEqual([`2 class: There are 2 classes called ${name} x y. Use class_id instead.`]);
  });

  test('is found only by its id if it belongs to an earlier year', async () => {
    const { gradeId } = await classroom();
    const name = unique('Past');
    const [past] = await service.database.query<{ id: string }>(
      `with year as (insert into ${school.schema}.academic_year (name, start_date, end_date) values ($1, '1950-01-01', '1950-12-31') returning id)
       insert into ${school.schema}.class (name, grade_id, academic_year_id) select $1, $2, id from year returning id`,
      [name, gradeId],
    );
    const report = await place([
      ['A', 'B', name, null, null, null, null],
      ['A', 'B', null, Number(past?.id), null, null, null],
    ]);
    expect(errorLines(report)).toEqual([`2 class: There is no class ${name} in the current academic year.`]);
  });

  test('is not found by name or id if it belongs to another school', async () => {
    const other = await service.school();
    const [mine, theirs] = [await classroom(), await classroom({}, other)];
    await service.database.query(`update ${other.schema}.class set id = 800001 where id = $1`, [theirs.classId]);
    await service.database.query(`insert into ${other.schema}.religion (name) values ('Theirs')`);
    const report = await place([
      ['A', 'B', theirs.name, null, null, null, null],
      ['A', 'B', null, 800_001, null, null, null],
      ['A', 'B', mine.name, null, `${theirs.name} grade`, null, 'Theirs'],
    ]);
    expect(report.errors.map(({ row, column }) => [row, column])).toEqual([
      [2, 'class'],
      [3, 'class_id'],
      [4, 'grade'],
      [4, 'religion'],
    ]);
    expect((await place([['A', 'B', theirs.name, null, null, null, 'Theirs']], other)).errors).toEqual([]);
  });

  test('is an error if the class does not have enough seats', async () => {
    const { name, classId } = await classroom({ capacity: 3 });
    await school.admin.post('/api/students', { first_name: 'There', last_name: 'Already', class_id: classId }, 201);
    const rows = Array.from({ length: 4 }, (_, n) => ['A', `B${n}`, name, null, null, null, null]);
    expect(errorLines(await place(rows))).toEqual(
      ['4', '5'].map((row) => `${row} class: The class ${name} has only 2 free places.`),
    );
    await importFile(
      school.admin,
      csv([['first_name', 'last_name', 'class'], ...rows.slice(0, 2).map((row) => row.slice(0, 3))]),
    );
    expect((await place(rows.slice(0, 1))).errors).toHaveLength(1);
  });
});

describe('admission numbers', () => {
  const numbered = async (numbers: (string | null)[], at: School) => {
    const { ids } = await importFile(
      at.admin,
      csv([['first_name', 'last_name', 'admission_number'], ...numbers.map((number) => ['A', 'B', number])]),
    );
    return Promise.all(ids.map(async (id) => (await read(id, at)).admission_number));
  };
  const next = async (at: School) =>
    (await at.admin.post<Student>('/api/students', { first_name: 'A', last_name: 'B' }, 201)).data.admission_number;

  test('are assigned in sequence if omitted, skipping numbers of existing students and of the file', async () => {
    const fresh = await service.school();
    expect(await next(fresh)).toBe('000001');
    await fresh.admin.post('/api/students', { first_name: 'A', last_name: 'B', admission_number: '000003' }, 201);
    expect(await numbered([null, '000004', null, 'A-1', null], fresh)).toEqual([
      '000002',
      '000004',
      '000005',
      'A-1',
      '000006',
    ]);
    expect(await next(fresh)).toBe('000007');
    expect(await numbered(['X'], fresh)).toEqual(['X']);
    expect(await numbered([null], fresh)).toEqual(['000008']);
  });

  test('are errors if they are used twice in the file or by an existing student, but not if by a deleted one', async () => {
    const fresh = await service.school();
    const [first, second] = (await importFile(fresh.admin, 'first_name,last_name,admission_number\nA,B,N1\nA,B,N2\n'))
      .ids;
    expect(second).toBeGreaterThan(first ?? 0);
    await fresh.admin.delete(`/api/students/${second ?? 0}`);
    const { data } = await dryRun(
      fresh.admin,
      'first_name,last_name,admission_number\nA,B,N1\nA,B,N2\nA,B,N3\nA,B,N3\nA,B, N3 \n',
    );
    expect(errorLines(data)).toEqual([
      '2 admission_number: This admission number is already in use.',
      '5 admission_number: Line 4 has the same admission number.',
      '6 admission_number: Line 4 has the same admission number.',
    ]);
  });

  test('are used by only one of two concurrent imports of one file; the other is rejected', async () => {
    const fresh = await service.school();
    const rows: Table = Array.from({ length: 300 }, (_, n) => ['A', 'B', `R${n}`]);
    const content = csv([['first_name', 'last_name', 'admission_number'], ...rows]);
    const answers = await Promise.all([send(fresh.admin, content), send(fresh.admin, content)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 400]);
    const lost = answers.find(({ status }) => status === 400);
    expect(lost?.details).toHaveLength(300);
    expect(lost?.details[0]).toEqual({
      path: 'rows.2.admission_number',
      message: 'This admission number is already in use.',
    });
    expect(await count(fresh)).toBe(300);
  });

  test('are used by an import or by a concurrently created student, but not by both', async () => {
    const fresh = await service.school();
    for (let round = 0; round < 3; round++) {
      const content = csv([
        ['first_name', 'last_name', 'admission_number'],
        ...Array.from({ length: 100 }, (_, n) => ['A', 'B', `${round}-${n}`]),
      ]);
      const before = await count(fresh);
      const [many, one] = await Promise.all([
        send(fresh.admin, content),
        fresh.admin.send('POST', '/api/students', {
          body: { first_name: 'A', last_name: 'B', admission_number: `${round}-50` },
        }),
      ]);
      expect([
        [201, 409],
        [400, 201],
      ]).toContainEqual([many.status, one.status]);
      expect(await count(fresh)).toBe(before + (many.status === 201 ? 100 : 1));
    }
  });

  test('are unique if an import and concurrent requests have them assigned', async () => {
    const fresh = await service.school();
    const content = csv([['first_name', 'last_name'], ...Array.from({ length: 200 }, () => ['A', 'B'])]);
    const [one, two, ...singles] = await Promise.all([
      send(fresh.admin, content),
      send(fresh.admin, content),
      ...Array.from({ length: 6 }, () => next(fresh)),
    ]);
    expect([one.status, two.status]).toEqual([201, 201]);
    expect(new Set(singles).size).toBe(6);
    expect(await count(fresh)).toBe(406);
    const numbers = await service.database.query<{ number: string }>(
      `select admission_number as number from ${fresh.schema}.student`,
    );
    expect(new Set(numbers.map(({ number }) => number)).size).toBe(406);
  });
});

describe('logins', () => {
  test('are created for the rows that request one, with the student role and an invitation', async () => {
    const fresh = await service.school();
    const { ids } = await importFile(
      fresh.admin,
      'first_name,last_name,email,create_user_account\nAda,One,Ada@invited.example,yes\nBea,Two,bea@invited.example,\nCy,Three,cy@invited.example,TRUE\n',
    );
    const [ada, bea, cy] = await Promise.all(ids.map((id) => read(id, fresh)));
    expect(bea?.['user_id']).toBeNull();
    for (const [student, email] of [
      [ada, 'ada@invited.example'],
      [cy, 'cy@invited.example'],
    ] as const) {
      const { data } = await fresh.admin.get(`/api/users/${Number(student?.['user_id'])}`);
      expect(data).toMatchObject({ email, first_name: student?.['first_name'], roles: ['student'], is_active: true });
      await mailTo(service, email, 'Your account');
    }
  });

  test('require an email that is unique in the file and in the school', async () => {
    const { data } = await dryRun(
      school.admin,
      `first_name,last_name,email,create_user_account\nA,B,,yes\nA,,,yes\nA,B,twice@example.org,yes\nA,B,Twice@example.org,yes\nA,B,twice@example.org,no\nA,B,${school.adminEmail},1\nA,B,nobody,yes\n`,
    );
    expect(errorLines(data)).toEqual([
      '2 email: is required when create_user_account is true',
      '3 last_name: is required',
      '3 email: is required when create_user_account is true',
      '5 email: Line 4 has the same email.',
      '7 email: This email is already in use.',
      '8 email: must be an email address',
    ]);
  });

  test('cannot be created by a user with fewer permissions', async () => {
    const who = await school.user([await school.role('teacher.create')]);
    const before = await checksums(service.database, school.schema);
    const refused = await send(who, 'first_name,last_name,email,create_user_account\nA,B,new@teachers.example,yes\n', {
      people: 'teachers',
    });
    expect({ status: refused.status, error: refused.error }).toEqual({ status: 403, error: 'forbidden' });
    expect(await checksums(service.database, school.schema)).toEqual(before);
    await importFile(who, 'first_name,last_name,email\nA,B,new@teachers.example\n', { people: 'teachers' });
  });
});

describe('the errors of a file', () => {
  const broken = [
    'first_name,last_name,date_of_birth,is_active,class_id,email,admission_number,gender',
    `${'x'.repeat(101)},B,2015-02-30,maybe,one,nobody,${'9'.repeat(51)},`,
    'A,,28.02.2015,no,0,a@example.org,,',
    'A,B,2015-02-28,yes,,,,female,and more',
    'A,B,,,,,,\u0007',
    'A,B,0001-01-01,,-1,,,',
  ].join('\n');
  const expected = [
    'rows.2.first_name',
    'rows.2.admission_number',
    'rows.2.date_of_birth',
    'rows.2.email',
    'rows.2.class_id',
    'rows.2.is_active',
    'rows.3.last_name',
    'rows.3.date_of_birth',
    'rows.3.class_id',
    'rows.4',
    'rows.5.gender',
    'rows.6.date_of_birth',
    'rows.6.class_id',
  ];

  test('are all reported with row and column, and nothing is written', async () => {
    const before = await checksums(service.database, school.schema, 'platform');
    const refused = await send(school.admin, broken);
    expect({ status: refused.status, error: refused.error, message: refused.message }).toEqual({
      status: 400,
      error: 'validation_error',
      message: 'Nothing was imported. The file has 13 errors in 5 rows.',
    });
    expect(refused.details.map(({ path }) => path)).toEqual(expected);
    expect(
      refused.details.filter(
        ({ path }) => path === 'rows.4' || path.endsWith('.is_active') || path === 'rows.2.class_id',
      ),
    ).toEqual([
      { path: 'rows.2.class_id', message: 'must be a whole number' },
      { path: 'rows.2.is_active', message: 'must be true or false' },
      { path: 'rows.4', message: 'has a value in column 9, which has no header' },
    ]);
    expect(await checksums(service.database, school.schema, 'platform')).toEqual(before);
  });

  test('are the same in a dry run, which is a 200 with the report', async () => {
    const answer = await dryRun(school.admin, broken);
    expect(answer.status).toBe(200);
    expect(answer.headers.get('location')).toBeNull();
    expect(answer.data).toMatchObject({ dry_run: true, rows: 5, valid: 0, created: 0, ids: [] });
    expect(
      answer.data.errors.map(({ row, column }) => `rows.${row ?? ''}${column === null ? '' : `.${column}`}`),
    ).toEqual(expected);
  });

  test.each<[string, string, string[]]>([
    [
      'an unknown column, and a password',
      'first_name,last_name,colour,password\nA,B,red,secret-secret\n',
      [
        '1 colour: is not a known column. Available: first_name',
        '1 password: is not a known column. Available: first_name',
      ],
    ],
    [
      'a missing column',
      'first_name,phone\nA,1\nB,2\n',
      ['1 last_name: is missing in the header. Required: first_name and last_name'],
    ],
    [
      'a column that appears twice',
      'first_name,last_name,First Name\nA,B,C\n',
      ['1 first_name: appears twice in the header'],
    ],
    [
      'no header',
      'Ada,Lovelace\nBea,Bright\n',
      [
        '1 first_name: is missing',
        '1 last_name: is missing',
        '1 Ada: is not a known column',
        '1 Lovelace: is not a known column',
      ],
    ],
    ['no rows', 'first_name,last_name\n\n', ['- -: The file has no rows below its header.']],
    [
      'an empty file',
      '\n',
      ['- -: The file has no rows below its header.', '1 first_name: is missing', '1 last_name: is missing'],
    ],
  ])('in the header are reported: %s', async (_what, content, messages) => {
    const { status, data } = await dryRun(school.admin, content);
    expect({ status, valid: data.valid, found: errorLines(data).length }).toEqual({
      status: 200,
      valid: 0,
      found: messages.length,
    });
    for (const [at, message] of messages.entries()) expect(errorLines(data)[at]).toContain(message);
    const refused = await send(school.admin, content);
    expect({ status: refused.status, found: refused.details.length }).toEqual({ status: 400, found: messages.length });
  });

  test('in the header do not hide the errors of the rows', async () => {
    const { data } = await dryRun(school.admin, 'first_name,colour,class\nA,red,Nowhere\n');
    expect(data.errors.map(({ row, column }) => [row, column])).toEqual([
      [1, 'last_name'],
      [1, 'colour'],
      [2, 'class'],
    ]);
  });

  test('a dry run changes nothing', async () => {
    const { name } = await classroom();
    const before = await checksums(service.database, school.schema, 'platform', 'graphile_worker');
    const { data } = await dryRun(
      school.admin,
      `first_name,last_name,email,create_user_account,class\nA,B,dry@example.org,yes,${name}\nA,B,,,\n`,
      {
        headers: { 'Idempotency-Key': 'a dry key'.replaceAll(' ', '-') },
      },
    );
    expect(data).toMatchObject({ dry_run: true, rows: 2, valid: 2, created: 0, errors: [], warnings: [], ids: [] });
    expect(await checksums(service.database, school.schema, 'platform', 'graphile_worker')).toEqual(before);
  });

  test('dry_run can be sent in the form or in the query, and must be true or false', async () => {
    const before = await count();
    for (const [value, status] of [
      ['true', 200],
      ['false', 201],
      ['yes', 400],
    ] as const) {
      const form = fileForm(Buffer.from('first_name,last_name\nA,B\n'), 'people.csv', 'text/csv', 'file');
      form.append('dry_run', value);
      await school.admin.send('POST', '/api/students/import', { body: form }, status);
    }
    expect(await count()).toBe(before + 1);
    const refused = await send(school.admin, 'first_name,last_name\nA,B\n', { query: '?dry_run=maybe' });
    expect(refused.details).toMatchObject([{ path: 'dry_run' }]);
  });
});

describe('5,000 rows', () => {
  const rows = (many: number): Table => [
    ['first_name', 'last_name', 'admission_number', 'class'],
    ...Array.from({ length: many }, (_, n) => [`First ${n}`, `Last ${n}`, n % 2 ? `M${n}` : null, 'Mass']),
  ];

  test('are imported in one request, each once, enrolled and counted', async () => {
    const fresh = await service.school();
    await service.database.query('update platform.plan set max_students = 20000 where id = 3');
    const { classId } = await fresh.classroom('Mass');
    const report = await importFile(fresh.admin, csv(rows(5000)));
    expect({ rows: report.rows, valid: report.valid, created: report.created, ids: new Set(report.ids).size }).toEqual({
      rows: 5000,
      valid: 5000,
      created: 5000,
      ids: 5000,
    });
    expect(await read(report.ids[4321], fresh)).toMatchObject({
      first_name: 'First 4321',
      last_name: 'Last 4321',
      admission_number: 'M4321',
      class_id: classId,
    });
    const [sums] = await service.database.query(
      `select (select count(*)::integer from ${fresh.schema}.enrollment where class_id = $1 and status = 'active') as enrolled,
         (select count(distinct admission_number)::integer from ${fresh.schema}.student) as numbers,
         (select students from platform.tenant_usage where tenant_id = $2) as counted`,
      [classId, fresh.id],
    );
    expect(sums).toEqual({ enrolled: 5000, numbers: 5000, counted: 5000 });
  });

  test('are the maximum: one more row, or more than 10 MB, is rejected', async () => {
    const more = await dryRun(school.admin, csv(rows(5001)));
    expect({ status: more.status, error: more.error }).toEqual({ status: 400, error: 'validation_error' });
    expect(more.details).toEqual([
      { path: 'file', message: 'The file has more than 5000 rows below the header. Split it.' },
    ]);
    const asSheet = await sendXlsx(school.admin, rows(5001), { query: '?dry_run=true' });
    expect(asSheet.details).toEqual(more.details);
    const large = await dryRun(school.admin, Buffer.alloc(10 * 1024 * 1024 + 1, 'x'));
    expect({ status: large.status, error: large.error }).toEqual({ status: 413, error: 'payload_too_large' });
  });
});

describe('the plan of the school', () => {
  test('cannot be exceeded: 403 and nothing is written; a dry run reports an error of the file', async () => {
    const plan = await service.plan({ max_students: 3, max_teachers: 1 });
    const small = await service.school({ plan_id: plan.id });
    await small.admin.post('/api/students', { first_name: 'A', last_name: 'B' }, 201);
    const three = 'first_name,last_name\nA,B\nA,B\nA,B\n';
    const before = await checksums(service.database, small.schema, 'platform');
    const refused = await send(small.admin, three);
    expect({ status: refused.status, error: refused.error }).toEqual({ status: 403, error: 'plan_limit_reached' });
    const tried = await dryRun(small.admin, three);
    expect(tried.status).toBe(200);
    expect(tried.data).toMatchObject({ rows: 3, valid: 3, errors: [{ row: null, column: null }] });
    expect(tried.data.errors[0]?.message).toMatch(
      /allows 3 active students\. The school has 1, and this file adds 3\.$/,
    );
    expect(await checksums(service.database, small.schema, 'platform')).toEqual(before);
    await importFile(small.admin, 'first_name,last_name,is_active\nA,B,\nA,B,true\nA,B,false\n');
    expect((await dryRun(small.admin, 'first_name,last_name,is_active\nA,B,no\n')).data.errors).toEqual([]);
    const teachers = 'first_name,last_name\nA,B\nA,B\n';
    expect((await send(small.admin, teachers, { people: 'teachers' })).error).toBe('plan_limit_reached');
    expect(errorLines((await dryRun(small.admin, teachers, { people: 'teachers' })).data)[0]).toMatch(
      /allows 1 active teachers\. The school has 0, and this file adds 2\.$/,
    );
    await importFile(small.admin, 'first_name,last_name\nA,B\n', { people: 'teachers' });
  });

  test('cannot be exceeded by two concurrent imports together', async () => {
    const plan = await service.plan({ max_students: 30, max_teachers: 1 });
    const small = await service.school({ plan_id: plan.id });
    const content = csv([['first_name', 'last_name'], ...Array.from({ length: 20 }, () => ['A', 'B'])]);
    const answers = await Promise.all([send(small.admin, content), send(small.admin, content)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 403]);
    expect(await count(small)).toBe(20);
  });
});

describe('a row that repeats a person', () => {
  const header = 'first_name,last_name,date_of_birth,email,phone\n';
  const kinds = [
    ['students', 'student'],
    ['teachers', 'teacher'],
  ] as const;

  test.each(kinds)('of the file is a warning in a dry run of %s', async (people, person) => {
    const fresh = await service.school();
    const rows = [
      'Zoë,Byron,2015-02-28,zoe@example.org,+49 (30) 1-2',
      'ZOE,byron,2015-02-28,,',
      'Zoë,Byron,,Zoe@Example.org,',
      ' Zoë ,Byron,,,+4930 12',
      // Something differs, or nothing can be compared.
      'Zoë,Byron,2015-03-01,,+49 30 13',
      'Zoë,Byrons,2015-02-28,zoe@example.org,+49 30 12',
      'Zoë,Byron,,,',
      'Zoë,Byron,,,',
      'Zoë,Byron,2015-02-28,zoe@example.org,',
    ];
    const { data } = await dryRun(fresh.admin, `${header}${rows.join('\n')}\n`, { people });
    expect(data).toMatchObject({ rows: 9, valid: 9, errors: [] });
    expect(warningLines(data)).toEqual([
      '3: Line 2 has the same name and date of birth.',
      '4: Line 2 has the same name and email.',
      '5: Line 2 has the same name and phone.',
      '10: Line 2 has the same name and date of birth and email.',
    ]);
    const refused = await send(fresh.admin, `${header}${rows.join('\n')}\n`, { people });
    expect({ status: refused.status, error: refused.error, message: refused.message }).toEqual({
      status: 409,
      error: 'conflict',
      message:
        'Nothing was imported. 4 rows repeat a person. Remove them from the file, or send allow_duplicates=true to import them too.',
    });
    expect(refused.details.map(({ path }) => path)).toEqual(['rows.3', 'rows.4', 'rows.5', 'rows.10']);
    expect(refused.details[0]?.message).toBe('Line 2 has the same name and date of birth.');
    const [stored] = await service.database.query(`select count(*)::integer as many from ${fresh.schema}.${person}`);
    expect(stored).toEqual({ many: 0 });
  });

  test.each(kinds)(
    'of the school is a warning for %s: a file cannot be imported twice by mistake',
    async (people, person) => {
      const fresh = await service.school();
      const content = `${header}Zoë,Byron,2015-02-28,,\nAda,King,,ada@example.org,\nBea,Lee,,,0049 1\nCy,Poe,,,\n`;
      const first = await importFile(fresh.admin, content, { people });
      expect(first.warnings).toEqual([]);
      expect(warningLines((await dryRun(fresh.admin, content, { people })).data)).toEqual([
        `2: The school has a ${person} with the same name and date of birth.`,
        `3: The school has a ${person} with the same name and email.`,
        `4: The school has a ${person} with the same name and phone.`,
      ]);
      const refused = await send(fresh.admin, content, { people });
      expect([refused.status, refused.details.map(({ path }) => path)]).toEqual([409, ['rows.2', 'rows.3', 'rows.4']]);
      const again = await importFile(fresh.admin, content, { people, query: '?allow_duplicates=true' });
      expect([again.created, again.warnings.map(({ row }) => row)]).toEqual([4, [2, 3, 4]]);
      const other = await service.school();
      expect((await dryRun(other.admin, content, { people })).data.warnings).toEqual([]);
    },
  );

  test.each([
    ['may not read it', []],
    ['may read only some people, as a teacher', ['teacher']],
  ])('of the school is no warning to a user who %s, and would learn birth dates and phones', async (_who, roles) => {
    const fresh = await service.school();
    const rows = 'Zoë,Byron,2015-02-28,,0049 1\n';
    const clerk = await fresh.user([...roles, await fresh.role('student.create', 'teacher.create')]);
    for (const [people] of kinds) {
      await importFile(fresh.admin, header + rows, { people });
      expect((await dryRun(clerk, header + rows, { people })).data.warnings).toEqual([]);
      expect(warningLines((await dryRun(clerk, header + rows + rows, { people })).data)).toEqual([
        '3: Line 2 has the same name and date of birth and phone.',
      ]);
      expect((await importFile(clerk, header + rows, { people })).warnings).toEqual([]);
    }
  });

  test('is not found by a phone without digits, such as a dash', async () => {
    const fresh = await service.school();
    const content = [
      'first_name,last_name,phone,parent_phone',
      'Ada,King,-,none',
      'Ada,King,n/a,-',
      'Ada,King,unknown,',
    ].join('\n');
    expect((await dryRun(fresh.admin, content)).data).toMatchObject({ valid: 3, errors: [], warnings: [] });
    expect(await importFile(fresh.admin, content)).toMatchObject({ created: 3, warnings: [] });
    expect((await dryRun(fresh.admin, content)).data.warnings).toEqual([]);
  });

  test('is the same person with other spaces, letters of a font, or letters that searches take as one', async () => {
    const fresh = await service.school();
    // Stored before white space was normalized.
    await fresh.insert('student', {
      admission_number: 'X-1',
      first_name: 'Ada\u00a0 Mae',
      last_name: 'King',
      date_of_birth: '2015-01-01',
    });
    const content = [
      'first_name,last_name,date_of_birth',
      'ada mae,King,2015-01-01',
      'Ada,\u2003Mae  King,2015-01-01',
      'محمّد,أحمد,2015-01-02',
      'محمد,احمد,2015-01-02',
      'ﬁona,Lee,2015-01-03',
      'Fiona,Lee,2015-01-03',
    ].join('\n');
    const known = 'The school has a student with the same name and date of birth.';
    expect(warningLines((await dryRun(fresh.admin, content)).data)).toEqual([
      `2: ${known}`,
      `3: ${known}`,
      '5: Line 4 has the same name and date of birth.',
      '7: Line 6 has the same name and date of birth.',
    ]);
  });

  test('is compared by the contacts of the parents too, and not with deleted students', async () => {
    const fresh = await service.school();
    const content = 'first_name,last_name,parent_email,parent_phone\nAda,King,P@example.org,\nBea,Lee,,+1 2\n';
    const { ids } = await importFile(fresh.admin, content);
    expect(warningLines((await dryRun(fresh.admin, content)).data)).toEqual([
      '2: The school has a student with the same name and parent email.',
      '3: The school has a student with the same name and parent phone.',
    ]);
    for (const id of ids) await fresh.admin.delete(`/api/students/${id}`);
    expect((await dryRun(fresh.admin, content)).data.warnings).toEqual([]);
    await importFile(fresh.admin, content);
  });

  test('is reported after the errors of the file, and only one of two concurrent imports succeeds', async () => {
    const fresh = await service.school();
    const content = `${header}Ada,King,2015-02-28,,\n`;
    const broken = await send(fresh.admin, `${content}Ada,King,2015-02-28,nobody,\n`);
    expect([broken.status, broken.details.map(({ path }) => path)]).toEqual([400, ['rows.3.email']]);
    const answers = await Promise.all([send(fresh.admin, content), send(fresh.admin, content)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
    expect(await count(fresh)).toBe(1);
  });
});

describe('permissions', () => {
  test('import and template require the permission to create students or teachers', async () => {
    const clerk = async (permission: string) => school.user([await school.role(permission)]);
    const [students, teachers, readers] = [
      await clerk('student.create'),
      await clerk('teacher.create'),
      await clerk('student.read'),
    ];
    for (const [who, people, other] of [
      [students, 'students', 'teachers'],
      [teachers, 'teachers', 'students'],
    ] as const) {
      await importFile(who, 'first_name,last_name\nA,B\n', { people });
      await who.get(`/api/${people}/import/template`, 200);
      expect((await send(who, 'first_name,last_name\nA,B\n', { people: other })).error).toBe('forbidden');
      await who.get(`/api/${other}/import/template`, 403);
    }
    expect((await dryRun(readers, 'first_name,last_name\nA,B\n')).status).toBe(403);
    expect((await dryRun(service.anonymous, 'first_name,last_name\nA,B\n')).status).toBe(401);
  });
});

describe('an Idempotency-Key', () => {
  test('makes repeated and concurrent imports of one file run once, and cannot be reused for another file', async () => {
    const fresh = await service.school();
    const content = 'first_name,last_name\nA,B\nC,D\n';
    const headers = { 'Idempotency-Key': 'once' };
    const [one, two] = await Promise.all([
      send(fresh.admin, content, { headers }),
      send(fresh.admin, content, { headers }),
    ]);
    const three = await send(fresh.admin, content, { headers });
    expect([one.status, two.status, three.status]).toEqual([201, 201, 201]);
    expect(two.data).toEqual(one.data);
    expect(three.data).toEqual(one.data);
    expect(await count(fresh)).toBe(2);
    expect((await send(fresh.admin, `${content}E,F\n`, { headers })).error).toBe('idempotency_key_reused');
    expect((await dryRun(fresh.admin, content, { headers })).data).toMatchObject({ dry_run: true, rows: 2 });
  });

  test('cannot be reused for the same bytes with another name or type', async () => {
    const content = Buffer.from('first_name,last_name\nA,B\n');
    const headers = { 'Idempotency-Key': unique('key') };
    expect((await send(school.admin, content, { headers, name: 'one.csv' })).status).toBe(201);
    expect((await send(school.admin, content, { headers, name: 'two.csv' })).error).toBe('idempotency_key_reused');
    expect((await send(school.admin, content, { headers, name: 'one.csv' })).status).toBe(201);
  });

  test('can be used again after a rejected file', async () => {
    const { name } = await classroom();
    const headers = { 'Idempotency-Key': unique('key') };
    const content = `first_name,last_name,class\nA,B,${name} later\n`;
    expect((await send(school.admin, content, { headers })).status).toBe(400);
    await service.database.query(`update ${school.schema}.class set section = 'later' where name = $1`, [name]);
    expect((await send(school.admin, content, { headers })).status).toBe(201);
  });
});

describe('a file that is not a table', () => {
  test.each<[string, string, () => Buffer | string, number, string]>([
    ['a picture named .csv', 'people.csv', () => png, 415, 'image/png'],
    ['a picture named .xlsx', 'people.xlsx', () => png, 415, 'image/png'],
    ['text not named .csv', 'people.txt', () => 'first_name,last_name\nA,B\n', 415, 'unknown type'],
    [
      'an archive that is not an .xlsx',
      'people.xlsx',
      () => Buffer.from(zipSync({ 'a.txt': strToU8('x') })),
      415,
      'application/zip',
    ],
    ['Latin-1', 'people.csv', () => Buffer.from('first_name,last_name\nZoë,B\n', 'latin1'), 415, 'not UTF-8'],
    [
      'UTF-16 without a byte order mark',
      'people.csv',
      () => Buffer.from('first_name,last_name\nA,B\n', 'utf16le'),
      415,
      'UTF-8',
    ],
    [
      'a quote that is never closed',
      'people.csv',
      () => 'first_name,last_name\nA,B\nC,"D\nE,F\n',
      400,
      'Line 3: a quote (") is not closed.',
    ],
    [
      'a quote within a cell',
      'people.csv',
      () => 'first_name,last_name\nA,B"C\n',
      400,
      'Line 2: a quote (") is inside a cell',
    ],
    [
      'text after a quote',
      'people.csv',
      () => 'first_name,last_name\nA,"B" C\n',
      400,
      'Line 2: a closing quote (") is not followed',
    ],
    [
      '201 columns',
      'people.csv',
      () => `first_name,last_name\n${'x,'.repeat(201)}x\n`,
      400,
      'Line 2 has more than 200 columns.',
    ],
    [
      'a cell of 10,001 characters',
      'people.csv',
      () => `first_name,last_name\nA,${'x'.repeat(10_001)}\n`,
      400,
      'more than 10000 characters',
    ],
    [
      'a truncated sheet',
      'people.xlsx',
      () => workbook('<worksheet><sheetData><row r="1"><c r="A1"'),
      400,
      'The file is damaged',
    ],
    [
      'a missing sheet',
      'people.xlsx',
      () => workbook(sheet(''), { 'xl/workbook.xml': '<workbook><sheets/></workbook>' }),
      400,
      'The file is damaged',
    ],
    ['a truncated .xlsx', 'people.xlsx', () => workbook(sheet(headerRow)).subarray(0, -30), 400, 'The file is damaged'],
  ])('%s is rejected with a reason', async (_what, name, content, status, message) => {
    for (const query of ['', '?dry_run=true']) {
      const refused = await send(school.admin, content(), { name, query });
      expect({ status: refused.status, message: refused.message }).toEqual({
        status,
        message: expect.stringContaining(message) as unknown,
      });
    }
  });

  test('a form with no file, two files or an unknown field is rejected', async () => {
    const empty = new FormData();
    empty.append('dry_run', 'true');
    expect((await school.admin.send('POST', '/api/students/import', { body: empty }, 400)).details).toMatchObject([
      { path: 'file' },
    ]);
    const two = fileForm(Buffer.from('x'), 'a.csv', 'text/csv', 'file');
    two.append('file', new Blob(['y']), 'b.csv');
    await school.admin.send('POST', '/api/students/import', { body: two }, 400);
    const odd = fileForm(Buffer.from('x'), 'a.csv', 'text/csv', 'file');
    odd.append('colour', 'red');
    expect((await school.admin.send('POST', '/api/students/import', { body: odd }, 400)).details).toMatchObject([
      { path: 'colour' },
    ]);
    await school.admin.send('POST', '/api/students/import', { body: { first_name: 'A' } }, 415);
  });

  /** Changes the declared size of a part of an archive, in the central directory and in the local header. */
  const lie = (archive: Buffer, part: string, size: number) => {
    const bytes = Buffer.from(archive);
    for (let at = bytes.indexOf('PK\x01\x02'); at >= 0; at = bytes.indexOf('PK\x01\x02', at + 4)) {
      if (bytes.toString('latin1', at + 46, at + 46 + bytes.readUInt16LE(at + 28)) !== part) continue;
      bytes.writeUInt32LE(size, at + 24);
      bytes.writeUInt32LE(size, bytes.readUInt32LE(at + 42) + 22);
    }
    return bytes;
  };
  /** A sheet in which many cells share one string. */
  const repeated = (length: number, many: number) =>
    workbook(
      sheet(
        Array.from({ length: many }, (_, n) => `<row r="${n + 1}"><c r="A${n + 1}" t="s"><v>0</v></c></row>`).join(''),
      ),
      {
        'xl/sharedStrings.xml': `<sst><si><t>${'x'.repeat(length)}</t></si></sst>`,
      },
    );

  let made: Buffer | undefined;
  const huge = () => (made ??= workbook(Buffer.alloc(32e6, '<row/>')));

  const wide = () => {
    const rows = Array.from({ length: 60_000 }, (_, n) => `<row r="${n + 2}">${text(`A${n + 2}`, 'x')}</row>`);
    return workbook(sheet(`<row r="1">${text('XFD1', 'x')}</row>${rows.join('')}`));
  };
  const styleSheet = (formats: string) => `<styleSheet><numFmts>${formats}</numFmts></styleSheet>`;

  test.each<[string, () => Buffer, string]>([
    ['declares an unpacked size of 32 MB', huge, 'too large when unpacked'],
    [
      'declares an unpacked size of 32 MB in a part with large letters',
      () => workbook('', { 'XL/WORKSHEETS/SHEET1.XML': Buffer.alloc(32e6, '<row/>') }),
      'too large when unpacked',
    ],
    [
      'has its sheet in a part that is not XML',
      () =>
        workbook('', {
          'xl/_rels/workbook.xml.rels': relationships(['rId1', 'worksheet', 'sheet.bin']),
          'xl/sheet.bin': Buffer.alloc(32e6, '<row/>'),
        }),
      'damaged',
    ],
    ['unpacks to 32 MB but declares a kilobyte', () => lie(huge(), 'xl/worksheets/sheet1.xml', 1000), 'damaged'],
    [
      'unpacks to a kilobyte but declares 4 GB',
      () => lie(workbook(sheet(headerRow)), 'xl/worksheets/sheet1.xml', 0xffff_fff0),
      'too large when unpacked',
    ],
    [
      'has a cell in row 999,999,999',
      () => workbook(sheet(`<row r="999999999">${text('A999999999', 'x')}</row>`)),
      'beyond column XFD',
    ],
    ['has a cell in row 1e400', () => workbook(sheet(`<row r="1e400">${text('A1', 'x')}</row>`)), 'beyond column XFD'],
    [
      'has a cell in column ZZZZZZZ',
      () => workbook(sheet(`<row r="1">${text('ZZZZZZZ1', 'x')}</row>`)),
      'beyond column XFD',
    ],
    [
      'has a large sheet with a cell in column ZZZZZZ',
      () => workbook(sheet(`<row r="1">${text('ZZZZZZ1', 'x')}</row>${'<a/>'.repeat(isFull ? 7e6 : 1e6)}`)),
      'beyond column XFD',
    ],
    [
      'writes the column ZZZZZZ with character references',
      () => workbook(sheet(`<row r="1">${text('&#90;ZZZZZ1', 'x')}</row>`)),
      'beyond column XFD',
    ],
    ['shares a megabyte of text in 4,000 cells', () => repeated(1e6, 4000), 'a cell of more than 10000 characters'],
    ['shares 9 kB of text in 4,000 cells', () => repeated(9000, 4000), 'more than 10000000 characters'],
    ['nests 100,000 elements', () => workbook('<a>'.repeat(100_000)), 'more than 100 nested tags'],
    [
      'has a tag with 100,000 attributes',
      () => workbook(sheet(`<row ${Array.from({ length: 100_000 }, (_, n) => `a${n}="1"`).join(' ')}/>`)),
      'a tag with more than 100 attributes',
    ],
    [
      'has an attribute with a name of 100,000 characters',
      () => workbook(sheet(`<row ${'a'.repeat(100_000)}="1"/>`)),
      'a name of more than 200 characters',
    ],
    [
      'has a tag with a name of 100,000 characters',
      () => workbook(sheet(`<${'a'.repeat(100_000)}/>`)),
      'a name of more than 200 characters',
    ],
    [
      'has 100,000 attributes in its list of sheets',
      () =>
        workbook(sheet(headerRow), {
          'xl/workbook.xml': `<workbook ${Array.from({ length: 100_000 }, (_, n) => `a${n}="1"`).join(' ')}/>`,
        }),
      'a tag with more than 100 attributes',
    ],
    [
      'has a format of 100,000 characters',
      () =>
        workbook(sheet(headerRow), {
          'xl/styles.xml': styleSheet(`<numFmt numFmtId="170" formatCode="${'['.repeat(100_000)}"/>`),
        }),
      'more than 1000 characters',
    ],
    [
      'has 5,001 formats',
      () =>
        workbook(sheet(headerRow), {
          'xl/styles.xml': styleSheet(
            Array.from({ length: 5001 }, (_, n) => `<numFmt numFmtId="${n + 200}" formatCode="0"/>`).join(''),
          ),
        }),
      'more than 5000 number formats',
    ],
    [
      'has 10,001 merged cells',
      () => workbook(sheet(headerRow, '<mergeCell ref="A2:A3"/>'.repeat(10_001))),
      'more than 10000 merged cells',
    ],
    ['has one cell at the far right of many rows', wide, 'Line 1 has more than 200 columns.'],
  ])('an archive that %s is rejected, and the service stays available', async (_how, content, message) => {
    const bomb = content();
    const { timeoutMs } = shared.readOptions;
    // The file must be rejected for its content, not because a busy machine exceeded the time limit.
    shared.readOptions.timeoutMs = 50_000;
    const [refused, health] = await Promise.all([
      send(school.admin, bomb, { name: 'people.xlsx', query: '?dry_run=true' }),
      service.anonymous.get<{ status: string }>('/api/health'),
    ]).finally(() => (shared.readOptions.timeoutMs = timeoutMs));
    expect({ status: refused.status, message: refused.message }).toEqual({
      status: 400,
      message: expect.stringContaining(message) as unknown,
    });
    expect(health.data.status).toBe('ok');
  });

  test('custom XML entities are not expanded', async () => {
    const content = workbook(
      `<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>${sheet(`${headerRow}<row r="2">${text('A2', '&b;')}${text('B2', 'B')}</row>`)}`,
    );
    const { ids } = await importFile(school.admin, content, { name: 'people.xlsx' });
    expect(await read(ids[0])).toMatchObject({ first_name: '&b;' });
  });

  /** A file whose reading takes seconds of CPU time, but is small enough for the limits of large bodies: four million empty cells. */
  let slow: Buffer | undefined;
  const endless = () => (slow ??= workbook(sheet(`<row>${'<c/>'.repeat(190)}</row>`.repeat(24_000))));

  test('is aborted if it takes too long to read, and other files are read meanwhile', async () => {
    const { timeoutMs } = shared.readOptions;
    // The time limit is CPU time, because that is what one file would take from other requests.
    shared.readOptions.timeoutMs = 1_200;
    let isOver = false;
    const refused = send(school.admin, endless(), { name: 'people.xlsx' }).finally(() => {
      isOver = true;
      shared.readOptions.timeoutMs = timeoutMs;
    });
    await importFile(school.admin, 'first_name,last_name\nA,B\n');
    expect(isOver).toBe(false);
    expect({ status: (await refused).status, message: (await refused).message }).toEqual({
      status: 400,
      message: 'The file takes too long to read. Make it smaller.',
    });
  });

  const textSize = isFull ? 28e6 : 1.6e6;

  test.each<[string, string]>([
    ['between two tags', `<worksheet><sheetData>${' '.repeat(textSize)}<row r="1"/></sheetData></worksheet>`],
    ['in a tag', `<worksheet><sheetData><row ${' '.repeat(textSize)}r="1"/></sheetData></worksheet>`],
    ['in a comment', `<worksheet><sheetData><!--${'<a> '.repeat(textSize / 4)}--></sheetData></worksheet>`],
    ['in a value', `<worksheet><sheetData><row r="1" x="${'a&gt;'.repeat(textSize / 5)}"/></sheetData></worksheet>`],
  ])('with megabytes of text %s is rejected without reading it for long', async (_where, content) => {
    const { timeoutMs } = shared.readOptions;
    shared.readOptions.timeoutMs = 50_000;
    const refused = await send(school.admin, workbook(content), { name: 'people.xlsx' }).finally(
      () => (shared.readOptions.timeoutMs = timeoutMs),
    );
    expect({ status: refused.status, message: refused.message }).toEqual({
      status: 400,
      message: 'The file has a text of more than 1500000 characters.',
    });
  });

  test('that claims to have four billion parts is rejected', async () => {
    const content = workbook(sheet(headerRow));
    // A zip64 record before the end of the directory, with the number of parts.
    const end = content.length - 22;
    const record = Buffer.alloc(56);
    record.writeUInt32LE(0x06064b50);
    record.writeBigUInt64LE(44n, 4);
    record.writeUInt32LE(4e9, 24);
    record.writeUInt32LE(4e9, 32);
    record.writeUInt32LE(content.readUInt32LE(end + 16), 48);
    const locator = Buffer.alloc(20);
    locator.writeUInt32LE(0x07064b50);
    locator.writeUInt32LE(end, 8);
    const tail = Buffer.from(content.subarray(end));
    tail.writeUInt16LE(0xffff, 8);
    tail.writeUInt16LE(0xffff, 10);
    tail.writeUInt32LE(0xffff_ffff, 16);
    const large = Buffer.concat([content.subarray(0, end), record, locator, tail]);
    const refused = await send(school.admin, large, { name: 'people.xlsx' });
    expect({ status: refused.status, message: refused.message }).toEqual({
      status: 400,
      message: 'The file is too large when unpacked.',
    });
  });

  describe('while one user sends more files than can be read', () => {
    /** Sends files whose reading does not end, runs `work`, and hangs up. */
    async function whileReading<T>(work: () => Promise<T>): Promise<T> {
      const { timeoutMs } = shared.readOptions;
      shared.readOptions.timeoutMs = 50_000;
      const client = new AbortController();
      const file = endless();
      const refused: number[] = [];
      const sent = Array.from({ length: 30 }, async () => {
        const response = await fetch(`${service.url}/api/students/import`, {
          method: 'POST',
          headers: { authorization: `Bearer ${school.admin.token}` },
          body: fileForm(file, 'people.xlsx', 'application/octet-stream', 'file'),
          signal: client.signal,
        });
        refused.push(response.status);
        await response.text();
      });
      try {
        // Two are read and 16 wait.
        await until(() => refused.length === 12 || undefined);
        expect(refused).toEqual(Array(12).fill(503));
        return await work();
      } finally {
        client.abort();
        await Promise.allSettled(sent);
        shared.readOptions.timeoutMs = timeoutMs;
      }
    }

    test('another school gets a place in the queue, and none of them is read after the user hangs up', async () => {
      const other = await service.school();
      const waiting = await whileReading(async () => {
        const answer = dryRun(other.admin, 'first_name,last_name\nA,B\n');
        // Full again: the place was taken from the first school.
        await until(
          async () => (await dryRun(school.admin, 'first_name,last_name\nA,B\n')).status === 503 || undefined,
        );
        return { answer };
      });
      expect((await waiting.answer).status).toBe(200);
      const answers = await Promise.all(
        Array.from({ length: 10 }, () => dryRun(school.admin, 'first_name,last_name\nA,B\n')),
      );
      expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200));
    });
  });

  test('waits in a queue; when the queue is full, it is rejected with Retry-After', async () => {
    const answers = await Promise.all(
      Array.from({ length: 30 }, () => dryRun(school.admin, 'first_name,last_name\nA,B\n')),
    );
    const turnedAway = answers.filter(({ status }) => status === 503);
    expect(turnedAway.length).toBeGreaterThan(0);
    expect(
      turnedAway.every(({ error, headers }) => error === 'unavailable' && headers.get('retry-after') === '5'),
    ).toBe(true);
    expect(answers.filter(({ status }) => status === 200).length).toBe(30 - turnedAway.length);
    expect((await dryRun(school.admin, 'first_name,last_name\nA,B\n')).data.valid).toBe(1);
  });

  test('with random content gets a report or a 4xx, never a 500', async () => {
    const pieces = fc.constantFrom(
      ...[
        'first_name',
        'last_name',
        'class',
        'email',
        '"',
        '""',
        ',',
        ';',
        '\t',
        '\n',
        '\r',
        '\r\n',
        '\ufeff',
        'é',
        '\0',
        "'",
        '=',
        'x'.repeat(200),
        '2015-02-30',
        '__proto__',
        'constructor',
        'true',
        '-1',
        '1e9',
      ],
    );
    await fc.assert(
      fc.asyncProperty(fc.array(pieces, { maxLength: 40 }), fc.boolean(), async (parts, hasHeader) => {
        const { status } = await dryRun(
          school.admin,
          `${hasHeader ? 'first_name,last_name,class,email,admission_number\n' : ''}${parts.join('')}`,
        );
        expect([200, 400, 415]).toContain(status);
      }),
      { seed: 20260901, numRuns: isFull ? 40 : 10 },
    );
  });
});

describe('a file of teachers', () => {
  interface Teacher extends Record<string, unknown> {
    id: number;
  }
  const teacher = async (id: number | undefined) =>
    (
      await service.database.query<Teacher>(
        `select *, id::integer, joined_on::text, date_of_birth::text from ${school.schema}.teacher where id = $1`,
        [id],
      )
    )[0];

  test.each(['csv', 'xlsx'])(
    'can be based on the .%s template, and is imported as filled in, with its login',
    async (format) => {
      const email = `${unique('teacher')}@example.org`;
      const values: Record<string, string> = {
        first_name: 'Ōe',
        last_name: 'Müller-"Lüdenscheidt"',
        email,
        phone: '+49 1',
        employee_number: unique('E'),
        qualification: 'M.Sc.',
        specialization: 'Chemistry, physics',
        joined_on: '2020-08-01',
        date_of_birth: '1980-02-29',
        gender: 'non_binary',
        address: '1\n2',
        is_active: 'TRUE',
        create_user_account: 'yes',
      };
      const template = await school.admin.get<Buffer>(`/api/teachers/import/template?format=${format}`);
      const [header] = await readSheet(
        { content: template.data, contentType: format === 'csv' ? 'text/csv' : xlsxType },
        10,
      );
      const columns = header?.cells ?? [];
      expect([...columns].sort()).toEqual([...Object.keys(values), 'left_on', 'leaving_reason'].sort());
      const row = columns.map((column) => values[column] ?? '');
      const content = format === 'csv' ? `${template.data.toString()}${csv([row])}` : await xlsx([columns, row]);
      const { ids } = await importFile(school.admin, content, {
        people: 'teachers',
        name: `people.${format}`,
        query: '?allow_duplicates=true',
      });
      const stored = await teacher(ids[0]);
      const fields = Object.fromEntries(Object.entries(values).filter(([column]) => column !== 'create_user_account'));
      expect(stored).toMatchObject({ ...fields, is_active: true });
      expect((await school.admin.get(`/api/users/${Number(stored?.['user_id'])}`)).data).toMatchObject({
        email,
        roles: ['teacher'],
      });
      await mailTo(service, email, 'Your account');
    },
  );

  test('with a duplicate employee number is rejected, and the errors name row and column', async () => {
    const number = unique('E');
    await importFile(school.admin, `first_name,last_name,employee_number\nA,B,${number}\n`, { people: 'teachers' });
    const { data } = await dryRun(
      school.admin,
      `first_name,last_name,employee_number,joined_on,class\nA,B,${number},,\nA,B,new,soon,\nA,B,new,,\nA,B,,,\nA,B,,,\n`,
      {
        people: 'teachers',
      },
    );
    expect(errorLines(data).map((fault) => fault.split(':')[0])).toEqual([
      '1 class',
      '2 employee_number',
      '3 joined_on',
      '4 employee_number',
    ]);
    const both = `first_name,last_name,employee_number\nA,B,${unique('E')}\n`;
    const answers = await Promise.all([
      send(school.admin, both, { people: 'teachers' }),
      send(school.admin, both, { people: 'teachers' }),
    ]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 400]);
  });
});
