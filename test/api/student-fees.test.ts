import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Component, feeSchool, type Generated, type StudentFee } from '../support/fixtures/fees.ts';
import { walk } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { testPassword, testService } from '../support/server/service.ts';

const service = await testService({}, 7);
afterAll(() => service.close());
const path = '/api/finance/student-fees';

let world: Awaited<ReturnType<typeof feeSchool>>;
beforeAll(async () => {
  world = await feeSchool(service);
});

/** Due dates of requests are less than two years ago. */
const lastYear = new Date().getUTCFullYear() - 1;

const tuition: Component = { name: 'Tuition', amount: 1000, frequency: 'annual' };
const bus: Component = { name: 'Bus', amount: 31, frequency: 'monthly' };
const lunch: Component = { name: 'Lunch', amount: 92, frequency: 'quarterly' };
const sport: Component = { name: 'Sport', amount: 50, frequency: 'term' };
const admission: Component = { name: 'Admission', amount: 10.5, frequency: 'one_time' };

/** A class with a student, and a fee structure assigned to the class. */
async function createBillable(
  components: Component[] = [tuition],
  joined = '2021-08-01',
  fields: Record<string, unknown> = {},
) {
  const classId = await world.addClass();
  const studentId = await world.addStudent(classId, joined);
  return { classId, studentId, structureId: await world.addStructure(components, [classId], fields) };
}
/** A student with one fee. */
async function createFee(components: Component[] = [tuition], fields: Record<string, unknown> = {}) {
  const billable = await createBillable(components);
  await world.generate(billable.structureId, { date: '2021-10-10', ...fields });
  const [one] = await world.feesOf(billable.studentId);
  if (!one) throw new Error('no fee was created');
  return { ...billable, ...one };
}
/** Creates a class in a new academic year, and promotes students to it. */
async function promote(student_ids: number[], year: { name: string; start_date: string; end_date: string }) {
  const create = async (to: string, body: object) =>
    (await world.school.admin.post<{ id: number }>(to, body, 201)).data.id;
  const yearId = await create('/api/academics/years', year);
  const classId = await create('/api/classes', { name: 'Up', grade_id: world.gradeId, academic_year_id: yearId });
  const body = { student_ids, to_class_id: classId, to_academic_year_id: yearId };
  await world.school.admin.post('/api/students/promote', body);
}
const periods = ({ items }: Pick<StudentFee, 'items'>) =>
  items.map(({ name, period_start, period_end }) => `${name} ${period_start} ${period_end}`);
const inOneYear = () => new Date(Date.now() + 365 * 86_400_000).toISOString().slice(0, 10);

