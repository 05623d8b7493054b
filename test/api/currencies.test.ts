import { describe, expect, test } from '@jest/globals';
import { strFromU8, unzipSync } from 'fflate';
import { extractText, getDocumentProxy } from 'unpdf';
import { currencies } from '../../src/domain/money.ts';
import { feeSchool } from '../support/fixtures/fees.ts';
import { type School, serviceOfFile } from '../support/server/service.ts';

const service = await serviceOfFile({}, 8);

interface Invoice {
  id: number;
  total: number;
  balance: number;
  items: { id: number; description: string; amount: number; quantity: number; line_total: number }[];
}
interface FeeStructure {
  id: number;
  total: number;
  components: { id: number; name: string; amount: number; frequency: string }[];
}

const inAMonth = new Date(Date.now() + 30 * 86_400_000).toISOString().slice(0, 10);
const setCurrency = async (school: School, currency: string) =>
  (
    await school.admin.post<{ currency_decimals: number; warnings?: { path: string; message: string }[] }>(
      '/api/school-setup/school-info',
      { currency },
    )
  ).data;

/** A school with a class and a student, whose amounts are in the currency. */
async function schoolWith(currency: string) {
  const world = await feeSchool(service);
  await setCurrency(world.school, currency);
  const classId = await world.addClass();
  const studentId = await world.addStudent(classId);
  const invoiceOf = (amount: number) => ({
    student_id: studentId,
    due_date: inAMonth,
    items: [{ description: 'Trip', amount, quantity: 3 }],
  });
  return {
    ...world,
    classId,
    studentId,
    invoiceOf,
    bill: async (amount: number) =>
      (await world.school.admin.post<Invoice>('/api/fees/invoices', invoiceOf(amount), 201)).data,
  };
}
const structurePath = '/api/finance/fee-structures';
const component = (amount: number) => ({ name: 'Tuition', amount, frequency: 'monthly' });
const noDecimals = (path: string) => [{ path, message: 'must be a whole number, because JPY has no decimals' }];
const atMost = (path: string, decimals: number, currency: string) => [
  { path, message: `must have at most ${decimals} decimals, as ${currency} has` },
];

