import { beforeEach, describe, expect, test } from '@jest/globals';
import type { OutputOf } from '../support/client/output.ts';
import { checksums } from '../support/database/traces.ts';
import { fileForm } from '../support/fixtures/pictures.ts';
import { type School, serviceWithSchool } from '../support/server/service.ts';
import type { Report as ReportSchema } from '../../src/endpoints/imports.ts';

const { service } = await serviceWithSchool();

type Report = OutputOf<typeof ReportSchema>;
type Options = Record<string, string>;

let school: School;
beforeEach(async () => {
  school = await service.school();
});

/** Uploads a file; the options are fields of the form. */
function send(content: string | Buffer, options: Options = {}, people = 'students') {
  const form = fileForm(Buffer.from(content), options['name'] ?? 'people.csv', 'application/octet-stream', 'file');
  for (const [name, value] of Object.entries(options)) if (name !== 'name') form.append(name, value);
  return school.admin.send<Report>('POST', `/api/${people}/import`, { body: form });
}

async function run(content: string | Buffer, options: Options = {}, people = 'students'): Promise<Report> {
  const answer = await send(content, options, people);
  expect({ details: answer.details, message: answer.message }).toEqual({ details: undefined, message: undefined });
  return answer.data;
}
const tryOut = (content: string | Buffer, options: Options = {}) => run(content, { dry_run: 'true', ...options });

describe('an export', () => {
  const file = async (people: string, query = '') =>
    (await school.admin.get<Buffer>(`/api/${people}/export${query}`, 200)).data;

  test.each(['csv', 'xlsx'])('of students as .%s is taken back unchanged', async (format) => {
    await school.classroom('Blue');
    await run(
      'first_name,last_name,admission_number,external_id,DOB,gender,email,phone,class,parent_name,address,is_active\n' +
        'Zoë,"O""Brien; Jr.",007,x-1,2015-02-28,female,zoe@s.example,=0,Blue,Ōe 大江,"1 Long Street\nFlat 2",no\n' +
        'Bea,Lee,,,,,,,,,,\n',
    );
    await school.admin.post('/api/students', { first_name: 'Sukarno', last_name: '' }, 201);
    // Stored before white space was normalized.
    await school.insert('student', { admission_number: 'X-1', first_name: 'Ada\u00a0 Mae', last_name: 'King' });
    const content = await file('students', `?format=${format}`);
    const before = await checksums(service.database, school.schema);
    const options = { mode: 'update', name: `people.${format}` };
    expect(await tryOut(content, options)).toMatchObject({ rows: 4, valid: 4, unchanged: 4, errors: [] });
    expect(await run(content, options)).toMatchObject({ updated: 0, unchanged: 4 });
    expect(await checksums(service.database, school.schema)).toEqual(before);
  });

  test.each(['csv', 'xlsx'])('of teachers as .%s is taken back unchanged', async (format) => {
    await run(
      'first_name,last_name,employee_number,external_id,email,joined_on,specialization\n' +
        'Ada,King,T1,x-1,ada@s.example,2020-08-01,Maths\nBea,Lee,T2,,,,\n',
      { source: 'hr' },
      'teachers',
    );
    const content = await file('teachers', `?format=${format}&source=hr`);
    const options = { mode: 'update', source: 'hr', name: `people.${format}` };
    expect(await run(content, options, 'teachers')).toMatchObject({ rows: 2, updated: 0, unchanged: 2 });
  });

  test('has the filters of the list, and of a teacher only their own students', async () => {
    const { classId } = await school.classroom('Blue');
    await run('first_name,last_name,class\nAda,King,Blue\nBea,Lee,\n');
    const text = (await file('students', `?class_id=${classId}`)).toString();
    expect(text).toContain('Ada,King');
    expect(text).not.toContain('Bea');
    const teacher = await school.user(['teacher']);
    const own = await teacher.get<Buffer>('/api/students/export', 200);
    expect(own.data.toString().trim().split('\n')).toHaveLength(1);
  });
});
