import type { AddressInfo } from 'node:net';
import { afterAll, expect, test } from '@jest/globals';
import { SMTPServer } from 'smtp-server';
import { queueIsEmpty } from '../support/fakes/mail.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

/** An SMTP server with greylisting: it rejects the first message to `grey…`, with the address in the error. */
let refusals = 0;
const received: { from: string; to: string[]; content: string }[] = [];
const smtp = new SMTPServer({
  authOptional: true,
  disabledCommands: ['STARTTLS', 'AUTH'],
  onRcptTo({ address }, _session, callback) {
    if (address.startsWith('unknown')) {
      callback(Object.assign(new Error(`5.1.1 <${address}>: User unknown`), { responseCode: 550 }));
      return;
    }
    if (!address.startsWith('grey') || refusals++ > 0) {
      callback();
      return;
    }
    callback(
      Object.assign(new Error(`4.7.1 <${address}>: Recipient address rejected: Greylisted`), { responseCode: 451 }),
    );
  },
  onData(stream, session, callback) {
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.on('end', () => {
      const { mailFrom, rcptTo } = session.envelope;
      received.push({
        from: mailFrom ? mailFrom.address : '',
        to: rcptTo.map(({ address }) => address),
        content: Buffer.concat(chunks).toString(),
      });
      callback();
    });
  },
});
await new Promise<void>((done) => void smtp.listen(0, '127.0.0.1', done));
const { port } = smtp.server.address() as AddressInfo;
const { service, school } = await serviceWithSchool({
  SMTP_URL: `smtp://127.0.0.1:${port}`,
  EMAIL_FROM: 'Green Valley <school@valley.example>',
});
afterAll(() => new Promise<void>((done) => smtp.close(() => done())));

const messageTo = (address: string) => until(() => received.find(({ to }) => to.includes(address)));
const tokenOf = (content: string) => /token=(?:3D)?([\w.-]*[\w-])/.exec(content.replaceAll('=\r\n', ''))?.[1] ?? '';

test('a message is sent by SMTP from the configured address, with a working link', async () => {
  const { content, from } = await messageTo(school.adminEmail);
  expect(from).toBe('school@valley.example');
  expect(content).toMatch(/^From: Green Valley <school@valley\.example>\r$/m);
  expect((await fetch(`${service.url}/api/auth/email/verify?token=${tokenOf(content)}`)).status).toBe(200);
});

test('a message that the server refuses permanently has no second attempt, and the queue counts it as failed', async () => {
  const email = 'unknown@list.example';
  await school.admin.post('/api/users', { email, first_name: 'Nobody', last_name: 'Here' }, 201);
  const failed = await until(
    async () =>
      (
        await service.database.query<{ id: string; state: string; attempts: number; last_error: string }>(
          "select id, state, attempts, last_error from core.jobs() where last_error like '%550%' and locked_at is null",
        )
      )[0],
  );
  expect(failed).toMatchObject({ state: 'failed', attempts: 1 });
  expect(failed.last_error).not.toMatch(/unknown@/);
  await service.database.query('select graphile_worker.complete_jobs(array[$1::bigint])', [failed.id]);
});

test('a rejected message stays in the queue, with the reason but without the address, and is sent once at the next attempt', async () => {
  const email = 'grey@list.example';
  // The retry would be due in seconds, possibly before the checks of a slow machine. Delay it until the test starts it.
  await service.database.query(`
    create function public.wait_longer() returns trigger language plpgsql as $$
    begin
      if new.last_error is not null and new.run_at > now() then
        new.run_at := now() + interval '1 hour';
      end if;
      return new;
    end $$;
    create trigger wait_longer before update on graphile_worker._private_jobs for each row execute function public.wait_longer()`);
  await school.admin.post('/api/users', { email, first_name: 'Gray', last_name: 'Listed' }, 201);
  const failed = await until(
    async () =>
      (
        await service.database.query<{ id: string; attempts: number; last_error: string; waits: boolean }>(
          'select id, attempts, last_error, run_at > now() as waits from graphile_worker._private_jobs where last_error is not null and locked_at is null',
        )
      )[0],
  );
  expect(failed).toMatchObject({ attempts: 1, waits: true });
  expect(failed.last_error).toMatch(/451/);
  expect(failed.last_error).not.toMatch(/grey|list\.example/);
  expect(received.filter(({ to }) => to.includes(email))).toEqual([]);

  await service.database.query('select graphile_worker.reschedule_jobs(array[$1::bigint], now())', [failed.id]);
  const { content } = await messageTo(email);
  await service.anonymous.post('/api/auth/password/reset', { token: tokenOf(content), password: 'chosen-password' });
  await queueIsEmpty(service);
  expect(received.filter(({ to }) => to.includes(email))).toHaveLength(1);
});
