import { readFile } from 'node:fs/promises';
import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import type { OutputOf } from '../support/client/output.ts';
import { fileForm } from '../support/fixtures/pictures.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';
import type { Report as ReportSchema } from '../../src/endpoints/imports.ts';

const { service, school } = await serviceWithSchool();

type Report = OutputOf<typeof ReportSchema>;
type Options = Record<string, string>;

const roster = (name: string) => readFile(new URL(`../data/rosters/${name}.csv`, import.meta.url), 'utf8');

/** Uploads a file; the options are fields of the form. */
function send(who: Client, content: string, options: Options = {}, people = 'students') {
  const form = fileForm(Buffer.from(content), 'people.csv', 'text/csv', 'file');
  for (const [name, value] of Object.entries(options)) form.append(name, value);
  return who.send<Report>('POST', `/api/${people}/import`, { body: form });
}

const dryRun = async (content: string, options: Options = {}, at = school, people = 'students') => {
  const answer = await send(at.admin, content, { dry_run: 'true', ...options }, people);
  expect({ status: answer.status, details: answer.details }).toEqual({ status: 200, details: undefined });
  return answer.data;
};

const errorLines = ({ errors }: Report) =>
  errors.map(({ row, column, message }) => `${row ?? '-'} ${column ?? '-'}: ${message}`);

const mapped = ({ mapping }: Report) => Object.fromEntries(mapping.map(({ column, field }) => [column, field]));

/** A school with kindergarten and the grades 1 to 12, and a locale. */
async function gradedSchool(locale?: string): Promise<School> {
  const made = await service.school();
  await made.database.query(
    `insert into ${made.schema}.grade (name, sequence)
     select case n when 0 then 'Kindergarten' else 'Grade ' || n end, n + 1 from generate_series(0, 12) n`,
  );
  if (locale !== undefined) await made.admin.post('/api/school-setup/school-info', { name: 'School', locale }, 200);
  return made;
}

const imported = async (at: School, content: string, options: Options = {}, people = 'students') => {
  const answer = await send(at.admin, content, options, people);
  expect({ status: answer.status, details: answer.details }).toEqual({ status: 201, details: undefined });
  const { data } = await at.admin.get<Record<string, unknown>[]>(`/api/${people}?sort=id&pageSize=100`);
  return { report: answer.data, people: data };
};

