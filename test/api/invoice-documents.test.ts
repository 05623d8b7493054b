import { beforeAll, describe, expect, test } from '@jest/globals';
import { extractText, getDocumentProxy } from 'unpdf';
import { malformedPictures } from '../support/fixtures/pictures.ts';
import { type PdfElement, pdfStructure } from '../support/client/pdf.ts';
import { pixel } from '../support/server/registry.ts';
import { type School, serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool({}, 9);
const path = '/api/fees/invoices';

interface Made {
  id: number;
  invoice_number: string;
  total: number;
}

const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10);
const written = (of: string) =>
  new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeZone: 'UTC' }).format(new Date(of));

let studentId: number;
beforeAll(async () => {
  const { classId } = await school.classroom('Grade 5');
  studentId = await student({ class_id: classId, parent_name: 'Chidi Okafor' });
  await school.admin.post('/api/school-setup/school-info', {
    name: 'Green Valley',
    address: '1 Valley Road',
    currency: 'GBP',
  });
});

const student = async (fields: Record<string, unknown> = {}, at = school) =>
  (
    await at.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Amina', last_name: 'Okafor', admission_number: `A-${Math.random()}`, ...fields },
      201,
    )
  ).data.id;
const add = async (fields: Record<string, unknown> = {}, at: School = school) =>
  (
    await at.admin.post<Made>(
      path,
      {
        student_id: studentId,
        due_date: day(10),
        items: [{ description: 'Museum', amount: 1250.5, quantity: 2 }],
        ...fields,
      },
      201,
    )
  ).data;
const pay = async (invoice_id: number, amount: number) =>
  (
    await school.admin.post<{ id: number; receipt_number: string }>(
      '/api/fees/payments',
      { invoice_id, amount, method: 'card', reference_number: 'TRX-7' },
      201,
    )
  ).data;

/** The text of each page without line breaks. */
async function pagesOf(pdf: Buffer): Promise<string[]> {
  expect(pdf.subarray(0, 5).toString()).toBe('%PDF-');
  const { text } = await extractText(await getDocumentProxy(new Uint8Array(pdf)), { mergePages: false });
  return text.map((page) => page.replace(/\s+/g, ' '));
}
const pages = async (url: string, at = school) => pagesOf((await at.admin.get<Buffer>(url)).data);
const text = async (url: string, at = school) => (await pages(url, at)).join(' ');