describe('an amount in a request', () => {
  test('has no decimals in yen, and the error names the field and the decimals', async () => {
    const { school, yearId, invoiceOf, bill } = await schoolWith('JPY');
    const { admin } = school;
    const structure = (amount: number) => ({ name: 'Fees', academic_year_id: yearId, components: [component(amount)] });
    expect(await admin.post(structurePath, structure(10.5), 400)).toMatchObject({
      error: 'validation_error',
      details: noDecimals('components.0.amount'),
    });
    const { data } = await admin.post<FeeStructure>(structurePath, structure(10), 201);
    const components = `${structurePath}/${data.id}/components`;
    expect((await admin.post(components, { ...component(0.5), name: 'Bus' }, 400)).details).toEqual(
      noDecimals('amount'),
    );
    await admin.post(components, { ...component(7), name: 'Bus' }, 201);
    expect((await admin.post('/api/fees/invoices', invoiceOf(10.5), 400)).details).toEqual(
      noDecimals('items.0.amount'),
    );
    const invoice = await bill(10);
    expect(invoice).toMatchObject({ total: 30, balance: 30 });
    const pay = (amount: number, status: number) =>
      admin.post('/api/fees/payments', { invoice_id: invoice.id, amount, method: 'cash' }, status);
    expect((await pay(1.5, 400)).details).toEqual(noDecimals('amount'));
    await pay(2, 201);
    const plan = { name: 'Bus, far', min_km: 5, amount: 5.5, frequency: 'monthly' };
    expect((await admin.post('/api/transport/fee-plans', plan, 400)).details).toEqual(noDecimals('amount'));
  });

  test('has three decimals in Kuwaiti dinars, four in UYW, and two in a currency that Intl writes with none', async () => {
    const dinars = await schoolWith('KWD');
    expect(await dinars.bill(1.234)).toMatchObject({ total: 3.702, items: [{ amount: 1.234, line_total: 3.702 }] });
    const refusal = async ({ school, invoiceOf }: typeof dinars, amount: number) =>
      (await school.admin.post('/api/fees/invoices', invoiceOf(amount), 400)).details;
    expect(await refusal(dinars, 1.2345)).toEqual(atMost('items.0.amount', 3, 'KWD'));
    await setCurrency(dinars.school, 'UYW');
    expect(await dinars.bill(0.1234)).toMatchObject({ total: 0.3702 });
    expect(await refusal(dinars, 0.12345)).toEqual([
      { path: 'items.0.amount', message: 'must have at most 4 decimals' },
    ]);
    for (const currency of ['PKR', 'HUF', 'IDR']) {
      await setCurrency(dinars.school, currency);
      expect(await dinars.bill(1.25)).toMatchObject({ total: 3.75 });
      expect(await refusal(dinars, 1.255)).toEqual(atMost('items.0.amount', 2, currency));
    }
  });

  test('adds up exactly in an invoice with many items, also in a sum over all bills', async () => {
    const { school, studentId } = await schoolWith('KWD');
    const items = Array.from({ length: 300 }, () => ({ description: 'Copy', amount: 0.001 }));
    const body = { student_id: studentId, due_date: inAMonth, items };
    for (let n = 0; n < 2; n++)
      expect((await school.admin.post<Invoice>('/api/fees/invoices', body, 201)).data.total).toBe(0.3);
    const { data } = await school.admin.get<Buffer>('/api/finance/balances/export?format=csv');
    expect(data.toString().trim().split('\n').at(-1)).toMatch(/,0\.6,0,0,0\.6,0,0$/);
    expect((await school.admin.get('/api/finance/summary')).data).toMatchObject({
      currency: 'KWD',
      currency_decimals: 3,
    });
  });
});

