import { afterAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { feeSchool, type StudentFee } from '../support/fixtures/fees.ts';
import { testService } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type {
  FinanceSummary as FinanceSummarySchema,
  Source as SourceSchema,
} from '../../src/endpoints/finance-summary.ts';

const service = await testService({}, 13);
afterAll(() => service.close());

type Figures = Omit<OutputOf<typeof SourceSchema>, 'count'>;
type Summary = OutputOf<typeof FinanceSummarySchema>;

const names = ['billed', 'collected', 'outstanding', 'overdue', 'waived', 'discounted'] as const;
const cents = (amount: number) => Math.round(amount * 100);
/** The totals in cents, so that sums are exact. */
const inCents = (figures: Figures): Figures => ({
  billed: cents(figures.billed),
  collected: cents(figures.collected),
  outstanding: cents(figures.outstanding),
  overdue: cents(figures.overdue),
  waived: cents(figures.waived),
  discounted: cents(figures.discounted),
});
const zeros: Figures = { billed: 0, collected: 0, outstanding: 0, overdue: 0, waived: 0, discounted: 0 };
const sum = (all: Figures[]): Figures =>
  all.reduce(
    (total, one) => Object.fromEntries(names.map((name) => [name, total[name] + one[name]])) as unknown as Figures,
    zeros,
  );

const insertInvoices = async (schema: string, values: string) => {
  await service.database.query(
    `insert into ${schema}.invoice (student_id, class_id, due_date, invoice_number, issued_at, voided_at)
     select student_id, class_id, due_date::date, invoice_number, issued_at::timestamptz, voided_at::timestamptz
     from (values ${values}) v (student_id, class_id, due_date, invoice_number, issued_at, voided_at)`,
  );
  await service.database.query(
    `insert into ${schema}.invoice_item (invoice_id, student_id, description, amount) select id, student_id, 'Book', 10 * id from ${schema}.invoice`,
  );
};

test('the summary is all zeros without bills or without an academic year, a 404 for an unknown year, and a 403 for users with own scope', async () => {
  const bare = await service.school();
  expect((await bare.admin.get<Summary>('/api/finance/summary')).data).toEqual({
    academic_year_id: null,
    academic_year_name: null,
    currency: 'USD',
    currency_decimals: 2,
    ...zeros,
    by_class: [],
    by_component: [],
    by_source: { student_fees: { count: 0, ...zeros }, invoices: { count: 0, ...zeros } },
  });
  const { yearId } = await bare.classroom();
  const { data } = await bare.admin.get<Summary>('/api/finance/summary');
  expect(data).toMatchObject({ academic_year_id: yearId, currency: 'USD', ...zeros, by_class: [], by_component: [] });
  expect(data.by_source).toEqual({ student_fees: { count: 0, ...zeros }, invoices: { count: 0, ...zeros } });
  await bare.admin.get('/api/finance/summary?academic_year_id=999999', 404);
  await (await bare.user(['teacher'])).get('/api/finance/summary', 403);
  expect((await (await bare.user(['accountant'])).get<Summary>('/api/finance/summary')).data.academic_year_id).toBe(
    yearId,
  );
  // With fee.read a teacher may see only their own rows, so not the whole school.
  await service.database.query(
    `insert into ${bare.schema}.role_permission (role_id, permission_id) select r.id, p.id from ${bare.schema}.role r, core.permission p where r.name = 'teacher' and p.name = 'fee.read'`,
  );
  expect(await (await bare.user(['teacher'])).get('/api/finance/summary', 403)).toMatchObject({
    error: 'forbidden',
    message: 'This needs access to the whole school.',
  });
});

test('invoices count if they were issued within the academic year in the time zone of the school, without drafts and void ones, as in dashboard and overview', async () => {
  const world = await feeSchool(service);
  const { admin, schema, id } = world.school;
  await world.school.database.query("update platform.tenant set time_zone = 'Asia/Tokyo' where id = $1", [id]);
  const classId = await world.addClass('Alpha');
  const studentId = await world.addStudent(classId);
  // In Tokyo the academic year begins on 2021-07-31 and ends on 2022-07-31, each at 15:00 UTC.
  await insertInvoices(
    schema,
    [
      [`'2021-09-01'`, `'INV-2021-000001'`, `'2021-07-31T15:00:00Z'`, 'null'],
      [`'2999-09-01'`, `'INV-2021-000002'`, `'2022-07-31T14:59:59Z'`, 'null'],
      [`'2021-09-01'`, `'INV-2021-000003'`, `'2021-07-31T14:59:59Z'`, 'null'],
      [`'2021-09-01'`, `'INV-2021-000004'`, `'2022-07-31T15:00:00Z'`, 'null'],
      [`'2021-09-01'`, 'null', 'null', 'null'],
      [`'2021-09-01'`, `'INV-2021-000005'`, `'2021-09-01T00:00:00Z'`, `'2021-09-02T00:00:00Z'`],
    ]
      .map((row) => `(${[studentId, classId, ...row].join()})`)
      .join(),
  );
  await service.database.query(
    `insert into ${schema}.payment (student_id, invoice_id, amount, payment_date, payment_method) values ($1, 1, 4, (now() at time zone 'Asia/Tokyo')::date, 'cash')`,
    [studentId],
  );
  const { data } = await admin.get<Summary>('/api/finance/summary');
  const figures = { billed: 30, collected: 4, outstanding: 26, overdue: 6, waived: 0, discounted: 0 };
  expect(data).toMatchObject({
    ...figures,
    by_class: [{ class_id: classId, class_name: 'Alpha', ...figures }],
    by_component: [],
  });
  expect(data.by_source).toEqual({ student_fees: { count: 0, ...zeros }, invoices: { count: 2, ...figures } });
  expect((await admin.get<{ fees: object }>('/api/academics/overview')).data.fees).toEqual({
    billed: 30,
    collected: 4,
  });
  expect((await admin.get<{ fee_summary: object }>('/api/dashboard')).data.fee_summary).toEqual({
    collected_this_month: 4,
    pending: 96,
  });
});

test('a bill is overdue from the day after its due date', async () => {
  const world = await feeSchool(service);
  const { admin, schema } = world.school;
  const classId = await world.addClass();
  const [early, late] = [await world.addStudent(classId), await world.addStudent(classId)];
  await world.generate(await world.addStructure([{ name: 'Tuition', amount: 10, frequency: 'annual' }], [classId]), {});
  const now = new Date().toISOString();
  const invoices = [early, late].map(
    (student, n) =>
      `(${[student, classId, `'2999-01-01'`, `'INV-2021-00000${n + 1}'`, `'2021-09-01'`, 'null'].join()})`,
  );
  await insertInvoices(schema, invoices.join());
  for (const [student, days] of [
    [early, 0],
    [late, -1],
  ])
    for (const table of ['student_fee', 'invoice'])
      await service.database.query(
        `update ${schema}.${table} set due_date = ($1::timestamptz at time zone 'UTC')::date + $2::integer where student_id = $3`,
        [now, days, student],
      );
  const { by_source } = (await admin.get<Summary>('/api/finance/summary')).data;
  expect([by_source.student_fees.overdue, by_source.invoices.overdue]).toEqual([10, 20]);
  expect([by_source.student_fees.outstanding, by_source.invoices.outstanding]).toEqual([20, 30]);
});

test('payments are allocated to the items of a fee in order', async () => {
  const world = await feeSchool(service);
  const classId = await world.addClass();
  const studentId = await world.addStudent(classId);
  const components = [
    { name: 'First', amount: 10, frequency: 'annual' },
    { name: 'Second', amount: 20, frequency: 'annual' },
    { name: 'Third', amount: 30, frequency: 'annual' },
  ];
  await world.generate(await world.addStructure(components, [classId]), {});
  const [fee] = await world.feesOf(studentId);
  await world.pay(fee?.id ?? 0, 15.01);
  const { data } = await world.school.admin.get<Summary>('/api/finance/summary');
  expect(data.by_component.map(({ name, collected, outstanding }) => [name, collected, outstanding])).toEqual([
    ['First', 10, 0],
    ['Second', 5.01, 14.99],
    ['Third', 0, 30],
  ]);
});

test('fees with equal amounts but different component names are counted under their own names', async () => {
  const world = await feeSchool(service);
  const classId = await world.addClass();
  await world.addStudent(classId);
  for (const names of [
    ['One', 'Two'],
    ['Two', 'Three'],
  ]) {
    const components = names.map((name, n) => ({ name, amount: 10 + n, frequency: 'annual' }));
    await world.generate(await world.addStructure(components, [classId]), { due_date: '2034-01-01' });
  }
  const { data } = await world.school.admin.get<Summary>('/api/finance/summary');
  expect(data.by_component.map(({ name, billed }) => [name, billed])).toEqual([
    ['One', 10],
    ['Three', 11],
    ['Two', 21],
  ]);
});

/** One step of a random history. Numbers select an existing fee or payment, modulo their count. */
const step = fc.oneof(
  fc.record({
    do: fc.constant('generate' as const),
    structure: fc.nat(1),
    month: fc.integer({ min: 0, max: 11 }),
    prorate: fc.boolean(),
    late: fc.boolean(),
  }),
  fc.record({ do: fc.constant('pay' as const), fee: fc.nat(50), share: fc.integer({ min: 1, max: 100 }) }),
  fc.record({ do: fc.constant('pay' as const), fee: fc.nat(50), share: fc.integer({ min: 1, max: 100 }) }),
  fc.record({ do: fc.constant('reverse' as const), payment: fc.nat(50) }),
  fc.record({ do: fc.constant('waive' as const), fee: fc.nat(50) }),
  fc.record({ do: fc.constant('discount' as const), fee: fc.nat(50), percent: fc.integer({ min: 1, max: 100 }) }),
  fc.record({ do: fc.constant('delete' as const), fee: fc.nat(50) }),
);

test('after any history of billing, payments, reversals, discounts and waivers every total equals the sum of the records, to the cent', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 25 }), async (history) => {
      const world = await feeSchool(service);
      const { admin } = world.school;
      const classes = [await world.addClass('A'), await world.addClass('B')];
      for (const [n, joined] of ['2021-08-01', '2021-10-17', '2022-02-03'].entries())
        await world.addStudent(classes[n % 2] ?? 0, joined);
      const structures = [
        await world.addStructure(
          [
            { name: 'Tuition', amount: 333.33, frequency: 'quarterly' },
            { name: 'Bus', amount: 17.01, frequency: 'monthly' },
          ],
          classes,
        ),
        await world.addStructure(
          [
            { name: 'Lab', amount: 0.03, frequency: 'annual' },
            { name: 'Tuition', amount: 99.99, frequency: 'term' },
          ],
          classes,
        ),
      ];
      const fees = async () => (await admin.get<StudentFee[]>('/api/finance/student-fees?pageSize=100')).data;
      await world.generate(structures[0] ?? 0, { date: '2021-08-05' });
      for (const next of history) {
        if (next.do === 'generate') {
          const date = `2021-${String(next.month + 1).padStart(2, '0')}-09`.replace(/^2021-(0[1-7])/, '2022-$1');
          await world.generate(structures[next.structure] ?? 0, {
            date,
            prorate: next.prorate,
            ...(next.late ? {} : { due_date: '2034-01-01' }),
          });
          continue;
        }
        if (next.do === 'reverse') {
          const { data } = await admin.get<{ id: number }[]>('/api/fees/payments?pageSize=100');
          const payment = data[next.payment % Math.max(1, data.length)];
          if (payment)
            expect([200, 409]).toContain(
              (await admin.send('POST', `/api/finance/payments/${payment.id}/reverse`, { body: { reason: 'x' } }))
                .status,
            );
          continue;
        }
        const all = await fees();
        const fee = all[next.fee % Math.max(1, all.length)];
        if (!fee) continue;
        const at = `/api/finance/student-fees/${fee.id}`;
        if (next.do === 'pay') {
          const amount = Math.max(1, Math.round((cents(fee.balance) * next.share) / 100)) / 100;
          await world.pay(fee.id, amount, fee.balance === 0 ? 409 : 201);
        } else if (next.do === 'waive')
          expect((await admin.send('POST', `${at}/waive`, { body: { reason: 'x' } })).status).toBe(
            fee.balance === 0 ? 409 : 200,
          );
        else if (next.do === 'discount') {
          const discount = { percent: next.percent, reason: 'x' };
          const { discounts } = (await admin.get<StudentFee>(at)).data;
          expect([201, 400, 409]).toContain((await admin.send('POST', `${at}/discounts`, { body: discount })).status);
          // One of several discounts is deleted again.
          if (discounts.length > 1)
            expect((await admin.send('DELETE', `${at}/discounts/${discounts[0]?.id}`)).status).toBe(
              fee.status === 'waived' ? 409 : 200,
            );
        } else expect([200, 409]).toContain((await admin.send('DELETE', at)).status);
      }

      const records = await Promise.all(
        (await fees()).map(async ({ id }) => (await admin.get<StudentFee>(`/api/finance/student-fees/${id}`)).data),
      );
      const { data: payments } = await admin.get<{ amount: number }[]>('/api/fees/payments?pageSize=100');
      const each = records.map((fee) => {
        const [billed, collected, outstanding] = [cents(fee.amount), cents(fee.paid_amount), cents(fee.balance)];
        expect(fee.items.reduce((total, { amount }) => total + cents(amount), 0)).toBe(billed);
        expect(fee.payments.reduce((total, { amount }) => total + cents(amount), 0)).toBe(collected);
        const discounted = cents(fee.discount_amount);
        expect(fee.discounts.reduce((total, { amount }) => total + cents(amount), 0)).toBe(discounted);
        expect(cents(fee.net_amount)).toBe(billed - discounted);
        expect(fee.status).toBe(
          fee.status === 'waived'
            ? 'waived'
            : outstanding === 0
              ? 'paid'
              : fee.due_date < '2025'
                ? 'overdue'
                : collected > 0
                  ? 'partially_paid'
                  : 'pending',
        );
        const figures: Figures = {
          billed,
          collected,
          outstanding,
          overdue: fee.status === 'overdue' ? outstanding : 0,
          waived: billed - discounted - collected - outstanding,
          discounted,
        };
        return { fee, figures };
      });
      const { data: summary } = await admin.get<Summary>(`/api/finance/summary?academic_year_id=${world.yearId}`);
      const expected = sum(each.map(({ figures }) => figures));
      expect(inCents(summary)).toEqual(expected);
      expect(expected.discounted + expected.collected + expected.outstanding + expected.waived).toBe(expected.billed);
      expect(payments.reduce((total, { amount }) => total + cents(amount), 0)).toBe(expected.collected);
      expect(summary.by_source.student_fees.count).toBe(each.length);
      expect(inCents(summary.by_source.student_fees)).toEqual(expected);
      expect(inCents(summary.by_source.invoices)).toEqual(zeros);
      for (const one of summary.by_class) {
        expect(inCents(one)).toEqual(
          sum(each.filter(({ fee }) => fee.class_id === one.class_id).map(({ figures }) => figures)),
        );
      }
      expect(sum(summary.by_class.map(inCents))).toEqual(expected);
      expect(sum(summary.by_component.map(inCents))).toEqual(expected);
      // Payments of a fee are allocated to its items in order, discounts in the opposite order.
      const byName = new Map<string, Figures>();
      for (const { fee, figures } of each) {
        let left = figures.collected;
        let after = figures.billed;
        for (const item of fee.items) {
          const [billed, collected] = [cents(item.amount), Math.min(left, cents(item.amount))];
          left -= collected;
          after -= billed;
          const discounted = Math.min(billed, Math.max(0, figures.discounted - after));
          const open = billed - collected - discounted;
          const is = {
            billed,
            collected,
            outstanding: fee.status === 'waived' ? 0 : open,
            overdue: fee.status === 'overdue' ? open : 0,
            waived: fee.status === 'waived' ? open : 0,
            discounted,
          };
          byName.set(item.name, sum([byName.get(item.name) ?? zeros, is]));
        }
      }
      expect(Object.fromEntries(summary.by_component.map((one) => [one.name, inCents(one)]))).toEqual(
        Object.fromEntries(byName),
      );
    }),
    { numRuns: 8 },
  );
}, 120_000);