describe('billing', () => {
  test('notifies parents in the order of the classes, then of the students', async () => {
    const classes = [await world.addClass(), await world.addClass()];
    const structureId = await world.addStructure([tuition], classes);
    const join = async (n: number, parent_email: string) =>
      world.addStudent(classes[n] ?? 0, undefined, { parent_email });
    for (const [n, parent] of [
      [1, 'second'],
      [0, 'first'],
      [1, 'third'],
    ] as const)
      await join(n, `${parent}@billing.example`);
    await world.generate(structureId, { date: '2021-11-15' });
    await service.settled();
    expect(
      await service.database.query(
        `select address from ${world.school.schema}.notification_delivery where address like '%@billing.example' order by id`,
      ),
    ).toEqual(['first', 'second', 'third'].map((parent) => ({ address: `${parent}@billing.example` })));
  });

  test('creates one fee with an item for each component, for the period that contains the date', async () => {
    const { studentId, structureId, classId } = await createBillable([tuition, bus, lunch, sport, admission]);
    expect(await world.generate(structureId, { date: '2021-11-15', due_date: `${lastYear}-12-01` })).toEqual({
      fee_structure_id: structureId,
      created: 1,
      skipped: 0,
      reasons: [],
      amount: 1183.5,
      date: '2021-11-15',
      due_date: `${lastYear}-12-01`,
      dry_run: false,
    });
    const [one] = await world.feesOf(studentId);
    expect(one).toMatchObject({
      class_id: classId,
      amount: 1183.5,
      paid_amount: 0,
      balance: 1183.5,
      due_date: `${lastYear}-12-01`,
      status: 'overdue',
      billed_on: '2021-11-15',
    });
    expect(one && periods(one)).toEqual([
      'Tuition 2021-08-01 2022-07-31',
      'Bus 2021-11-01 2021-11-30',
      'Lunch 2021-11-01 2022-01-31',
      'Sport 2021-08-01 2021-12-20',
      'Admission 2021-08-01 2022-07-31',
    ]);
  });

  test('bills each component once per period: nothing in a second run, monthly components in the next month, and new students', async () => {
    const { classId, structureId, studentId } = await createBillable([tuition, bus]);
    await world.generate(structureId, { date: '2021-09-01' });
    expect(await world.generate(structureId, { date: '2021-09-30' })).toMatchObject({
      created: 0,
      skipped: 1,
      reasons: [{ reason: 'already_billed', count: 1 }],
      amount: 0,
    });
    expect(await world.generate(structureId, { date: '2021-10-01' })).toMatchObject({ created: 1, amount: 31 });
    const late = await world.addStudent(classId, '2021-09-20');
    expect(await world.generate(structureId, { date: '2021-10-01' })).toMatchObject({
      created: 1,
      skipped: 1,
      amount: 1031,
    });
    expect((await world.feesOf(late)).map(periods)).toEqual([
      ['Tuition 2021-08-01 2022-07-31', 'Bus 2021-10-01 2021-10-31'],
    ]);
    expect((await world.feesOf(studentId)).map(({ amount }) => amount).sort((a, b) => a - b)).toEqual([31, 1031]);
  });

  test.each([
    ['2021-08-01', '2021-08-01 2021-10-31', '2021-08-01 2021-08-31'],
    ['2021-10-31', '2021-08-01 2021-10-31', '2021-10-01 2021-10-31'],
    ['2022-02-28', '2022-02-01 2022-04-30', '2022-02-01 2022-02-28'],
    ['2022-07-31', '2022-05-01 2022-07-31', '2022-07-01 2022-07-31'],
  ])('on %s bills the quarter %s and the month %s', async (date, quarter, month) => {
    const { studentId, structureId } = await createBillable([lunch, bus]);
    await world.generate(structureId, { date });
    expect((await world.feesOf(studentId)).map(periods)).toEqual([[`Lunch ${quarter}`, `Bus ${month}`]]);
  });

  test.each([
    ['2021-08-01', '2021-08-01 2022-01-31'],
    ['2022-01-31', '2021-08-01 2022-01-31'],
    ['2022-02-01', '2022-02-01 2022-07-31'],
  ])('on %s bills the half-year %s, once', async (date, halfYear) => {
    const { studentId, structureId } = await createBillable([{ ...lunch, frequency: 'Half-Yearly' }]);
    expect(await world.generate(structureId, { date })).toMatchObject({ created: 1, amount: 92 });
    expect(await world.generate(structureId, { date })).toMatchObject({ created: 0 });
    expect((await world.feesOf(studentId)).map(periods)).toEqual([[`Lunch ${halfYear}`]]);
  });

  test.each([
    ['2018-01-31', '2018-01-31 2018-04-29', '2018-01-31 2018-01-31'],
    ['2018-04-29', '2018-01-31 2018-04-29', '2018-04-01 2018-04-30'],
    ['2018-04-30', '2018-04-30 2018-07-30', '2018-04-01 2018-04-30'],
    ['2018-11-15', '2018-10-31 2018-11-15', '2018-11-01 2018-11-15'],
  ])(
    'on %s of an academic year from January 31 to November 15 bills the quarter %s and the month %s',
    async (date, quarter, month) => {
      const odd = await feeSchool(service, { name: 'Odd', start_date: '2018-01-31', end_date: '2018-11-15' }, []);
      const classId = await odd.addClass();
      const studentId = await odd.addStudent(classId, '2018-01-31');
      await odd.generate(await odd.addStructure([lunch, bus], [classId]), { date });
      expect((await odd.feesOf(studentId)).map(periods)).toEqual([[`Lunch ${quarter}`, `Bus ${month}`]]);
    },
  );

  test('skips a student who joined after the period, and charges one who joined within it in full, or with prorate for the remaining days', async () => {
    const { classId, structureId, studentId } = await createBillable(
      [bus, { name: 'Odd', amount: 100, frequency: 'monthly' }],
      '2021-10-11',
    );
    expect(await world.generate(structureId, { date: '2021-09-30' })).toMatchObject({
      created: 0,
      reasons: [{ reason: 'joined_later', count: 1 }],
    });
    // 21 of 31 days: 31 × 21 / 31 = 21, and 100 × 21 / 31 = 67.7419…
    expect(await world.generate(structureId, { date: '2021-10-01', prorate: true })).toMatchObject({
      created: 1,
      amount: 88.74,
    });
    const other = await world.addStudent(classId, '2021-10-11');
    expect(await world.generate(structureId, { date: '2021-10-01' })).toMatchObject({ created: 1, amount: 131 });
    expect(
      [...(await world.feesOf(studentId)), ...(await world.feesOf(other))].map(({ items }) =>
        items.map(({ amount }) => amount),
      ),
    ).toEqual([
      [21, 67.74],
      [31, 100],
    ]);
  });

  test('rounds half a cent up, and skips a student whose prorated amount is less', async () => {
    const half = await createBillable([{ name: 'Half', amount: 0.01, frequency: 'monthly' }], '2021-09-16');
    expect(await world.generate(half.structureId, { date: '2021-09-01', prorate: true })).toMatchObject({
      created: 1,
      amount: 0.01,
    });
    const less = await createBillable([{ name: 'Less', amount: 0.01, frequency: 'monthly' }], '2021-09-17');
    expect(await world.generate(less.structureId, { date: '2021-09-01', prorate: true })).toMatchObject({
      created: 0,
      reasons: [{ reason: 'nothing_due', count: 1 }],
    });
  });

  test('reports why students are skipped: no term, inactive, removed, not in one of the classes', async () => {
    const { classId, structureId } = await createBillable([sport]);
    const [inactive, removed, taken, elsewhere] = [
      await world.addStudent(classId),
      await world.addStudent(classId),
      await world.addStudent(classId),
      await world.addStudent(await world.addClass()),
    ];
    const { admin } = world.school;
    await admin.put(`/api/students/${inactive}`, { left_on: '2021-12-01' });
    await admin.delete(`/api/students/${removed}`);
    await admin.put(`/api/students/${taken}`, { class_id: null });
    expect(await world.generate(structureId, { date: '2021-12-31' })).toMatchObject({
      created: 0,
      skipped: 4,
      reasons: [
        { reason: 'removed', count: 2 },
        { reason: 'inactive', count: 1 },
        { reason: 'no_term', count: 1 },
      ],
    });
    expect(
      await world.generate(structureId, { date: '2021-12-01', student_ids: [elsewhere, inactive, inactive] }),
    ).toMatchObject({
      created: 0,
      skipped: 2,
      reasons: [
        { reason: 'inactive', count: 1 },
        { reason: 'not_in_class', count: 1 },
      ],
    });
  });

  test('can be limited to some of the classes and students', async () => {
    const { classId, studentId, structureId } = await createBillable();
    const otherClass = await world.addClass();
    const [other, third] = [await world.addStudent(otherClass), await world.addStudent(otherClass)];
    await world.school.admin.post(`/api/finance/fee-structures/${structureId}/assign-classes`, {
      class_ids: [classId, otherClass],
    });
    expect(
      await world.generate(structureId, { class_ids: [otherClass], student_ids: [studentId, other] }),
    ).toMatchObject({
      created: 1,
      skipped: 1,
      reasons: [{ reason: 'not_in_class', count: 1 }],
    });
    expect(await world.generate(structureId, { class_ids: [otherClass] })).toMatchObject({ created: 1, skipped: 1 });
    expect(await world.feesOf(third)).toHaveLength(1);
    expect(await world.feesOf(studentId)).toEqual([]);
  });

  test('uses the last day of a past academic year by default, and a due date that is not before the billing date', async () => {
    const { structureId } = await createBillable([tuition]);
    await service.database.query(
      `update ${world.school.schema}.fee_structure set due_date = '2021-10-01' where id = $1`,
      [structureId],
    );
    expect(await world.generate(structureId, { dry_run: true })).toMatchObject({
      date: '2022-07-31',
      due_date: '2022-08-30',
    });
    expect(await world.generate(structureId, { dry_run: true, date: '2021-10-01' })).toMatchObject({
      due_date: '2021-10-01',
    });
    expect(await world.generate(structureId, { dry_run: true, date: '2021-10-02' })).toMatchObject({
      due_date: '2021-11-01',
    });
  });

  test('creates nothing in a dry run, which returns the same result', async () => {
    const { studentId, structureId } = await createBillable([tuition, bus]);
    const dryRun = await world.generate(structureId, { date: '2021-09-01', dry_run: true });
    expect(dryRun).toMatchObject({ created: 1, amount: 1031, dry_run: true });
    expect(await world.feesOf(studentId)).toEqual([]);
    expect(await world.generate(structureId, { date: '2021-09-01' })).toEqual({ ...dryRun, dry_run: false });
  });

  test('refuses an unknown structure, class or student, a date outside the year, and a structure without classes or components or with too high a total', async () => {
    const { structureId } = await createBillable();
    const { classId: elsewhere } = await createBillable();
    const refused = (body: object, status: number) =>
      world.school.admin.post(`${path}/generate`, { fee_structure_id: structureId, ...body }, status);
    expect((await refused({ fee_structure_id: 999_999 }, 422)).details).toMatchObject([{ path: 'fee_structure_id' }]);
    expect((await refused({ class_ids: [elsewhere] }, 422)).details).toMatchObject([{ path: 'class_ids' }]);
    expect((await refused({ student_ids: [999_999] }, 422)).details).toMatchObject([{ path: 'student_ids' }]);
    expect((await refused({ date: '2022-08-01' }, 400)).details).toMatchObject([{ path: 'date' }]);
    const maxAmount = 9_999_999_999.99;
    const tooMuch = [
      { name: 'All', amount: maxAmount, frequency: 'annual' },
      { name: 'A little', amount: 0.01, frequency: 'monthly' },
    ];
    for (const fields of [{ class_ids: [] }, { components: [] }, { components: tooMuch }]) {
      const { structureId: id } = await createBillable();
      await world.school.admin.put(`/api/finance/fee-structures/${id}`, fields);
      for (const dry_run of [true, false])
        expect((await refused({ fee_structure_id: id, dry_run }, 409)).error).toBe('invalid_state');
    }
  });

  test('twice with the same Idempotency-Key bills once and returns the same result', async () => {
    const { studentId, structureId } = await createBillable();
    const send = () =>
      world.school.admin.send<Generated>(
        'POST',
        `${path}/generate`,
        { body: { fee_structure_id: structureId }, headers: { 'Idempotency-Key': 'bill-once' } },
        200,
      );
    expect((await send()).data).toEqual((await send()).data);
    expect(await world.feesOf(studentId)).toHaveLength(1);
  });

  test('in two concurrent requests bills once: the second run finds everything billed', async () => {
    const { studentId, structureId } = await createBillable([tuition, bus]);
    const answers = await race(
      service.database,
      `select from ${world.school.schema}.fee_structure where id = ${structureId} for update`,
      2,
      () => [1, 2].map(() => world.generate(structureId, { date: '2021-09-01' })),
    );
    expect(answers.map(({ created }) => created).sort()).toEqual([0, 1]);
    expect(await world.feesOf(studentId)).toHaveLength(1);
  });

  test('bills nothing again after the dates of the academic year are corrected', async () => {
    const { studentId, structureId } = await createBillable([tuition, bus]);
    await world.generate(structureId, { date: '2021-08-20' });
    const { admin } = world.school;
    await admin.put(`/api/academics/years/${world.yearId}`, { start_date: '2021-07-15' });
    try {
      expect(await world.generate(structureId, { date: '2021-08-20' })).toMatchObject({ created: 0 });
    } finally {
      await admin.put(`/api/academics/years/${world.yearId}`, { start_date: '2021-08-01' });
    }
    expect(await world.feesOf(studentId)).toHaveLength(1);
  });

  test('recognizes a term after its dates are corrected, and does not mistake it for the previous one', async () => {
    const corrected = await feeSchool(service);
    const { admin } = corrected.school;
    const classId = await corrected.addClass();
    const studentId = await corrected.addStudent(classId);
    const structureId = await corrected.addStructure([sport], [classId]);
    await corrected.generate(structureId, { date: '2021-09-01' });
    const { data: terms } = await admin.get<{ id: number; name: string }[]>('/api/academic-terms');
    const changeTerm = async (name: string, dates: object) =>
      admin.put(`/api/academic-terms/${terms.find((term) => term.name === name)?.id ?? 0}`, dates);
    await changeTerm('Autumn', { start_date: '2021-08-10', end_date: '2021-12-10' });
    await changeTerm('Spring', { start_date: '2021-12-14' });
    expect(await corrected.generate(structureId, { date: '2021-12-05' })).toMatchObject({
      created: 0,
      reasons: [{ reason: 'already_billed', count: 1 }],
    });
    expect(await corrected.generate(structureId, { date: '2021-12-15' })).toMatchObject({ created: 1 });
    expect(await corrected.generate(structureId, { date: '2022-03-01' })).toMatchObject({ created: 0 });
    expect((await corrected.feesOf(studentId)).flatMap(periods).sort()).toEqual([
      'Sport 2021-08-01 2021-12-20',
      'Sport 2021-12-14 2022-03-31',
    ]);
  });

  test('bills a student who left and returned only from the day of the return', async () => {
    const { classId, studentId, structureId } = await createBillable([bus]);
    const { admin, schema } = world.school;
    const changeEnrollment = (change: string) =>
      service.database.query(`update ${schema}.enrollment set ${change} and student_id = $1`, [studentId]);
    await admin.put(`/api/students/${studentId}`, { class_id: null });
    await admin.put(`/api/students/${studentId}`, { class_id: classId });
    expect(await world.generate(structureId, { date: '2021-12-01', prorate: true, dry_run: true })).toMatchObject({
      created: 1,
      amount: 31,
    });
    await changeEnrollment(`ends_on = '2021-10-15' where status = 'withdrawn'`);
    await changeEnrollment(`starts_on = '2022-03-11' where status = 'active'`);
    expect(await world.generate(structureId, { date: '2021-12-01' })).toMatchObject({
      created: 0,
      reasons: [{ reason: 'joined_later', count: 1 }],
    });
    expect(await world.generate(structureId, { date: '2022-03-01', prorate: true })).toMatchObject({
      created: 1,
      amount: 21,
    });
  });

  test('uses the current class after a promotion is undone, and skips a student who was promoted and then removed', async () => {
    const { classId, studentId, structureId } = await createBillable([bus]);
    const gone = await world.addStudent(classId);
    const { admin } = world.school;
    const other = await world.addClass();
    await admin.post(`/api/finance/fee-structures/${structureId}/assign-classes`, { class_ids: [classId, other] });
    await promote([studentId, gone], { name: 'Far', start_date: '2032-08-01', end_date: '2033-07-31' });
    await admin.put(`/api/students/${studentId}`, { class_id: other });
    await admin.delete(`/api/students/${gone}`);
    expect(await world.generate(structureId, { date: '2021-10-01', prorate: true })).toMatchObject({
      created: 1,
      amount: 31,
      reasons: [{ reason: 'removed', count: 1 }],
    });
    expect(await world.feesOf(studentId)).toMatchObject([{ class_id: other }]);
  });

  test('uses the current class of a student who changed classes; existing fees keep their class, even after a promotion', async () => {
    const { classId, studentId, structureId } = await createBillable([bus]);
    await world.generate(structureId, { date: '2021-09-01' });
    const { admin } = world.school;
    const next = await world.addClass();
    await admin.post(`/api/finance/fee-structures/${structureId}/assign-classes`, { class_ids: [classId, next] });
    await admin.put(`/api/students/${studentId}`, { class_id: next });
    expect(await world.generate(structureId, { date: '2021-10-01', prorate: true })).toMatchObject({
      created: 1,
      skipped: 0,
      amount: 31,
    });
    await promote([studentId], { name: 'Later', start_date: '2022-08-01', end_date: '2023-07-31' });
    // Students who completed the year still owe its remaining fees.
    expect(await world.generate(structureId, { date: '2021-11-01' })).toMatchObject({ created: 1 });
    expect((await world.feesOf(studentId)).map(({ class_id, billed_on }) => `${billed_on} ${class_id}`).sort()).toEqual(
      [`2021-09-01 ${classId}`, `2021-10-01 ${next}`, `2021-11-01 ${next}`],
    );
  });
});