describe('a stored amount with more decimals than the new currency of the school', () => {
  test('is sent back as it is, with If-Match and an unchanged version; any other amount must fit', async () => {
    const { school, yearId, classId } = await schoolWith('USD');
    const { admin } = school;
    const body = { name: 'Fees', academic_year_id: yearId, components: [component(250.5)], class_ids: [classId] };
    const { id } = (await admin.post<FeeStructure>(structurePath, body, 201)).data;
    const at = `${structurePath}/${id}`;
    const { data: before, headers } = await admin.get<FeeStructure>(at);
    const etag = headers.get('etag') ?? '';
    await setCurrency(school, 'JPY');
    const read = await admin.get<FeeStructure>(at);
    expect(read.data).toEqual(before);
    expect(read.headers.get('etag')?.split('.')[0]).toBe(etag.split('.')[0]);
    await admin.with({ 'If-Match': etag }).put(at, read.data);
    const { data: renamed } = await admin
      .with({ 'If-Match': etag })
      .put<FeeStructure>(at, { ...read.data, name: 'Renamed' });
    expect(renamed).toMatchObject({ name: 'Renamed', components: before.components });
    const change = (amount: number) => ({ components: [{ ...before.components[0], amount }] });
    expect((await admin.put(at, change(250.25), 400)).details).toEqual(noDecimals('components.0.amount'));
    // The value of the component itself has not changed, and is stored as before.
    const [row] = await service.database.query<{ amount: string }>(
      `select amount::text from ${school.schema}.fee_component`,
    );
    expect(row).toEqual({ amount: '250.50' });
    expect((await admin.put<FeeStructure>(at, change(250))).data.components).toMatchObject([{ amount: 250 }]);
    expect((await admin.put(at, change(250.5), 400)).details).toEqual(noDecimals('components.0.amount'));
  });

  test('can be paid to the end, in whole yen or with its own decimals', async () => {
    const { school, bill } = await schoolWith('USD');
    const { id } = await bill(250.25);
    await setCurrency(school, 'JPY');
    const pay = (amount: number, status = 201) =>
      school.admin.post('/api/fees/payments', { invoice_id: id, amount, method: 'cash' }, status);
    await pay(700);
    expect((await pay(0.123, 400)).details).toEqual([
      { path: 'amount', message: 'must have at most 2 decimals, as the balance has' },
    ]);
    expect(await pay(51, 409)).toMatchObject({ message: 'The balance is 50.75.' });
    await pay(50.75);
    expect((await school.admin.get<Invoice>(`/api/fees/invoices/${id}`)).data).toMatchObject({
      total: 750.75,
      balance: 0,
      status: 'paid',
    });
  });

  test('stays in an invoice whose other items change', async () => {
    const { school, bill } = await schoolWith('USD');
    const { id, items } = await bill(250.5);
    await setCurrency(school, 'JPY');
    const at = `/api/fees/invoices/${id}`;
    const added = { description: 'Bus', amount: 5 };
    const { data } = await school.admin.put<Invoice>(at, { items: [...items, added] });
    expect(data).toMatchObject({ total: 756.5, items: [items[0], added] });
    expect((await school.admin.put(at, { items: [...items, { ...added, amount: 5.5 }] }, 400)).details).toEqual(
      noDecimals('items.1.amount'),
    );
  });

  test('is counted in a warning when the currency changes', async () => {
    const world = await schoolWith('USD');
    const { school, yearId, classId, bill, generate, pay, studentId } = world;
    const body = { name: 'Fees', academic_year_id: yearId, components: [component(250.5)], class_ids: [classId] };
    const { id } = (await school.admin.post<FeeStructure>(structurePath, body, 201)).data;
    await generate(id, { date: '2021-09-10' });
    const [fee] = await world.feesOf(studentId);
    await pay(fee?.id ?? 0, 0.5);
    await pay(fee?.id ?? 0, 50);
    await bill(1.5);
    await bill(2.25);
    await bill(2);
    expect(await setCurrency(school, 'EUR')).not.toHaveProperty('warnings');
    const changed = await setCurrency(school, 'JPY');
    expect(changed).toMatchObject({
      currency_decimals: 0,
      warnings: [
        {
          path: 'currency',
          message:
            'Stored amounts have more decimals than JPY: 1 fee component, 1 student fee, 2 invoices, 1 payment. They ' +
            'are not changed, and open bills can be paid as they are.',
        },
      ],
    });
    // An amount that does not fit is not billed again.
    expect(
      await school.admin.post('/api/finance/student-fees/generate', { fee_structure_id: id, date: '2021-10-10' }, 409),
    ).toMatchObject({
      error: 'invalid_state',
      message: expect.stringContaining('These components have amounts with more decimals than JPY'),
    });
    const dinars = await setCurrency(school, 'KWD');
    expect(dinars).toMatchObject({ currency_decimals: 3 });
    expect(dinars).not.toHaveProperty('warnings');
    // A client may send back what it read.
    const { warnings, currency_decimals } = changed;
    await school.admin.post('/api/school-setup/school-info', { warnings, currency_decimals, phone: '1' });
  });
});

describe('prorated fees', () => {
  test.each([
    ['JPY', 1000, 100, [667, 67]],
    ['KWD', 1000.001, 0.001, [666.667, 0.001]],
    ['EUR', 1000.01, 100, [666.67, 66.67]],
  ])('in %s have its decimals, and the items add up to the fee', async (currency, tuition, bus, expected) => {
    const world = await schoolWith(currency);
    const classId = await world.addClass();
    // 20 of 30 days.
    const studentId = await world.addStudent(classId, '2021-09-11');
    const id = await world.addStructure([component(tuition), { ...component(bus), name: 'Bus' }], [classId]);
    const { amount } = await world.generate(id, { date: '2021-09-15', prorate: true });
    const [fee] = await world.feesOf(studentId);
    expect(fee?.items.map((item) => item.amount)).toEqual(expected);
    const units = (value: number) => Math.round(value * 10_000);
    expect(units(fee?.amount ?? 0)).toBe(expected.reduce((sum, value) => sum + units(value), 0));
    expect(amount).toBe(fee?.amount);
  });
});

