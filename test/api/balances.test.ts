import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { readSheet } from '../../src/documents/spreadsheets.ts';
import { feeSchool } from '../support/fixtures/fees.ts';
import { testService } from '../support/server/service.ts';

const service = await testService();
afterAll(() => service.close());
const path = '/api/finance/balances/export';

/** The academic year is the current calendar year, so that invoices issued today belong to it. */
const year = new Date().getUTCFullYear();
let world: Awaited<ReturnType<typeof feeSchool>>;
let [red, blue]: [number, number] = [0, 0];
beforeAll(async () => {
  world = await feeSchool(service, { name: 'This year', start_date: `${year}-01-01`, end_date: `${year}-12-31` }, []);
  [red, blue] = [await world.addClass('Red'), await world.addClass('Blue')];
});

/** The rows of the export: admission number, student, class, billed, paid, waived, balance, overdue, discounted. */
async function exportBalances(query = '') {
  const { data } = await world.school.admin.get<Buffer>(path + query);
  const rows = (await readSheet({ content: data, contentType: 'text/csv' }, 5000)).slice(1).map(({ cells }) => cells);
  return rows.map(([number = '', student, className, ...figures]) => [
    number,
    student,
    className,
    ...figures.map(Number),
  ]);
}
const addInvoice = async (student_id: number, amount: number, due_date: string, fields: object = {}) =>
  (
    await world.school.admin.post<{ id: number }>(
      '/api/fees/invoices',
      { student_id, due_date, items: [{ description: 'Trip', amount, quantity: 1 }], ...fields },
      201,
    )
  ).data.id;

test('the export has one row per billed student that adds up fees and invoices to the cent', async () => {
  const { school } = world;
  const add = (admission_number: string, class_id: number) =>
    world.addStudent(class_id, `${year}-01-01`, { first_name: 'Stu', last_name: admission_number, admission_number });
  const [open, paid, waived, former, none, voided, drafted] = [
    await add('OPEN', red),
    await add('PAID', blue),
    await add('WAIVED', red),
    await add('FORMER', red),
    await add('NONE', red),
    await add('VOID', blue),
    await add('DRAFT', blue),
  ];
  const tuition = await world.addStructure([{ name: 'Tuition', amount: 100.1, frequency: 'annual' }], [red, blue]);
  await world.generate(tuition, { student_ids: [open, paid, waived, former], due_date: `${year - 1}-06-01` });
  const feeOf = async (student: number) => (await world.feesOf(student))[0]?.id ?? 0;
  await world.pay(await feeOf(open), 0.3);
  await world.pay(await feeOf(paid), 100.1);
  const discount = { amount: 10.05, reason: 'A sibling' };
  await school.admin.post(`/api/finance/student-fees/${await feeOf(waived)}/discounts`, discount, 201);
  await world.pay(await feeOf(waived), 20);
  await school.admin.post(`/api/finance/student-fees/${await feeOf(waived)}/waive`, { reason: 'A sibling' });
  await school.admin.delete(`/api/students/${former}`);
  await addInvoice(open, 10.05, `${year + 1}-06-01`);
  await addInvoice(paid, 5, `${year - 1}-06-01`);
  await addInvoice(drafted, 5, `${year}-06-01`, { status: 'draft' });
  await school.admin.post(`/api/fees/invoices/${await addInvoice(voided, 5, `${year}-06-01`)}/void`, {
    reason: 'A mistake',
  });
  const rows = [
    ['OPEN', 'Stu OPEN', 'Red', 110.15, 0.3, 0, 109.85, 99.8, 0],
    ['PAID', 'Stu PAID', 'Blue', 105.1, 100.1, 0, 5, 5, 0],
    ['WAIVED', 'Stu WAIVED', 'Red', 100.1, 20, 70.05, 0, 0, 10.05],
    ['FORMER', 'Stu FORMER', 'Red', 100.1, 0, 0, 100.1, 100.1, 0],
  ];
  expect(await exportBalances()).toEqual(rows);
  expect(none).toBeGreaterThan(0);
  expect(await exportBalances('?only_open=true')).toEqual(rows.filter(([number]) => number !== 'WAIVED'));
  expect(await exportBalances('?only_open=false')).toEqual(rows);
  expect(await exportBalances(`?class_id=${blue}`)).toEqual([rows[1]]);
  expect(await exportBalances(`?academic_year_id=${world.yearId}`)).toEqual(rows);
});