describe('a student fee', () => {
  test('is pending, then partially paid, overdue after its due date, and paid', async () => {
    const { id } = await createFee([tuition], { due_date: inOneYear() });
    const read = async () => (await world.school.admin.get<StudentFee>(`${path}/${id}`)).data;
    expect(await read()).toMatchObject({ status: 'pending', balance: 1000, payments: [] });
    await world.pay(id, 400.25);
    expect(await read()).toMatchObject({
      status: 'partially_paid',
      paid_amount: 400.25,
      balance: 599.75,
      payments: [{ amount: 400.25 }],
    });
    expect(
      (await world.school.admin.put<StudentFee>(`${path}/${id}`, { due_date: `${lastYear}-12-01` })).data,
    ).toMatchObject({
      status: 'overdue',
      due_date: `${lastYear}-12-01`,
    });
    await world.pay(id, 599.75);
    expect(await read()).toMatchObject({ status: 'paid', balance: 0 });
  });

  test('is overdue after its due date even before the stored status is updated', async () => {
    const { id, studentId } = await createFee([tuition], { due_date: inOneYear() });
    await service.database.query(`alter table ${world.school.schema}.student_fee disable trigger derive`);
    await service.database.query(
      `update ${world.school.schema}.student_fee set due_date = current_date - 2 where id = $1`,
      [id],
    );
    await service.database.query(`alter table ${world.school.schema}.student_fee enable trigger derive`);
    const found = async (status: string) =>
      (await world.school.admin.get<StudentFee[]>(`${path}?student_id=${studentId}&status=${status}`)).data.map(
        (one) => [one.id, one.status],
      );
    expect(await found('overdue')).toEqual([[id, 'overdue']]);
    expect(await found('pending')).toEqual([]);
  });

  test('is waived with a reason: payments remain, the balance is 0, and it can be neither paid nor billed again', async () => {
    const one = await createFee();
    await world.pay(one.id, 300);
    await world.school.admin.post(`${path}/${one.id}/waive`, {}, 400);
    const { data } = await world.school.admin.post<StudentFee>(`${path}/${one.id}/waive`, { reason: 'Scholarship' });
    expect(data).toMatchObject({
      status: 'waived',
      amount: 1000,
      paid_amount: 300,
      balance: 0,
      waive_reason: 'Scholarship',
    });
    expect((await world.pay(one.id, 1, 409)).error).toBe('invalid_state');
    expect((await world.school.admin.post(`${path}/${one.id}/waive`, { reason: 'Again' }, 409)).error).toBe(
      'invalid_state',
    );
    expect(await world.generate(one.structureId)).toMatchObject({ created: 0 });
    const paid = await createFee();
    await world.pay(paid.id, 1000);
    expect((await world.school.admin.post(`${path}/${paid.id}/waive`, { reason: 'Too late' }, 409)).error).toBe(
      'invalid_state',
    );
  });

  test('can be deleted only if it never had payments, and then be billed again', async () => {
    const [clean, touched] = [await createFee(), await createFee()];
    const { data: payment } = await world.pay(touched.id, 1);
    await world.school.admin.post(`/api/finance/payments/${payment.id}/reverse`, { reason: 'Wrong' });
    expect((await world.school.admin.delete(`${path}/${touched.id}`, 409)).error).toBe('in_use');
    await world.school.admin.delete(`${path}/${clean.id}`);
    await world.school.admin.get(`${path}/${clean.id}`, 404);
    expect(await world.generate(clean.structureId)).toMatchObject({ created: 1 });
  });

  test('is still listed after its student is deleted, and can be paid or waived', async () => {
    const [one, other] = [await createFee(), await createFee()];
    for (const { studentId } of [one, other]) await world.school.admin.delete(`/api/students/${studentId}`);
    expect((await world.school.admin.get<StudentFee[]>(`${path}?student_id=${one.studentId}`)).data).toMatchObject([
      { id: one.id, balance: 1000 },
    ]);
    await world.pay(one.id, 1000);
    await world.school.admin.post(`${path}/${other.id}/waive`, { reason: 'Moved away' });
  });

  test('is visible to its own student only, who cannot change it', async () => {
    const [own, other] = [await createFee(), await createFee()];
    const email = 'own@fees.example';
    await world.school.admin.put(`/api/students/${own.studentId}`, {
      create_user_account: true,
      email,
      password: testPassword,
    });
    const student = await service.anonymous.login({ tenant_id: world.school.id, email, password: testPassword });
    await world.pay(own.id, 5);
    await world.pay(other.id, 6);
    expect((await student.get<StudentFee[]>(path)).data.map(({ id }) => id)).toEqual([own.id]);
    expect((await student.get<StudentFee>(`${path}/${own.id}`)).data).toMatchObject({
      items: [{ name: 'Tuition' }],
      payments: [{ amount: 5 }],
    });
    await student.get(`${path}/${other.id}`, 404);
    expect(
      (await student.get<{ amount: number; recorded_by_name: string }[]>('/api/fees/payments')).data,
    ).toMatchObject([{ amount: 5, recorded_by_name: expect.any(String) }]);
    await student.post(`${path}/${own.id}/waive`, { reason: 'Please' }, 403);
    await student.delete(`${path}/${own.id}`, 403);
    await student.get('/api/finance/summary', 403);
  });
});

