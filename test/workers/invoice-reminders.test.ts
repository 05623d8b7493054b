import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { SMTPServer } from 'smtp-server';
import { extractText, getDocumentProxy } from 'unpdf';
import { queueIsEmpty } from '../support/fakes/mail.ts';
import { race } from '../support/client/race.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

/** An SMTP server that rejects the first message to an address beginning with `grey`. */
let refusals = 0;
const received: { to: string[]; content: string }[] = [];
const smtp = new SMTPServer({
  authOptional: true,
  disabledCommands: ['STARTTLS', 'AUTH'],
  onRcptTo({ address }, _session, callback) {
    if (address.startsWith('grey') && refusals++ === 0)
      callback(Object.assign(new Error(`4.7.1 <${address}>: Greylisted`), { responseCode: 451 }));
    else callback();
  },
  onData(stream, session, callback) {
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.on('end', () => {
      const content = Buffer.concat(chunks).toString();
      // Skips the emails of notifications, such as receipts.
      if (!/^Message-ID: <[\da-z]+-[\da-z]+@/m.test(content))
        received.push({ to: session.envelope.rcptTo.map(({ address }) => address), content });
      callback();
    });
  },
});
await new Promise<void>((done) => void smtp.listen(0, '127.0.0.1', done));
const { port } = smtp.server.address() as AddressInfo;
const { service, school } = await serviceWithSchool({
  SMTP_URL: `smtp://127.0.0.1:${port}`,
  EMAIL_FROM: 'Service <office@valley.example>',
});
afterAll(() => new Promise<void>((done) => smtp.close(() => done())));

interface Invoice {
  id: number;
  invoice_number: string;
  last_reminded_at: string | null;
}

const path = '/api/fees/invoices';
const day = (offset: number) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10);
let serial = 0;
let studentId = 0;

beforeAll(async () => {
  await school.admin.post('/api/school-setup/school-info', {
    name: 'Grüne <Schule> & "Co", Tal',
    phone: '+49 1',
    currency: 'EUR',
  });
  // Records every job, because the queue deletes finished ones.
  await service.database.query(`
    create table public.job_log (job text not null);
    create function public.log_job() returns trigger language plpgsql as $$
    begin
      if new.task_id = (select id from graphile_worker._private_tasks where identifier = 'send_invoice_reminder') then
        insert into public.job_log values (to_jsonb(new)::text);
      end if;
      return null;
    end $$;
    create trigger log_job after insert or update on graphile_worker._private_jobs for each row execute function public.log_job();
    grant select on graphile_worker._private_tasks to public;
    grant insert on public.job_log to public`);
});

const student = async (fields: Record<string, unknown>) =>
  (
    await school.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Zoë', last_name: '<Núñez>', ...fields },
      201,
    )
  ).data.id;
const add = async (fields: Record<string, unknown> = {}) =>
  (
    await school.admin.post<Invoice>(
      path,
      {
        student_id: studentId,
        due_date: day(10),
        items: [{ description: 'Museum', amount: 1234.5, quantity: 1 }],
        ...fields,
      },
      201,
    )
  ).data;
const remind = (id: number, status = 200) =>
  school.admin.post<Invoice>(`${path}/${id}/send-reminder`, undefined, status);
let parent = '';
beforeEach(async () => {
  parent = `parent${++serial}@home.example`;
  studentId = await student({ parent_name: 'Chidi <Okafor>', parent_email: parent });
});
const sentTo = (address: string) => received.filter(({ to }) => to.includes(address));
const firstMailTo = (address: string) => until(() => sentTo(address)[0]);