describe('amounts are written with the decimals of the currency', () => {
  test.each([
    ['JPY', 1250, 'JP¥1,250', 'JPY 1,250', '#,##0'],
    ['KWD', 1250.5, 'KWD 1,250.500', 'KWD 1,250.500', '#,##0.000'],
    ['USD', 1250.5, 'US$1,250.50', 'USD 1,250.50', '#,##0.00'],
  ])('in %s: %f in PDFs, messages and files', async (currency, amount, printed, written, format) => {
    const { school, studentId } = await schoolWith(currency);
    const { admin } = school;
    await admin.put(`/api/students/${studentId}`, { parent_email: `parent-${currency}@money.example` });
    const body = { student_id: studentId, due_date: inAMonth, items: [{ description: 'Trip', amount }] };
    const { data: invoice } = await admin.post<Invoice>('/api/fees/invoices', body, 201);
    const { data: payment } = await admin.post<{ id: number }>(
      '/api/fees/payments',
      { invoice_id: invoice.id, amount, method: 'cash' },
      201,
    );
    const textOf = async (path: string) => {
      const { data } = await admin.get<Buffer>(path);
      const { text } = await extractText(await getDocumentProxy(new Uint8Array(data)), { mergePages: true });
      return text.replace(/\s+/g, ' ');
    };
    expect(await textOf(`/api/fees/invoices/${invoice.id}/download`)).toContain(`Total ${printed} Paid ${printed}`);
    expect(await textOf(`/api/finance/payments/${payment.id}/receipt`)).toContain(`Received ${printed}`);
    await service.settled();
    const [message] = await service.database.query<{ message: string }>(
      `select message from ${school.schema}.notification_delivery where address = $1`,
      [`parent-${currency.toLowerCase()}@money.example`],
    );
    expect(message?.message).toContain(`${written} `);
    for (const [path, cells] of [
      ['/api/fees/payments/export', ['G2']],
      ['/api/finance/balances/export', ['D2', 'E2', 'G2']],
    ] as const) {
      const { data } = await admin.get<Buffer>(`${path}?format=xlsx`);
      const parts = unzipSync(data);
      const xml = (name: string) => strFromU8(parts[name] ?? new Uint8Array());
      const styles = [...xml('xl/styles.xml').matchAll(/<xf numFmtId="(\d+)"[^>]*xfId="0"/g)].map(([, id]) => id);
      const codes = new Map(
        [...xml('xl/styles.xml').matchAll(/numFmtId="(\d+)" formatCode="([^"]+)"/g)].map(([, id, code]) => [id, code]),
      );
      for (const cell of cells) {
        const style = new RegExp(`<c r="${cell}" s="(\\d+)">`).exec(xml('xl/worksheets/sheet1.xml'))?.[1];
        expect([path, cell, codes.get(styles[Number(style)])]).toEqual([path, cell, format]);
      }
    }
  });

  test('a file shows all decimals of an older amount', async () => {
    const { school, bill } = await schoolWith('USD');
    await bill(0.25);
    await setCurrency(school, 'JPY');
    const { data } = await school.admin.get<Buffer>('/api/finance/balances/export?format=xlsx');
    const sheet = strFromU8(unzipSync(data)['xl/worksheets/sheet1.xml'] ?? new Uint8Array());
    expect(sheet).toContain('<c r="D2" s="6"><v>0.75</v></c><c r="E2" s="4"><v>0</v></c>');
  });
});