test('the list is sorted by due date or another field, filters, searches, and its pages do not overlap', async () => {
  const lists = await feeSchool(service);
  const classId = await lists.addClass();
  const names = ['Zoë', 'anna', 'Ömer'];
  const students = [];
  for (const last_name of names)
    students.push(await lists.addStudent(classId, '2021-08-01', { first_name: 'Same', last_name }));
  const [one, two] = [
    await lists.addStructure([tuition, admission], [classId]),
    await lists.addStructure([{ ...bus, amount: 5 }], [classId]),
  ];
  await lists.generate(one, { due_date: `${lastYear}-12-01` });
  await lists.generate(two, { due_date: `${lastYear}-09-01` });
  const all = await walk<StudentFee & { student_name: string; fee_structure_id: number }>(lists.school.admin, path, 6);
  expect(all.map(({ due_date }) => due_date)).toEqual([
    ...Array<string>(3).fill(`${lastYear}-09-01`),
    ...Array<string>(3).fill(`${lastYear}-12-01`),
  ]);
  const found = async (query: string) =>
    (await lists.school.admin.get<(StudentFee & { student_name: string })[]>(`${path}?${query}`)).data;
  expect((await found(`fee_structure_id=${two}&sort=student_name`)).map(({ student_name }) => student_name)).toEqual([
    'Same anna',
    'Same Ömer',
    'Same Zoë',
  ]);
  expect((await found('search=omer')).map(({ student_name }) => student_name)).toEqual(['Same Ömer', 'Same Ömer']);
  expect(await found(`due_from=${lastYear}-09-02&due_to=${lastYear}-12-01`)).toHaveLength(3);
  expect(
    (await lists.school.admin.get(`${path}?due_from=${lastYear}-09-02&due_to=${lastYear}-09-01`, 400)).details,
  ).toMatchObject([{ path: 'due_to' }]);
  expect(
    await found(`class_id=${classId}&academic_year_id=${lists.yearId}&student_id=${students[0] ?? 0}`),
  ).toHaveLength(2);
  const first = all.at(-1);
  await lists.pay(first?.id ?? 0, 1010.5);
  expect((await found('only_open=true')).map(({ id }) => id)).toEqual(
    all.filter(({ id }) => id !== first?.id).map(({ id }) => id),
  );
  expect((await found('status=paid')).map(({ id }) => id)).toEqual([first?.id]);
  expect((await found('sort=balance&order=desc')).map(({ balance }) => balance)).toEqual([1010.5, 1010.5, 5, 5, 5, 0]);
  expect((await found('sort=amount')).map(({ amount }) => amount)).toEqual([5, 5, 5, 1010.5, 1010.5, 1010.5]);
});