describe('a roster of another system', () => {
  let at: School;
  beforeAll(async () => {
    at = await gradedSchool();
  });

  test('of Microsoft School Data Sync 2.1 is imported; columns without a field must be left out on request', async () => {
    const content = await roster('microsoft-sds-2.1-users');
    const refused = await dryRun(content, {}, at);
    expect(refused.valid).toBe(0);
    expect(refused.errors[0]?.message).toContain('To leave such columns out, send ignore_unknown=true.');
    const { report, people } = await imported(await gradedSchool(), content, { ignore_unknown: 'true' });
    expect(mapped(report)).toMatchObject({ givenName: 'first_name', familyName: 'last_name', email: 'email' });
    expect(report.unknown_columns.map(({ column }) => column)).toEqual(
      expect.arrayContaining(['username', 'password', 'activeDirectoryMatchId', 'sms']),
    );
    expect(people).toMatchObject([
      { first_name: 'Ines', last_name: 'Moreau', email: 'ines.moreau@school.example', phone: '+33 1 55 50 01 01' },
      { first_name: 'Tunde', last_name: 'Balogun' },
      { first_name: 'Mei', last_name: 'Lin', email: null },
    ]);
  });

  test('of Microsoft School Data Sync 1 is imported, with grades by number', async () => {
    const { people } = await imported(await gradedSchool(), await roster('microsoft-sds-1-student'), {
      ignore_unknown: 'true',
    });
    expect(people).toMatchObject([
      {
        admission_number: 'N-2001',
        first_name: 'Ruth',
        last_name: 'Osei',
        date_of_birth: '2015-09-30',
        gender: 'female',
        grade_name: 'Grade 5',
        email: 'ruth.osei@family.example',
        address: '12 Palm Road',
        is_active: true,
      },
      { admission_number: 'N-2002', date_of_birth: '2009-02-14', gender: 'male', grade_name: 'Grade 11' },
      { admission_number: 'N-2003', grade_name: 'Kindergarten', is_active: false },
    ]);
  });

  test('of OneRoster 1.1 is imported: as students those with this role, as teachers the others', async () => {
    const content = await roster('oneroster-1.1-users');
    const fresh = await gradedSchool();
    const { report, people } = await imported(fresh, content, { ignore_unknown: 'true' });
    expect(report).toMatchObject({ rows: 2, created: 2, skipped: 2 });
    expect(people).toMatchObject([
      { admission_number: 'OR-301', first_name: 'Lena', grade_name: 'Grade 5', is_active: true },
      { admission_number: 'OR-302', first_name: 'Yusuf', grade_name: 'Grade 11', is_active: false },
    ]);
    const staff = await imported(fresh, content, { ignore_unknown: 'true' }, 'teachers');
    expect(staff.people).toMatchObject([{ first_name: 'Carla', employee_number: 'OR-T01', phone: '+39 06 5550303' }]);
  });

  test('of OneRoster 1.2 is imported, and who is to be deleted is inactive', async () => {
    const { people } = await imported(await gradedSchool(), await roster('oneroster-1.2-users'), {
      ignore_unknown: 'true',
    });
    expect(people).toMatchObject([
      { admission_number: 'OR-401', first_name: 'Priya', grade_name: 'Grade 5', is_active: true },
      { admission_number: 'OR-402', first_name: 'Omar', is_active: true },
      { admission_number: 'OR-403', first_name: 'Eva', is_active: false },
    ]);
  });

  test('of Clever is imported, with its dates in their format', async () => {
    const content = await roster('clever-students');
    const ambiguous = await dryRun(content, { ignore_unknown: 'true' }, at);
    expect(errorLines(ambiguous)).toEqual([
      '2 date_of_birth: can be 2015-02-04 (day first) or 2015-04-02 (month first). Send date_format=DD/MM/YYYY or ' +
        'date_format=MM/DD/YYYY, or set the locale of the school',
    ]);
    const { people } = await imported(await gradedSchool(), content, {
      ignore_unknown: 'true',
      date_format: 'MM/DD/YYYY',
    });
    expect(people).toMatchObject([
      {
        admission_number: '501',
        first_name: 'Noah',
        date_of_birth: '2015-04-02',
        grade_name: 'Grade 5',
        parent_name: 'Joan Baker',
        parent_phone: '217-555-0501',
        parent_email: 'joan.baker@family.example',
      },
      { admission_number: '502', date_of_birth: '2020-11-23', grade_name: 'Kindergarten', gender: 'female' },
    ]);
  });
});