test('filtered by year and class, the columns add up to the figures of the finance summary', async () => {
  const { school } = world;
  const later = (
    await school.admin.post<{ id: number }>(
      '/api/academics/years',
      { name: 'Next', start_date: `${year + 1}-01-01`, end_date: `${year + 1}-12-31` },
      201,
    )
  ).data.id;
  const nextClass = (
    await school.admin.post<{ id: number }>(
      '/api/classes',
      { name: 'Green', grade_id: world.gradeId, academic_year_id: later },
      201,
    )
  ).data.id;
  const structure = await school.admin.post<{ id: number }>(
    '/api/finance/fee-structures',
    {
      name: 'Next',
      academic_year_id: later,
      components: [{ name: 'Tuition', amount: 77.77, frequency: 'annual' }],
      class_ids: [nextClass],
    },
    201,
  );
  const mover = await world.addStudent(red, `${year}-01-01`, { admission_number: 'MOVER' });
  await addInvoice(mover, 1.01, `${year - 1}-01-01`);
  await school.admin.put(`/api/students/${mover}`, { class_id: nextClass });
  await world.generate(structure.data.id, { student_ids: [mover] });
  const rowsOfMover = async (query: string) =>
    (await exportBalances(query)).filter(([number]) => number === 'MOVER').map((row) => row.slice(2));
  expect(await rowsOfMover('')).toEqual([['Green', 78.78, 0, 0, 78.78, 1.01, 0]]);
  expect(await rowsOfMover(`?academic_year_id=${world.yearId}`)).toEqual([['Green', 1.01, 0, 0, 1.01, 1.01, 0]]);
  expect(await rowsOfMover(`?academic_year_id=${later}`)).toEqual([['Green', 77.77, 0, 0, 77.77, 0, 0]]);
  expect(await rowsOfMover(`?class_id=${red}`)).toEqual([['Green', 1.01, 0, 0, 1.01, 1.01, 0]]);
  for (const academicYear of [world.yearId, later]) {
    const { data } = await school.admin.get<Record<string, number> & { by_class: Record<string, number>[] }>(
      `/api/finance/summary?academic_year_id=${academicYear}`,
    );
    for (const figures of [data, ...data.by_class]) {
      const rows = await exportBalances(
        `?academic_year_id=${academicYear}${figures === data ? '' : `&class_id=${figures['class_id']}`}`,
      );
      const sum = (column: number) =>
        rows.reduce((total, row) => total + Math.round(Number(row[column]) * 100), 0) / 100;
      expect([3, 4, 5, 6, 7, 8].map(sum)).toEqual(
        ['billed', 'collected', 'waived', 'outstanding', 'overdue', 'discounted'].map((name) => figures[name]),
      );
    }
  }
});

test('the export is complete and sorted by student id for thousands of students', async () => {
  const other = await feeSchool(service);
  const { schema, admin } = other.school;
  await service.database.query(
    `insert into ${schema}.student (first_name, last_name, admission_number) select 'Stu', 'Dent', 'A' || n from generate_series(1, 2600) n`,
  );
  await service.database.query(`insert into ${schema}.invoice (student_id, due_date, invoice_number, issued_at)
    select id, '2090-01-01', 'INV-2026-' || lpad(id::text, 6, '0'), now() from ${schema}.student where id % 10 <> 0`);
  await service.database.query(
    `insert into ${schema}.invoice_item (invoice_id, student_id, description, amount) select id, student_id, 'Book', student_id from ${schema}.invoice`,
  );
  const { data } = await admin.get<Buffer>(`${path}?format=xlsx`);
  const rows = (await readSheet({ content: data, contentType: 'xlsx' }, 5000))
    .slice(1)
    .map(({ cells }) => [cells[0], Number(cells[6])]);
  const expected = await service.database.query<{ number: string; amount: number }>(
    `select s.admission_number as number, i.amount::float as amount from ${schema}.invoice i join ${schema}.student s on s.id = i.student_id order by s.id`,
  );
  expect(rows).toHaveLength(2340);
  expect(rows).toEqual(expected.map(({ number, amount }) => [number, amount]));
});

test('the export requires fee.read for the whole school, and answers 404 for an unknown academic year', async () => {
  const { school } = world;
  await (await school.user(['accountant'])).get(path);
  await (await school.user(['teacher'])).get(path, 403);
  await (await school.user(['student'])).get(path, 403);
  // Even with fee.read in the role teacher, a teacher sees only their own classes.
  await service.database.query(
    `insert into ${school.schema}.role_permission (role_id, permission_id) select r.id, p.id from ${school.schema}.role r, core.permission p where r.name = 'teacher' and p.name = 'fee.read'`,
  );
  expect(await (await school.user(['teacher'])).get(path, 403)).toMatchObject({
    error: 'forbidden',
    message: 'This needs access to the whole school.',
  });
  expect((await school.admin.get(`${path}?academic_year_id=999999`, 404)).message).toBe(
    'There is no academic year 999999.',
  );
  expect((await school.admin.get(`${path}?only_open=yes`, 400)).details).toMatchObject([{ path: 'only_open' }]);
});