test('the price of a plan has the decimals of the currency of prices, and a change of the currency names the plans that do not fit', async () => {
  const { operator } = service;
  const plan = { name: 'Half', price_monthly: 12.5, max_students: 10, max_teachers: 1 };
  const plans = '/api/platform/plans';
  expect((await operator.post(plans, { ...plan, price_monthly: 12.555 }, 400)).details).toEqual(
    atMost('price_monthly', 2, 'USD'),
  );
  const { data: made } = await operator.post<{ id: number }>(plans, plan, 201);
  expect(made).toMatchObject({ price_monthly: 12.5, currency: 'USD', currency_decimals: 2 });
  const settings = '/api/platform/settings';
  const { data: changed } = await operator.put<object>(settings, { currency: 'JPY' });
  expect(changed).toMatchObject({
    currency_decimals: 0,
    warnings: [
      {
        path: 'currency',
        message: 'The prices of these plans have more decimals than JPY: Half. They stay as they are.',
      },
    ],
  });
  const at = `${plans}/${made.id}`;
  const { data: read } = await operator.get<object>(at);
  expect(read).toMatchObject({ price_monthly: 12.5, currency: 'JPY', currency_decimals: 0 });
  expect((await operator.put(at, { ...read, name: 'Half price' })).data).toMatchObject({ price_monthly: 12.5 });
  expect((await operator.put(at, { price_monthly: 11.5 }, 400)).details).toEqual(noDecimals('price_monthly'));
  expect((await operator.put(at, { price_monthly: 11 })).data).toMatchObject({ price_monthly: 11 });
  const { data: back } = await operator.put<object>(settings, { ...changed, currency: 'KWD' });
  expect(back).toMatchObject({ currency_decimals: 3 });
  expect(back).not.toHaveProperty('warnings');
  expect((await operator.put(at, { price_monthly: 1.234 })).data).toMatchObject({ price_monthly: 1.234 });
  const school = await service.school();
  expect((await school.admin.get('/api/subscription/status')).data).toMatchObject({
    plan: { currency: 'KWD', currency_decimals: 3 },
  });
  await operator.put(settings, { currency: 'USD' });
});

describe('the table of currencies', () => {
  test('has only codes that requests accept, and the decimals of ISO 4217 where Intl has fewer', async () => {
    const rows = await service.database.query<{ code: string; decimals: number }>('select * from core.currency');
    const decimals = Object.fromEntries(rows.map(({ code, decimals }) => [code, decimals]));
    expect(rows.filter(({ code }) => !currencies.includes(code))).toEqual([]);
    expect(decimals).toMatchObject({ AFN: 2, HUF: 2, IDR: 2, PKR: 2, UYI: 0, ISK: 0, TND: 3, CLF: 4, CLP: 0, EUR: 2 });
    // Withdrawn codes, and those that are no currency of a country.
    expect(currencies.filter((code) => !(code in decimals) && !/^X[A-Z]{2}$/.test(code)).length).toBeLessThan(20);
  });

  test.each([
    ['250.5', 'USD', '250.50', 'USD 250.50'],
    ['1234567.80', 'KWD', '1234567.800', 'KWD 1,234,567.800'],
    ['1000.00', 'JPY', '1000', 'JPY 1,000'],
    ['250.50', 'JPY', '250.5', 'JPY 250.5'],
    ['0', 'UYW', '0.0000', 'UYW 0.0000'],
    ['-7.5', 'DEM', '-7.50', 'DEM -7.50'],
  ])('stores %s %s as %s, and writes %s', async (amount, currency, stored, written) => {
    expect(
      await service.database.query(
        `select core.as_amount($1::numeric, d)::text as stored, core.written_amount($1::numeric, $2, d) as written,
           core.as_amount(trim_scale($1::numeric), d, $1::numeric)::text as unchanged
         from core.currency_decimals($2) d`,
        [amount, currency],
      ),
    ).toEqual([{ stored, written, unchanged: amount }]);
  });
});