describe('the header of a file', () => {
  test('may have the usual words for a field, in any case and spacing', async () => {
    const headers = {
      FORENAME: 'first_name',
      surname: 'last_name',
      'D.O.B. (DD/MM/YYYY)': 'date_of_birth',
      'roll no.': 'roll_number',
      'Home-Room': 'class',
      'GUARDIAN  NAME': 'parent_name',
      "Guardian's Phone": undefined,
      'e-mail': 'email',
    };
    const report = await dryRun(`${Object.keys(headers).join(',')}\n`, { ignore_unknown: 'true' });
    expect(mapped(report)).toEqual(Object.fromEntries(Object.entries(headers).filter(([, field]) => field)));
    expect(report.unknown_columns).toEqual([{ column: "Guardian's Phone", nearest_field: 'parent_phone' }]);
  });

  test('can be mapped by columns, which counts more than what the words mean', async () => {
    const content = 'Call name,Family,First name,Locker\nZoë,Byron,Zoe Ann,17\n';
    const columns = { 'call NAME': 'first_name', Locker: null };
    const report = await dryRun(content, { columns: JSON.stringify(columns), ignore_unknown: 'true' });
    expect(report.mapping).toEqual([
      { column: 'Call name', field: 'first_name', matched_by: 'columns' },
      { column: 'Family', field: 'last_name', matched_by: 'synonym' },
    ]);
    expect(report.unknown_columns).toEqual([{ column: 'First name', nearest_field: 'first_name' }]);
    expect(report.sample).toEqual({ row: 2, values: { first_name: 'Zoë', last_name: 'Byron' } });
  });

  test('that columns does not fit is a 400 with the reason for each column', async () => {
    const content = 'Call name,Family\nZoë,Byron\n';
    const faults = async (columns: string) =>
      (await send(school.admin, content, { columns, dry_run: 'true' })).details.map(
        ({ path, message }) => `${path}: ${message}`,
      );
    expect(
      await faults(JSON.stringify({ 'Call name': 'frist_name', Family: 'last_name', Nickname: 'first_name' })),
    ).toEqual([
      'columns.Call name: There is no field frist_name. Did you mean first_name?',
      'columns.Nickname: The file has no such column.',
    ]);
    expect(await faults('{"Call name":"last_name","Family":"last_name"}')).toEqual([
      'columns.Family: Another column is named for the field last_name.',
    ]);
    for (const columns of ['nonsense', '[]', '{"Family":1}'])
      expect(await faults(columns)).toEqual(['columns: must be a JSON object, such as {"Their header": "first_name"}']);
  });

  test('with an unknown column is an error that names the nearest field', async () => {
    const report = await dryRun('first_name,last_name,date_of_brith,colour\nA,B,,red\n');
    expect(errorLines(report).toReversed()).toEqual([
      expect.stringMatching(/^1 date_of_brith: is not a known column\. .* Did you mean date_of_birth\? /),
      expect.stringMatching(/^1 colour: is not a known column\. Available: .*\. To leave such columns out/),
    ]);
    expect(report.unknown_columns).toEqual([
      { column: 'date_of_brith', nearest_field: 'date_of_birth' },
      { column: 'colour', nearest_field: null },
    ]);
  });

  test('with two columns for a field reads the one that means it most; the other is left out on request', async () => {
    const content = 'first_name,last_name,sms,phone\nA,B,1,2\n';
    expect(errorLines(await dryRun(content))).toEqual([
      '1 sms: is a second column for phone. To leave such columns out, send ignore_unknown=true.',
    ]);
    expect((await dryRun(content, { ignore_unknown: 'true' })).sample?.values).toMatchObject({ phone: '2' });
  });
});

