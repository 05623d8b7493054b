import type { Login, SpecificationClient } from '../client.ts';
import { day } from './days.ts';

interface Billing {
  admin: Login;
  yearId: number;
  classId: number;
  aminaId: number;
}

/** The admin bills a class and receives payments. */
export async function chargeFees(client: SpecificationClient, { admin: as, yearId, classId, aminaId }: Billing) {
  const structure = { name: 'Tuition', academic_year_id: yearId };
  const { id } = await client.call('POST /api/finance/fee-structures', { as, bodyNotShown: structure });
  const spare = await client.call('POST /api/finance/fee-structures', {
    as,
    bodyNotShown: { ...structure, name: 'Spare' },
  });
  const frequencies = ['monthly', 'Monthly', 'quarterly', 'annual', 'Yearly', 'term', 'one_time', 'One-Time'];
  for (const [n, frequency] of frequencies.entries())
    await client.call('POST /api/finance/fee-structures/{id}/components', {
      as,
      path: { id },
      body: { name: `Fee ${n}`, amount: 100.5, frequency },
    });
  const { record } = await client.call('GET /api/finance/fee-structures/{id}', { as, path: { id } });
  const components = Array.isArray(record['components']) ? (record['components'] as Record<string, unknown>[]) : [];
  await client.call('DELETE /api/finance/fee-structures/{id}/components/{component_id}', {
    as,
    path: { id, component_id: Number(components[0]?.['id'] ?? 0) },
  });
  await client.call('PUT /api/finance/fee-structures/{id}', {
    as,
    path: { id },
    bodyNotShown: { name: 'School fees' },
  });
  await client.call('POST /api/finance/fee-structures/{id}/assign-classes', {
    as,
    path: { id },
    bodyNotShown: { class_ids: [classId] },
  });
  await client.list('GET /api/finance/fee-structures', {
    as,
    search: 'School fees',
    filters: [{ academic_year_id: yearId }],
  });
  await client.call('DELETE /api/finance/fee-structures/{id}', { as, path: { id: spare.id } });

  await client.call('POST /api/finance/student-fees/generate', { as, bodyNotShown: { fee_structure_id: id } });
  const fees = await client.list('GET /api/finance/student-fees', {
    as,
    search: 'Amina',
    filters: [{ student_id: aminaId }, { class_id: classId }, { status: 'pending' }],
  });
  const feeId = Number(fees.records.find((fee) => fee['student_id'] === aminaId)?.['id'] ?? 0);
  await client.call('GET /api/finance/student-fees/{id}', { as, path: { id: feeId } });
  const methods = ['cash', 'Bank Transfer', 'bank-transfer', 'UPI', 'cheque', 'card', 'Mobile Money', 'online'];
  for (const payment_method of methods)
    await client.call('POST /api/finance/payments', {
      as,
      body: {
        student_fee_id: feeId,
        amount: 10.25,
        payment_date: day(),
        payment_method,
        reference_number: `REF-${payment_method}`,
      },
    });
  await client.call('GET /api/finance/summary', { as });
  await client.call('GET /api/finance/summary', { as, query: { academic_year_id: yearId } });
}

/** The admin writes invoices and receives payments for them. */
export async function sendInvoices(client: SpecificationClient, { admin: as, aminaId }: Billing) {
  const invoice = {
    student_id: aminaId,
    due_date: day(14),
    items: [
      { description: 'Uniform', amount: 40, quantity: 2 },
      { description: 'Books', amount: 25.5, quantity: 1 },
    ],
  };
  const { id } = await client.call('POST /api/fees/invoices', { as, body: invoice });
  const spare = await client.call('POST /api/fees/invoices', { as, body: invoice });
  const path = { id };
  await client.call('GET /api/fees/invoices/{id}', { as, path });
  await client.call('PUT /api/fees/invoices/{id}', { as, path, body: { ...invoice, due_date: day(21) } });
  await client.call('PUT /api/fees/invoices/{id}', { as, path, body: { due_date: day(28) } });
  await client.call('GET /api/fees/invoices/{id}/download', { as, path });
  await client.call('POST /api/fees/invoices/{id}/send-reminder', { as, path });
  for (const method of ['cash', 'Bank Transfer', 'card'])
    await client.call('POST /api/fees/payments', {
      as,
      body: { invoice_id: id, amount: 20, method, reference_number: `INV-${method}` },
    });
  await client.list('GET /api/fees/invoices', {
    as,
    search: 'Amina',
    filters: [{ student_id: aminaId }, { status: 'partially_paid' }],
  });
  const remove = 'DELETE /api/fees/invoices/{id}';
  await client.call(remove, { as, path: { id: spare.id } });
  const { records } = await client.call('GET /api/fees/invoices', { as });
  client.check(remove, !records.some((each) => each['id'] === spare.id), 'leaves the invoice in the list');
  await client.list('GET /api/fees/payments', {
    as,
    search: 'INV-card',
    filters: [{ student_id: aminaId }, { from_date: day(), to_date: day() }, { from_date: day() }, { to_date: day() }],
  });
}
