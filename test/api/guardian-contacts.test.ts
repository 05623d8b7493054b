import { describe, expect, test } from '@jest/globals';
import { type Guardian, type Student } from '../support/fixtures/guardians.ts';
import { serviceWithSchool } from '../support/server/service.ts';

const { service } = await serviceWithSchool();

describe('guardians from contacts', () => {
  test('are one for all children with the same email and name; a dry run changes nothing', async () => {
    const other = await service.school();
    const add = async (fields: object) =>
      (await other.admin.post<Student>('/api/students', { first_name: 'Ada', last_name: 'Byron', ...fields }, 201)).data
        .id;
    const a = await add({ parent_name: 'Ruth Byron', parent_email: 'ruth@byron.example' });
    const b = await add({
      parent_name: 'ruth  byron',
      parent_email: 'Ruth@Byron.example',
      parent_phone: '+44 20 7946 0004',
    });
    const c = await add({ parent_name: 'Omar García', parent_phone: '+44 20 7946 0005' });
    const d = await add({ parent_name: 'Lucía García', parent_email: 'garcia@home.example' });
    const e = await add({ parent_name: 'Omar García', parent_email: 'garcia@home.example' });
    const f = await add({ parent_email: 'nameless@home.example' });
    const many = await Promise.all(
      Array.from({ length: 9 }, () => add({ parent_name: 'Pat Office', parent_email: 'office@school.example' })),
    );
    await add({});
    const expected = {
      created: 2,
      linked: 3,
      skipped: [
        { student_ids: [d, e], reason: 'The contacts with this email have different names.' },
        { student_ids: [f], reason: 'The contact has no name.' },
        { student_ids: many.toSorted((x, y) => x - y), reason: 'More than eight students have this contact.' },
      ],
    };
    const run = async (dry_run: boolean) =>
      (await other.admin.post<typeof expected>('/api/guardians/from-contacts', { dry_run })).data;
    expect(await run(true)).toMatchObject(expected);
    expect((await other.admin.get('/api/guardians')).pagination.totalItems).toBe(0);
    expect(await run(false)).toMatchObject(expected);
    expect(await run(false)).toMatchObject({ created: 0, linked: 0 });
    const { data } = await other.admin.get<Guardian[]>('/api/guardians?search=ruth');
    expect(data.map(({ children }) => children.map(({ student_id }) => student_id).toSorted())).toEqual([[a, b]]);
    expect((await other.admin.get<Guardian[]>(`/api/guardians?student_id=${c}`)).data).toMatchObject([
      { first_name: 'Omar', last_name: 'García', email: null, phone: '+44 20 7946 0005' },
    ]);
  });
});