describe('a date', () => {
  const days = async (cells: string[], options: Options = {}, at = school) => {
    const rows = cells.map((cell, n) => `A${n},B,"${cell}"\n`).join('');
    const report = await dryRun(`first_name,last_name,DOB\n${rows}`, options, at);
    return report.errors.length > 0 ? errorLines(report) : report.sample?.values['date_of_birth'];
  };

  test.each([
    ['2010-02-04', '2010-02-04'],
    ['2010/2/4', '2010-02-04'],
    ['20100204', '2010-02-04'],
    ['4 Feb 2010', '2010-02-04'],
    ['04-February-2010', '2010-02-04'],
    ['Sept 4, 2010', '2010-09-04'],
    ['28/02/2010', '2010-02-28'],
    ['2/28/2010', '2010-02-28'],
    ['5/5/2010', '2010-05-05'],
    ['2/28/2010 12:00:00 AM', '2010-02-28'],
  ])('%s is one day in every locale', async (cell, day) => {
    expect(await days([cell])).toBe(day);
  });

  test.each(['4/2/10', '31/02/2010', '28.02.2010', '4 Foo 2010', '2010-02-30', '1/2/0999'])(
    '%s is an error without a format',
    async (cell) => {
      expect(await days([cell])).toEqual([expect.stringMatching(/^2 date_of_birth: must be a date, YYYY-MM-DD/)]);
    },
  );

  test('is read in the order of the locale of the school, unless another date of the column does not fit it', async () => {
    const [german, american, british] = await Promise.all(
      ['de-DE', 'en-US', 'en-GB'].map((locale) => gradedSchool(locale)),
    );
    expect(await days(['04.02.2010'], {}, german)).toBe('2010-02-04');
    expect(await days(['4/2/2010'], {}, american)).toBe('2010-04-02');
    expect(await days(['4/2/2010'], {}, british)).toBe('2010-02-04');
    expect(await days(['4/2/2010', '2/28/2010'], {}, british)).toEqual([
      '2 date_of_birth: can be 2010-02-04 (day first) or 2010-04-02 (month first). Send date_format=DD/MM/YYYY or ' +
        'date_format=MM/DD/YYYY: line 3 has 2/28/2010, which is not in the order of en-GB',
    ]);
  });

  test.each([
    ['MM/DD/YYYY', '4/2/2010', '2010-04-02'],
    ['DD/MM/YYYY', '4/2/2010', '2010-02-04'],
    ['dd.mm.yyyy', '04.02.2010', '2010-02-04'],
    ['DDMMYYYY', '04022010', '2010-02-04'],
    ['DD MMM YYYY', '04 Feb 2010', '2010-02-04'],
    ['MM/DD/YYYY', '2010-02-04', '2010-02-04'],
  ])('in the format %s can be given as %s', async (date_format, cell, day) => {
    expect(await days([cell], { date_format })).toBe(day);
  });

  test('that is not in the format is an error, and so is a format with a year of two digits', async () => {
    expect(await days(['28/02/2010'], { date_format: 'MM/DD/YYYY' })).toEqual([
      '2 date_of_birth: must be a date in the format MM/DD/YYYY, or YYYY-MM-DD',
    ]);
    for (const date_format of ['DD/MM/YY', 'DD/YYYY', 'MM/DD/MM/YYYY', 'nonsense'])
      expect((await send(school.admin, 'first_name\nA\n', { date_format })).details).toEqual([
        { path: 'date_format', message: 'must be a format such as DD/MM/YYYY, MM/DD/YYYY or DD MMM YYYY' },
      ]);
  });
});

describe('a grade', () => {
  const gradeOf = async (at: School, grade: string) => {
    const report = await dryRun(`first_name,last_name,Grade level\nA,B,${grade}\n`, {}, at);
    return report.errors.length > 0 ? errorLines(report) : report.sample?.values['grade'];
  };

  test.each([
    ['grade 5', 'Grade 5'],
    ['5', 'Grade 5'],
    ['05', 'Grade 5'],
    ['5th Grade', 'Grade 5'],
    ['Year 11', 'Grade 11'],
    ['KG', 'Kindergarten'],
  ])('is found by %s', async (given, grade) => {
    expect(await gradeOf(await gradedSchool(), given)).toBe(grade);
  });

  test('without a number in its name is found by its sequence', async () => {
    const at = await service.school();
    await at.insert('grade', { name: 'Lower', sequence: 1 });
    await at.insert('grade', { name: 'Upper', sequence: 2 });
    expect(await gradeOf(at, '2')).toBe('Upper');
    expect(await gradeOf(at, '3')).toEqual(['2 grade: There is no grade 3.']);
    // It would be Grade 12, because the sequence begins with the kindergarten.
    expect(await gradeOf(await gradedSchool(), '13')).toEqual(['2 grade: There is no grade 13.']);
  });

  test('is an error if several have the number', async () => {
    const at = await service.school();
    await at.insert('grade', { name: 'Science 11', sequence: 1 });
    await at.insert('grade', { name: 'Arts 11', sequence: 2 });
    expect(await gradeOf(at, '11')).toEqual(['2 grade: There are 2 grades called 11. Use grade_id instead.']);
    expect(await gradeOf(at, unique('none'))).toEqual([expect.stringContaining('There is no grade')]);
  });
});