describe('the document of an invoice', () => {
  test('shows the school, number, dates, student, items with totals, and balance', async () => {
    const one = await add({ notes: 'Pay at the office.\nThank you.' });
    const found = await text(`${path}/${one.id}/download`);
    for (const part of [
      ...[
        'Green Valley',
        '1 Valley Road',
        `Invoice`,
        one.invoice_number,
        `Issued on ${written(day(0))}`,
        `Due on ${written(day(10))}`,
      ],
      ...['Amina Okafor', 'c/o Chidi Okafor', 'Admission number A-', 'Class Grade 5', 'Museum 2 £1,250.50 £2,501.00'],
      ...[
        'Total £2,501.00',
        'Paid £0.00',
        'Balance £2,501.00',
        'Status To be paid',
        'Notes Pay at the office. Thank you.',
        'Page 1 of 1',
      ],
    ])
      expect(found).toContain(part);
    expect(found).not.toMatch(/PAID|VOID|DRAFT|□/);
  });

  test('is an inline PDF with the invoice number as name, whose ETag changes only with the content', async () => {
    const one = await add();
    const url = `${path}/${one.id}/download`;
    const { headers } = await school.admin.get<Buffer>(url);
    expect(headers.get('content-type')).toBe('application/pdf');
    expect(headers.get('content-disposition')).toContain(`inline; filename=${one.invoice_number}.pdf`);
    const etag = headers.get('etag') ?? '';
    expect((await school.admin.with({ 'If-None-Match': etag }).send('GET', url)).status).toBe(304);
    await pay(one.id, 1);
    expect((await school.admin.with({ 'If-None-Match': etag }).send('GET', url)).status).toBe(200);
  });

  test('lists the payments with receipt numbers and the balance; once fully paid it is a receipt with a stamp', async () => {
    const one = await add();
    const url = `${path}/${one.id}/download`;
    const missing = await school.admin.get(`${url}?kind=receipt`, 404);
    expect(missing.message).toBe(`Nothing has been paid on invoice ${one.id}, so there is no receipt.`);
    const first = await pay(one.id, 501);
    const part = await text(url);
    for (const words of [
      'Partially paid',
      'Paid £501.00',
      'Balance £2,000.00',
      `${first.receipt_number} ${written(day(0))} card TRX-7 £501.00`,
    ])
      expect(part).toContain(words);
    expect(part).not.toContain('PAID');
    expect(await text(`${url}?kind=receipt`)).toContain('Receipt INV-');
    await pay(one.id, 2000);
    const paid = await text(url);
    expect(paid).toContain(`Receipt ${one.invoice_number}`);
    for (const words of ['PAID', 'Status Paid', 'Balance £0.00']) expect(paid).toContain(words);
    expect(await text(`${url}?kind=invoice`)).toContain(`Invoice ${one.invoice_number}`);
  });

  test('is stamped VOID with date and reason, or DRAFT', async () => {
    const [gone, draft] = [await add(), await add({ status: 'draft' })];
    await school.admin.post(`${path}/${gone.id}/void`, { reason: 'Wrong student' });
    const found = await text(`${path}/${gone.id}/download`);
    for (const part of ['VOID', 'Status Void', 'Reason Wrong student', 'Balance £0.00', `Voided on ${written(day(0))}`])
      expect(found).toContain(part);
    const { data, headers } = await school.admin.get<Buffer>(`${path}/${draft.id}/download`);
    expect((await pagesOf(data)).join()).toContain('DRAFT');
    expect(headers.get('content-disposition')).toContain(`filename=Draft_${draft.id}.pdf`);
  });

  test('is tagged for screen readers: title, language, headings, lists and tables with headers', async () => {
    const one = await add({ notes: 'Thank you.' });
    const { data } = await school.admin.get<Buffer>(`${path}/${one.id}/download`);
    const found = await pdfStructure(data);
    expect(found).toMatchObject({
      ...{ title: `Invoice ${one.invoice_number}`, language: 'en-GB', isTagged: true, showsTitle: true, uaPart: '1' },
      untagged: [],
      decoration: [`Printed on ${written(day(0))}`, 'Page 1 of 1'],
    });
    const [page = []] = found.pages;
    expect(page.slice(0, 4)).toEqual([
      ['P', 'Green Valley'],
      ['P', '1 Valley Road'],
      ['H1', 'Invoice'],
      ['P', one.invoice_number],
    ]);
    const entry = (label: string, value: string): PdfElement => [
      'LI',
      [
        ['Lbl', label],
        ['LBody', value],
      ],
    ];
    expect(page).toContainEqual([
      'L',
      [
        entry('Number', one.invoice_number),
        entry('Issued on', written(day(0))),
        entry('Due on', written(day(10))),
        entry('Status', 'To be paid'),
      ],
    ]);
    expect(page).toContainEqual([
      'Table',
      [
        ['TR', ['Description', 'Quantity', 'Price', 'Total'].map((title): PdfElement => ['TH', title])],
        ['TR', ['Museum', '2', '£1,250.50', '£2,501.00'].map((cell): PdfElement => ['TD', cell])],
      ],
    ]);
    expect(page.slice(-2)).toEqual([
      ['H2', 'Notes'],
      ['P', 'Thank you.'],
    ]);
  });

  test('says how to pay while something is owed, with the number as reference', async () => {
    const own = await service.school();
    const payment_details = 'Green Valley Bank\nIBAN GB33 BUKB 2020 1555 5555 55';
    expect((await own.admin.post('/api/school-setup/school-info', { payment_details })).data).toMatchObject({
      payment_details,
    });
    const one = await add({ student_id: await student({}, own) }, own);
    const url = `${path}/${one.id}/download`;
    const how = `How to pay Green Valley Bank IBAN GB33 BUKB 2020 1555 5555 55 Reference: ${one.invoice_number}`;
    expect(await text(url, own)).toContain(how);
    await own.admin.post('/api/fees/payments', { invoice_id: one.id, amount: one.total, method: 'card' }, 201);
    for (const kind of ['invoice', 'receipt'])
      expect(await text(`${url}?kind=${kind}`, own)).not.toContain('How to pay');
    const two = await add({ student_id: await student({}, own) }, own);
    await own.admin.post('/api/school-setup/school-info', { payment_details: '' });
    expect(await text(`${path}/${two.id}/download`, own)).not.toContain('How to pay');
    const { details } = await own.admin.post(
      '/api/school-setup/school-info',
      { payment_details: 'x'.repeat(1001) },
      400,
    );
    expect(details.map((detail) => detail.path)).toEqual(['payment_details']);
  });

  test.each([
    [{}, undefined],
    [
      { address: '1 Valley Road', phone: null, email: 'office@valley.example' },
      '1 Valley Road · office@valley.example',
    ],
    [
      {
        address: '1 Valley Road, Upper Green Valley near Bath, Somerset BA1 1AA',
        phone: '+44 20 1234 5678 extension 90',
      },
      '1 Valley Road, Upper Green Valley near Bath, Somerset BA1 1AA +44 20 1234 5678 extension 90',
    ],
  ])('separates the contact data %j only where something follows on the line', async (info, contact) => {
    const own = await service.school();
    await own.admin.post('/api/school-setup/school-info', { name: 'Valley', ...info });
    const one = await add({ student_id: await student({}, own) }, own);
    const { data } = await own.admin.get<Buffer>(`${path}/${one.id}/download`);
    const [page = []] = (await pdfStructure(data)).pages;
    expect(page.slice(0, 3)).toEqual([
      ['P', 'Valley'],
      ...(contact === undefined ? [] : [['P', contact]]),
      ['H1', 'Invoice'],
      ...(contact === undefined ? [['P', one.invoice_number]] : []),
    ]);
  });

  test('with 200 items continues on further pages with header, column titles and page number, and omits no item', async () => {
    const items = Array.from({ length: 200 }, (_, n) => ({
      description: `Item-${n + 1}: ${'with many words '.repeat(n % 12)}`,
      amount: n + 1,
      quantity: 1,
    }));
    const one = await add({ items });
    const found = await pages(`${path}/${one.id}/download`);
    expect(found.length).toBeGreaterThan(5);
    for (const [n, page] of found.entries()) {
      expect(page).toContain('Green Valley');
      expect(page).toContain(`Page ${n + 1} of ${found.length}`);
      expect(page).toContain(one.invoice_number);
      if (page.includes('Item-')) expect(page).toContain('Description Quantity Price Total');
    }
    const { data } = await school.admin.get<Buffer>(`${path}/${one.id}/download`);
    const structure = await pdfStructure(data);
    expect(structure.untagged).toEqual([]);
    // One table, whose repeated titles are decoration.
    const headers = structure.pages.map((page) => JSON.stringify(page).match(/"TH","\w/g)?.length ?? 0);
    expect(headers).toEqual([4, ...headers.slice(1).map(() => 0)]);
    const all = found.join(' ');
    expect(items.filter((_, n) => !all.includes(`Item-${n + 1}:`))).toEqual([]);
    expect(all).toContain('Balance £20,100.00');
  });

  test.each([
    ['VND', 'Nguyễn Thị', 'Ánh Tuyết', 1250, '₫1,250 '],
    ['UAH', 'Олександра', 'Шевченко', 1250.5, 'UAH 1,250.50 '],
    ['EUR', 'Ελένη', 'Παπαδοπούλου', 1250.5, '€1,250.50 '],
    ['JPY', 'Łucja', 'Çağlağ', 1250, '¥1,250 '],
    ['KWD', 'Ọlá', 'Ñandú', 1250.5, 'KWD 1,250.500 '],
    ['PKR', 'Ayesha', 'Khan', 1250.5, 'PKR 1,250.50 '],
    ['HUF', 'Ádám', 'Szőke', 1250, 'HUF 1,250.00 '],
    ['UYW', 'Inés', 'Núñez', 1250.1234, 'UYW 1,250.1234 '],
  ])(
    'uses the currency %s of the school and prints %s %s %f',
    async (currency, first_name, last_name, amount, price) => {
      const own = await service.school();
      await own.admin.post('/api/school-setup/school-info', { name: `${last_name} Academy`, currency });
      const items = [{ description: 'Museum', amount }];
      const one = await add({ student_id: await student({ first_name, last_name }, own), items }, own);
      const found = await text(`${path}/${one.id}/download`, own);
      for (const part of [`${first_name} ${last_name}`, `${last_name} Academy`, price])
        expect(found.replaceAll('\u00a0', ' ').normalize('NFC')).toContain(part.normalize('NFC'));
    },
  );

  test('fits a logo, the longest names, and words without spaces', async () => {
    const own = await service.school();
    const form = new FormData();
    form.append('logo', new Blob([new Uint8Array(pixel)], { type: 'image/png' }), 'logo.png');
    await own.admin.send('POST', '/api/school-setup/school-info', { body: form }, 200);
    const id = await student(
      { first_name: 'W'.repeat(100), last_name: 'i'.repeat(100), parent_name: 'Ü'.repeat(200) },
      own,
    );
    const items = [{ description: 'M'.repeat(500), amount: 9_999.99, quantity: 1_000_000 }];
    const one = await add({ student_id: id, items, notes: '\n\n'.repeat(500) + 'W'.repeat(999) }, own);
    const found = await text(`${path}/${one.id}/download`, own);
    for (const part of ['$9,999,990,000.00', 'MMMM', 'WWWW']) expect(found).toContain(part);
    const { data } = await own.admin.get<Buffer>(`${path}/${one.id}/download`);
    expect(data.includes('/Subtype /Image')).toBe(true);
  });

  test('omits a stored logo that is damaged', async () => {
    const own = await service.school();
    const one = await add({ student_id: await student({}, own) }, own);
    for (const [label, content] of Object.entries(malformedPictures)) {
      const file = await own.insert('file', {
        content,
        content_type: label.includes('JPEG') ? 'image/jpeg' : 'image/png',
      });
      await service.database.query(
        `insert into ${own.schema}.school (logo_id) values ($1) on conflict (id) do update set logo_id = excluded.logo_id`,
        [file],
      );
      const { data } = await own.admin.get<Buffer>(`${path}/${one.id}/download`);
      expect([data.subarray(0, 5).toString(), data.includes('/Subtype /Image')]).toEqual(['%PDF-', false]);
    }
  });

  test.each(['\u200d', '\u200c', '\u034f'])('prints a name in Tifinagh that contains a joiner (%j)', async (joiner) => {
    const tifinagh = await student({ first_name: `ⵉⴷ${joiner}ⵉⵔ`, last_name: `${joiner}ⵣ` });
    const one = await add({ student_id: tifinagh, items: [{ description: `A ⵣ${joiner}`, amount: 1, quantity: 1 }] });
    expect(await text(`${path}/${one.id}/download`)).toContain('ⵉⴷⵉⵔ ⵣ');
  });

  test('prints markup and PDF operators in texts literally', async () => {
    const one = await add({
      items: [{ description: '<b>Bold</b> (1) \\ {{x}} )Tj', amount: 1, quantity: 1 }],
      notes: 'emoji 🎒 and 授業',
    });
    const found = await text(`${path}/${one.id}/download`);
    expect(found).toContain('<b>Bold</b> (1) \\ {{x}} )Tj');
    expect(found).toContain('□ replaces a character');
  });

  test.each(['kind=bill', 'format=pdf'])('%s is a 400', async (query) => {
    const one = await add();
    expect((await school.admin.get(`${path}/${one.id}/download?${query}`, 400)).error).toBe('validation_error');
  });
});

describe('the receipt of a payment', () => {
  test('shows payer, amount, invoice and method; a reversed payment names its reversal, and a reversal the payment', async () => {
    const one = await add();
    const paid = await pay(one.id, 100.25);
    const url = `/api/finance/payments/${paid.id}/receipt`;
    const { data, headers } = await school.admin.get<Buffer>(url);
    expect(headers.get('content-disposition')).toContain(`filename=${paid.receipt_number}.pdf`);
    const found = (await pagesOf(data)).join(' ');
    for (const part of [
      'Green Valley',
      paid.receipt_number,
      'Amina Okafor',
      'Class Grade 5',
      `Invoice ${one.invoice_number} £100.25`,
      'Method card',
      'Reference TRX-7',
      'Received £100.25',
      'PAID',
    ])
      expect(found).toContain(part);
    const { data: reversal } = await school.admin.post<{ id: number; receipt_number: string }>(
      `/api/finance/payments/${paid.id}/reverse`,
      {
        reason: 'The cheque bounced',
      },
    );
    const before = await text(url);
    expect(before).toContain(`Reversed by ${reversal.receipt_number}`);
    expect(before.match(/REVERSED/g)).toHaveLength(1);
    expect(before).not.toContain('PAID');
    const after = await text(`/api/finance/payments/${reversal.id}/receipt`);
    for (const part of [
      `Reversal ${reversal.receipt_number}`,
      `Reverses ${paid.receipt_number}`,
      '-£100.25',
      'Reason The cheque bounced',
    ])
      expect(after).toContain(part);
    await school.admin.get('/api/finance/payments/999999/receipt', 404);
  });
});

describe('the locale of the school', () => {
  const chooses = (own: School, locale: unknown, status = 200) =>
    own.admin.send<{ locale: string }>('POST', '/api/school-setup/school-info', { body: { locale } }, status);

  test.each([
    ['de-DE', ['1. September 2026', '2.501,00 €', '1.250,50 €', '1.000'], /1 September|€2/],
    ['en-US', ['September 1, 2026', '€2,501.00', '€1,250.50', '1,000'], /1 September|2\.501/],
  ])(
    '%s decides how invoices and receipts write dates and numbers, and is their language',
    async (locale, parts, not) => {
      const own = await service.school();
      await own.admin.post('/api/school-setup/school-info', { currency: 'EUR', locale });
      const { id } = await add(
        {
          student_id: await student({}, own),
          due_date: '2026-09-01',
          items: [
            { description: 'Museum', amount: 1250.5, quantity: 2 },
            { description: 'Paper', amount: 0.5, quantity: 1000 },
          ],
        },
        own,
      );
      const { data } = await own.admin.get<Buffer>(`${path}/${id}/download`);
      const found = (await pagesOf(data)).join(' ');
      for (const part of parts) expect(found).toContain(part);
      expect(found).not.toMatch(not);
      const { language, pages } = await pdfStructure(data);
      expect(language).toBe(locale);
      expect(pages[0]).toContainEqual(['H1', 'Invoice']);
      // The texts of the service stay English, and say so.
      expect(data.includes('/Lang (en)')).toBe(true);
      const { data: payment } = await own.admin.post<{ id: number }>(
        '/api/fees/payments',
        { invoice_id: id, amount: 1250.5, method: 'card' },
        201,
      );
      expect(await text(`/api/finance/payments/${payment.id}/receipt`, own)).toContain(parts[2]);
    },
  );

  test.each(['bn-BD', 'ar-EG', 'ja-JP'])(
    '%s has letters that cannot be printed, so dates and numbers are English',
    async (locale) => {
      const own = await service.school();
      await own.admin.post('/api/school-setup/school-info', { currency: 'EUR', locale });
      const { id } = await add({ student_id: await student({}, own), due_date: '2026-09-01' }, own);
      const found = await text(`${path}/${id}/download`, own);
      for (const part of ['1 September 2026', '€2,501.00']) expect(found).toContain(part);
      expect(found).not.toContain('□');
    },
  );

  test('is a BCP 47 tag that the service knows, en-GB by default', async () => {
    const own = await service.school();
    const { data } = await own.admin.get<{ school: { locale: string } }>('/api/school-setup/status');
    expect(data.school.locale).toBe('en-GB');
    for (const locale of ['en_GB', 'xx-YY', 'english', '', `en-${'a'.repeat(40)}`]) {
      const { details } = await chooses(own, locale, 400);
      expect([locale, details.map((detail) => detail.path)]).toEqual([locale, ['locale']]);
    }
    expect((await chooses(own, ' pt-br ')).data.locale).toBe('pt-BR');
    await own.admin.post('/api/school-setup/school-info', { phone: '1' });
    const { data: after } = await own.admin.get<{ school: { locale: string } }>('/api/school-setup/status');
    expect(after.school.locale).toBe('pt-BR');
  });
});

test('the currency of a school is an ISO 4217 code, USD by default', async () => {
  const own = await service.school();
  const status = async () =>
    (await own.admin.get<{ school: { currency: string } }>('/api/school-setup/status')).data.school.currency;
  expect(await status()).toBe('USD');
  for (const currency of ['XYZ', 'gbp', '', 'EURO']) {
    expect(
      (await own.admin.post('/api/school-setup/school-info', { currency }, 400)).details.map((detail) => detail.path),
    ).toEqual(['currency']);
  }
  expect(
    (await own.admin.post<{ currency: string }>('/api/school-setup/school-info', { currency: 'NGN' })).data.currency,
  ).toBe('NGN');
  await own.admin.post('/api/school-setup/school-info', { phone: '1' });
  expect(await status()).toBe('NGN');
});