/** The MIME parts of a message. */
function parts(content: string): { type: string; head: string; body: Buffer }[] {
  const boundaries = [...content.matchAll(/boundary="([^"]+)"/g)].map(([, boundary = '']) => boundary);
  const escaped = boundaries.map((boundary) => boundary.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|');
  return content.split(new RegExp(`^--(?:${escaped})(?:--)?\\r\\n`, 'm')).flatMap((part) => {
    const at = part.indexOf('\r\n\r\n');
    const head = part.slice(0, at);
    const type = /content-type: ([^;\r]+)/i.exec(head)?.[1] ?? '';
    if (at < 0 || type.startsWith('multipart')) return [];
    const text = part.slice(at + 4);
    const body = /base64/i.test(head)
      ? Buffer.from(text, 'base64')
      : /quoted-printable/i.test(head)
        ? Buffer.from(
            text
              .replace(/=\r\n/g, '')
              .replace(/=([0-9A-F]{2})/g, (_all, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
            'latin1',
          )
        : Buffer.from(text);
    return [{ type, head, body }];
  });
}

test('a reminder is sent to the parent in the name of the school, as text and HTML, with the invoice as a PDF', async () => {
  const invoice = await add();
  const { data } = await remind(invoice.id);
  expect(data.last_reminded_at).not.toBeNull();
  const { content } = await firstMailTo(parent);
  const head = content.split('\r\n\r\n')[0]?.replace(/\r\n[ \t]+/g, ' ') ?? '';
  expect(head).toMatch(/^From: .*<office@valley\.example>$/m);
  expect(head).not.toContain('Service');
  const [text, html, pdf, ...others] = parts(content);
  expect([text?.type, html?.type, pdf?.type, others]).toEqual(['text/plain', 'text/html', 'application/pdf', []]);
  for (const words of [
    'Hello Chidi <Okafor>,',
    `Invoice: ${invoice.invoice_number}`,
    'Student: Zoë <Núñez>',
    'Open balance: €1,234.50',
    'Grüne <Schule> & "Co", Tal',
    '+49 1',
  ])
    expect(text?.body.toString()).toContain(words);
  const shown = html?.body.toString() ?? '';
  for (const words of [
    'Hello Chidi &#60;Okafor&#62;,',
    'Zoë &#60;Núñez&#62;',
    'Grüne &#60;Schule&#62; &#38; &#34;Co&#34;, Tal',
  ])
    expect(shown).toContain(words);
  expect(shown).not.toMatch(/<Schule>|<Okafor>|<Núñez>/);
  expect(pdf?.head).toContain(`${invoice.invoice_number}.pdf`);
  const { text: pages } = await extractText(await getDocumentProxy(new Uint8Array(pdf?.body ?? Buffer.alloc(0))), {
    mergePages: true,
  });
  for (const words of [invoice.invoice_number, 'Zoë <Núñez>', '€1,234.50']) expect(pages).toContain(words);
});

test('two requests on the same day send one reminder, also concurrently, and return the same', async () => {
  const invoice = await add();
  const answers = await race(
    service.database,
    `select from ${school.schema}.invoice where id = ${invoice.id} for update`,
    3,
    () => [1, 2, 3].map(() => remind(invoice.id)),
  );
  await firstMailTo(parent);
  answers.push(await remind(invoice.id));
  expect(answers.map(({ data }) => data)).toEqual(Array(4).fill(answers[0]?.data));
  await queueIsEmpty(service);
  expect(sentTo(parent)).toHaveLength(1);
  // The next day there is another reminder.
  await service.database.query(
    `update ${school.schema}.invoice_reminder set sent_on = sent_on - 1 where invoice_id = $1`,
    [invoice.id],
  );
  await remind(invoice.id);
  await until(() => sentTo(parent)[1]);
});

test('without a parent a reminder is sent to the student, or to the address of the user account; without any it is refused', async () => {
  const own = `own${serial}@home.example`;
  const { id } = await add({ student_id: await student({ email: own }) });
  await remind(id);
  expect((await firstMailTo(own)).content).toMatch(/^To: =\?UTF-8\?/m);
  const pupil = await school.user(['student']);
  const lonely = await student({});
  await service.database.query(`update ${school.schema}.student set user_id = $1 where id = $2`, [pupil.id, lonely]);
  await remind((await add({ student_id: lonely })).id);
  await until(() => sentTo(pupil.email).find(({ content }) => content.includes('application/pdf')));
  const nobody = await add({ student_id: lonely });
  // The address of a deleted user is not used.
  await service.database.query(`update ${school.schema}.user_account set deleted_at = now() where id = $1`, [pupil.id]);
  const refused = await remind(nobody.id, 409);
  expect([refused.error, refused.message]).toEqual([
    'invalid_state',
    'Neither the parent nor the student has an email address. Add an address first.',
  ]);
});

test('no reminder is sent for a draft, a paid or a void invoice', async () => {
  const [draft, paid, gone] = [await add({ status: 'draft' }), await add(), await add()];
  await school.admin.post('/api/fees/payments', { invoice_id: paid.id, amount: 1234.5, method: 'cash' }, 201);
  await school.admin.delete(`${path}/${gone.id}`);
  for (const [{ id }, message] of [
    [draft, 'This invoice is a draft. Issue it first.'],
    [paid, 'This invoice is paid. Reminders are only sent for unpaid invoices.'],
    [gone, 'This invoice is void. Reminders are only sent for unpaid invoices.'],
  ] as const) {
    expect(await remind(id, 409)).toMatchObject({ error: 'invalid_state', message });
  }
});

/** Blocks workers from taking jobs until the returned function is called. */
async function blockWorkers(): Promise<() => Promise<void>> {
  await service.database.query(`
    create or replace function public.blockWorkers() returns trigger language plpgsql as $$ begin new.run_at := now() + interval '1 hour'; return new; end $$;
    create trigger hold before insert on graphile_worker._private_jobs for each row execute function public.blockWorkers()`);
  return async () => {
    await service.database.query('drop trigger hold on graphile_worker._private_jobs');
    await service.database.query(
      'select graphile_worker.reschedule_jobs(array(select id from graphile_worker._private_jobs), now())',
    );
  };
}

test('no reminder is sent if the invoice was paid or voided meanwhile; the content is current when it is sent', async () => {
  const release = await blockWorkers();
  const [paid, gone, part] = [
    await add(),
    await add(),
    await add({ student_id: await student({ parent_email: `late${serial}@home.example` }) }),
  ];
  for (const { id } of [paid, gone, part]) await remind(id);
  await school.admin.post('/api/fees/payments', { invoice_id: paid.id, amount: 1234.5, method: 'cash' }, 201);
  await school.admin.delete(`${path}/${gone.id}`);
  await school.admin.post('/api/fees/payments', { invoice_id: part.id, amount: 1234, method: 'cash' }, 201);
  await release();
  const { content } = await firstMailTo(`late${serial}@home.example`);
  expect(parts(content)[0]?.body.toString()).toContain('Paid: €1,234.00\nOpen balance: €0.50'.replaceAll('\n', '\r\n'));
  await queueIsEmpty(service);
  expect(sentTo(parent)).toEqual([]);
});

test('no reminder is sent if the school was suspended meanwhile', async () => {
  const release = await blockWorkers();
  const { id } = await add();
  await remind(id);
  await service.database.query(`update platform.tenant set status = 'suspended' where id = $1`, [school.id]);
  try {
    await release();
    await queueIsEmpty(service);
    expect(sentTo(parent)).toEqual([]);
  } finally {
    await service.database.query(`update platform.tenant set status = 'active' where id = $1`, [school.id]);
  }
});

test('a rejected reminder is retried and sent once, and the queue has neither an address nor a name', async () => {
  const email = `grey${serial}@list.example`;
  const { id } = await add({ student_id: await student({ parent_email: email }) });
  await remind(id);
  const failed = await until(
    async () =>
      (
        await service.database.query<{ id: string; last_error: string }>(
          'select id, last_error from graphile_worker._private_jobs where last_error is not null and locked_at is null',
        )
      )[0],
  );
  expect(failed.last_error).toMatch(/451/);
  await service.database.query('select graphile_worker.reschedule_jobs(array[$1::bigint], now())', [failed.id]);
  await firstMailTo(email);
  await queueIsEmpty(service);
  expect(sentTo(email)).toHaveLength(1);
  const jobs = (await service.database.query<{ job: string }>('select job from public.job_log')).map(({ job }) => job);
  expect(jobs.length).toBeGreaterThan(5);
  expect(jobs.filter((job) => /@|example|Okafor|Núñez|Zoë/.test(job))).toEqual([]);
  // Below the priority of emails that a user waits for, as for automatic reminders.
  const priorities = jobs.map((job) => (JSON.parse(job) as { priority: number }).priority);
  expect(Math.min(...priorities)).toBe(10);
  expect(Object.keys((JSON.parse(jobs[0] ?? '{}') as { payload: object }).payload).sort()).toEqual([
    'invoice_id',
    'sent_on',
    'tenant_id',
  ]);
});
