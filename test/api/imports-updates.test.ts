import { beforeEach, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import type { OutputOf } from '../support/client/output.ts';
import { checksums } from '../support/database/traces.ts';
import { fileForm } from '../support/fixtures/pictures.ts';
import { type School, serviceWithSchool } from '../support/server/service.ts';
import type { Report as ReportSchema } from '../../src/endpoints/imports.ts';

const { service } = await serviceWithSchool();

type Report = OutputOf<typeof ReportSchema>;
type Person = Record<string, unknown> & { id: number };
type Options = Record<string, string>;

let school: School;
beforeEach(async () => {
  school = await service.school();
});

/** Uploads a file; the options are fields of the form. */
function send(content: string | Buffer, options: Options = {}, people = 'students', who: Client = school.admin) {
  const form = fileForm(Buffer.from(content), options['name'] ?? 'people.csv', 'application/octet-stream', 'file');
  for (const [name, value] of Object.entries(options)) if (name !== 'name') form.append(name, value);
  return who.send<Report>('POST', `/api/${people}/import`, { body: form });
}

async function run(content: string | Buffer, options: Options = {}, people = 'students'): Promise<Report> {
  const answer = await send(content, options, people);
  expect({ details: answer.details, message: answer.message }).toEqual({ details: undefined, message: undefined });
  return answer.data;
}
const tryOut = (content: string | Buffer, options: Options = {}, people = 'students') =>
  run(content, { dry_run: 'true', ...options }, people);

const errorLines = ({ errors }: Report) =>
  errors.map(({ row, column, message }) => `${row ?? '-'} ${column ?? '-'}: ${message}`);
const list = async (people = 'students') => (await school.admin.get<Person[]>(`/api/${people}?sort=id`)).data;

describe('an import with mode=update', () => {
  test('changes the students of the admission numbers; an empty cell keeps what is there', async () => {
    await run(
      'first_name,last_name,admission_number,phone,address\nAda,King,A1,1,Here\nBea,Lee,A2,2,There\nCy,Poe,A3,,\n',
    );
    const content = 'admission_number,phone,address,first_name\nA1,11,,Adele\nA2,2,,Bea\n';
    const before = await checksums(service.database, school.schema);
    const dry = await tryOut(content, { mode: 'update' });
    const [ada, bea, cy] = await list();
    expect(dry).toMatchObject({ rows: 2, valid: 2, created: 0, updated: 0, unchanged: 1, errors: [], warnings: [] });
    expect(dry.result).toEqual({
      created: [],
      changed: [
        {
          row: 2,
          id: ada?.id,
          name: 'Ada King',
          changes: [
            { field: 'first_name', old: 'Ada', new: 'Adele' },
            { field: 'phone', old: '1', new: '11' },
          ],
          creates_login: false,
          note: null,
        },
      ],
      unchanged: [{ row: 3, id: bea?.id, name: 'Bea Lee' }],
      refused: [],
    });
    expect(await checksums(service.database, school.schema)).toEqual(before);
    expect(await run(content, { mode: 'update' })).toMatchObject({ created: 0, updated: 1, unchanged: 1, ids: [] });
    const [changed, ...others] = await list();
    expect(changed).toMatchObject({ first_name: 'Adele', last_name: 'King', phone: '11', address: 'Here' });
    expect(others).toEqual([bea, cy]);
  });

  test('refuses rows of people who do not exist, whom it cannot find, or who are in it twice', async () => {
    await run('first_name,last_name,admission_number\nAda,King,A1\nBea,Lee,A2\n');
    const content = 'admission_number,external_id,phone\nA9,,1\n,X9,1\n,,1\nA1,,1\nA1,,2\nA2,,x\n'.replace(
      'A2,,x',
      'A2,,3',
    );
    const report = await tryOut(content, { mode: 'update' });
    expect(errorLines(report)).toEqual([
      '2 admission_number: There is no student with this admission number.',
      '3 external_id: There is no student with this external id.',
      '4 -: The row has no external id and no admission number, by which the student could be found.',
      '6 admission_number: Line 5 has the same admission number.',
    ]);
    expect(report.result).toMatchObject({
      changed: [{ row: 5 }, { row: 7 }],
      refused: [{ row: 2 }, { row: 3 }, { row: 4 }, { row: 6 }],
    });
    expect((await send(content, { mode: 'update' })).status).toBe(400);
    expect((await list()).map(({ phone }) => phone)).toEqual([null, null]);
  });

  test('moves students to another class, and leaves those of a full class where they are', async () => {
    const from = await school.classroom('From');
    await school.classroom('To');
    await school.database.query(`update ${school.schema}.class set capacity = 2 where id = $1`, [from.classId]);
    await run('first_name,last_name,admission_number,class\nAda,King,A1,From\nBea,Lee,A2,From\n');
    const content = 'admission_number,class,grade\nA1,FROM,From grade\nA2,To,\n';
    const dry = await tryOut(content, { mode: 'update' });
    expect(dry.errors).toEqual([]);
    expect(dry.result).toMatchObject({
      changed: [{ row: 3, changes: [{ field: 'class', old: 'From', new: 'To' }] }],
      unchanged: [{ row: 2 }],
    });
    await run(content, { mode: 'update' });
    expect((await list()).map(({ class_name, grade_name }) => [class_name, grade_name])).toEqual([
      ['From', 'From grade'],
      ['To', 'To grade'],
    ]);
    expect(errorLines(await tryOut('admission_number,grade\nA1,To grade\n', { mode: 'update' }))).toEqual([
      '2 grade: The class belongs to another grade.',
    ]);
  });

  test('never changes the email of a login', async () => {
    const email = 'ada@school.example';
    await run(`first_name,last_name,admission_number,email,create_user_account\nAda,King,A1,${email},yes\n`);
    const content = 'admission_number,email\nA1,other@school.example\n';
    const dry = await tryOut(content, { mode: 'update' });
    expect(dry.result.changed[0]?.note).toBe('The email of the login does not change.');
    await run(content, { mode: 'update' });
    const [ada] = await list();
    expect(ada?.['email']).toBe('other@school.example');
    expect((await school.admin.get(`/api/users/${Number(ada?.['user_id'])}`)).data).toMatchObject({ email });
  });

  test('creates logins for those who have none, with the stored email', async () => {
    await run('first_name,last_name,admission_number,email\nAda,King,A1,ada@school.example\nBea,Lee,A2,\n');
    const content = 'admission_number,create_user_account\nA1,yes\nA2,yes\n';
    expect(errorLines(await tryOut(content, { mode: 'update' }))).toEqual([
      '3 email: is required when create_user_account is true',
    ]);
    const report = await run('admission_number,create_user_account\nA1,yes\n', { mode: 'update' });
    expect(report.result.changed).toMatchObject([{ row: 2, creates_login: true, changes: [] }]);
    const again = await run('admission_number,create_user_account\nA1,yes\n', { mode: 'update' });
    expect(again).toMatchObject({ updated: 0, unchanged: 1 });
    const [ada] = await list();
    expect((await school.admin.get(`/api/users/${Number(ada?.['user_id'])}`)).data).toMatchObject({
      email: 'ada@school.example',
      first_name: 'Ada',
      roles: ['student'],
    });
  });

  test('needs the permissions to read and update all students', async () => {
    await run('first_name,last_name,admission_number\nAda,King,A1\n');
    const content = 'admission_number,phone\nA1,1\n';
    const clerk = async (...permissions: string[]) => school.user([await school.role(...permissions)]);
    for (const [who, status] of [
      [await clerk('student.create'), 403],
      [await clerk('student.create', 'student.update'), 403],
      [await clerk('student.create', 'student.update', 'student.read'), 200],
    ] as const)
      expect((await send(content, { mode: 'update', dry_run: 'true' }, 'students', who)).status).toBe(status);
    const teacher = await school.user(['teacher', await school.role('student.create', 'student.update')]);
    expect((await send(content, { mode: 'update', dry_run: 'true' }, 'students', teacher)).status).toBe(403);
  });

  test('counts only those who become active for the plan', async () => {
    const plan = await service.plan({ max_students: 1, max_teachers: 1 });
    school = await service.school({ plan_id: plan.id });
    await run('first_name,last_name,admission_number,is_active\nAda,King,A1,yes\nBea,Lee,A2,no\n');
    const both = 'admission_number,is_active\nA1,yes\nA2,yes\n';
    expect(errorLines(await tryOut(both, { mode: 'update' }))).toEqual([
      expect.stringMatching(/allows 1 active students\. The school has 1, and this file adds 1\.$/),
    ]);
    expect((await send(both, { mode: 'update' })).error).toBe('plan_limit_reached');
    await run('admission_number,is_active\nA1,no\nA2,yes\n', { mode: 'update' });
    expect((await list()).map(({ is_active }) => is_active)).toEqual([false, true]);
  });

  test('keeps left_on in an empty cell, and ends a student on the day of a cell', async () => {
    await run('first_name,last_name,admission_number\nAda,King,A1\n');
    const left = async (cell: string) => {
      await run(`admission_number,left_on,phone\nA1,${cell},5\n`, { mode: 'update' });
      return (await list())[0]?.['left_on'];
    };
    const soon = new Date(Date.now() + 9 * 86_400_000).toISOString().slice(0, 10);
    expect([await left(soon), await left('')]).toEqual([soon, soon]);
  });
});

describe('an import with mode=upsert', () => {
  test('repeats a roster by the external ids of its source: creates, changes, and leaves the rest', async () => {
    const first = 'sourcedId,first_name,last_name,phone\ns1,Ada,King,1\ns2,Bea,Lee,2\n';
    const options = { mode: 'upsert', source: 'sis' };
    expect(await run(first, options)).toMatchObject({ created: 2, updated: 0, unchanged: 0 });
    expect(await run(first, options)).toMatchObject({ created: 0, updated: 0, unchanged: 2 });
    const second = 'sourcedId,first_name,last_name,phone\ns1,Ada,King,9\ns2,Bea,Lee,2\ns3,Cy,Poe,\n';
    expect((await tryOut(second, options)).result).toMatchObject({
      created: [{ row: 4, name: 'Cy Poe' }],
      changed: [{ row: 2, changes: [{ field: 'phone', old: '1', new: '9' }] }],
      unchanged: [{ row: 3 }],
      refused: [],
    });
    expect(await run(second, options)).toMatchObject({ created: 1, updated: 1, unchanged: 1 });
    expect((await list()).map(({ first_name, phone }) => [first_name, phone])).toEqual([
      ['Ada', '9'],
      ['Bea', '2'],
      ['Cy', null],
    ]);
    // Of another source the ids mean other people.
    expect(
      (await tryOut('sourcedId,first_name,last_name\ns1,Dot,Fox\n', { ...options, source: 'other' })).result,
    ).toMatchObject({ created: [{ name: 'Dot Fox' }] });
  });

  test('requires the names only of new people', async () => {
    await run('first_name,last_name,admission_number\nAda,King,A1\n');
    expect(errorLines(await tryOut('admission_number,first_name\nA1,\nA2,Bea\n', { mode: 'upsert' }))).toEqual([
      '3 last_name: is required',
    ]);
  });

  test('keeps an external id that a row gives to a known student, and refuses another one', async () => {
    await run('first_name,last_name,admission_number\nAda,King,A1\nBea,Lee,A2\n');
    const options = { mode: 'upsert', source: 'sis' };
    const report = await run('admission_number,external_id\nA1,s1\n', options);
    expect(report.result.changed).toMatchObject([{ changes: [{ field: 'external_id', old: null, new: 's1' }] }]);
    expect(errorLines(await tryOut('admission_number,external_id\nA1,s9\nA2,s1\n', options))).toEqual([
      '2 external_id: The student has the external id s1.',
      '3 admission_number: This admission number belongs to another student than the external id.',
    ]);
    const changed = await run('admission_number,external_id\nA3,s1\n', options);
    expect(changed.result.changed).toMatchObject([{ changes: [{ field: 'admission_number', old: 'A1', new: 'A3' }] }]);
    const create = 'first_name,last_name,external_id\nCy,Poe,s1\n';
    expect(errorLines(await tryOut(create, { source: 'sis' }))).toEqual([
      '2 external_id: This external id is already in use.',
    ]);
    await school.admin.delete(`/api/students/${(await list())[0]?.id ?? 0}`);
    await run(create, { source: 'sis' });
    expect((await tryOut('external_id,phone\ns1,1\n', options)).result.changed).toMatchObject([{ name: 'Cy Poe' }]);
  });

  test('never finds a student by an email, which siblings share', async () => {
    await run('first_name,last_name,email\nAda,King,family@example.org\n');
    const report = await tryOut('first_name,last_name,email\nAda,King,family@example.org\n', { mode: 'upsert' });
    expect(report.result.created).toEqual([{ row: 2, name: 'Ada King' }]);
    expect(report.warnings).toMatchObject([{ message: 'The school has a student with the same name and email.' }]);
  });
});

describe('people with a single name', () => {
  test('are imported on request; otherwise an empty last name is a missing one', async () => {
    const content = 'first_name,last_name,admission_number\nSukarno,,A1\nAda,King,A2\n';
    expect(errorLines(await tryOut(content))).toEqual(['2 last_name: is required']);
    await run(content, { allow_single_names: 'true' });
    const more = `${content.replace('King', '')}Suharto,,A3\n`;
    expect(errorLines(await tryOut(more, { mode: 'upsert' }))).toEqual(['4 last_name: is required']);
    const report = await run(more, { mode: 'upsert', allow_single_names: 'true' });
    expect(report.result).toMatchObject({ created: [{ name: 'Suharto' }], changed: [], unchanged: [{}, {}] });
    expect((await list()).map(({ first_name, last_name }) => [first_name, last_name])).toEqual([
      ['Sukarno', ''],
      ['Ada', 'King'],
      ['Suharto', ''],
    ]);
  });
});

describe('an import that updates teachers', () => {
  test('finds them by employee number, or by the email if exactly one of that name has it', async () => {
    const content =
      'first_name,last_name,employee_number,email\nAda,King,T1,ada@s.example\nBea,Lee,,office@s.example\n' +
      'Cy,Poe,,office@s.example\nDot,Fox,,dot@s.example\nDot,Fox,,dot@s.example\n';
    await run(content, { allow_duplicates: 'true' }, 'teachers');
    const report = await tryOut(
      'first_name,last_name,employee_number,email,phone\n,,T1,,1\nbea,LEE,T2,Office@s.example,2\n' +
        'Dot,Fox,,dot@s.example,3\nEve,Lee,,office@s.example,4\n',
      { mode: 'update' },
      'teachers',
    );
    expect(errorLines(report)).toEqual([
      '4 email: There are 2 teachers with this name and email.',
      '5 email: There is no teacher with this name and email.',
    ]);
    expect(report.result.changed).toMatchObject([
      { row: 2, name: 'Ada King', changes: [{ field: 'phone', new: '1' }] },
      { row: 3, name: 'Bea Lee' },
    ]);
  });
});
