import { expect, test } from '@jest/globals';
import { queueIsEmpty } from '../support/fakes/mail.ts';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();

test('clean-up deletes expired sessions, links, throttles and answers, and nothing else', async () => {
  const { database } = service;
  await queueIsEmpty(service);
  await database.query(
    `insert into platform.session (tenant_id, user_id, email, user_agent, expires_at, revoked_at) values
       ($1, 1, 'x', 'expired', now() - interval '1 minute', null),
       ($1, 1, 'x', 'revoked long ago', now() + interval '1 day', now() - interval '31 days'),
       ($1, 1, 'x', 'revoked lately', now() + interval '1 day', now() - interval '29 days'),
       ($1, 1, 'x', 'alive', now() + interval '1 minute', null),
       (null, 1, 'x', 'expired, an operator', now() - interval '1 minute', null)`,
    [school.id],
  );
  await database.query(
    `insert into platform.refresh_token (hash, session_id, expires_at) select name::bytea, id, at from platform.session,
       (values ('expired', now() - interval '1 minute'), ('alive', now() + interval '1 day')) r (name, at) where user_agent = 'alive'`,
  );
  await database.query(
    `insert into platform.one_time_token (hash, tenant_id, user_id, purpose, expires_at) values
       ('expired', $1, 1, 'invitation', now() - interval '25 hours'), ('alive', $1, 1, 'invitation', now() + interval '1 hour')`,
    [school.id],
  );
  await database.query(
    `insert into platform.login_throttle (account, attempts, window_ends_at) values ('expired', 9, now() - interval '1 minute'), ('alive', 9, now() + interval '1 minute')`,
  );
  await database.query(
    `insert into ${school.schema}.idempotency_key (user_id, key, operation, request_hash, created_at)
     values (1, 'expired', 'x', 'x', now() - interval '25 hours'), (1, 'alive', 'x', 'x', now() - interval '23 hours')`,
  );
  await database.query(
    "insert into platform.idempotency_key (user_id, key, operation, request_hash, created_at) values (1, 'expired', 'x', 'x', now() - interval '25 hours')",
  );
  await database.query(
    `insert into platform.outbox (tenant_id, event, facts, retry_at, updated_at) values
       ($1, 'old', '{}', 'infinity', now() - interval '91 days'), ($1, 'kept', '{}', 'infinity', now() - interval '89 days'),
       ($1, 'waits', '{}', now() + interval '1 hour', now() - interval '91 days')`,
    [school.id],
  );
  await database.query(
    `insert into ${school.schema}.notification (user_id, title, message, created_at)
       select u.id, 'clean-up ' || name, 'M', at from (select min(id) as id from ${school.schema}.user_account) u,
         (values ('old', now() - interval '366 days'), ('kept', now() - interval '364 days')) n (name, at)`,
  );
  await database.query(
    `insert into ${school.schema}.notification_delivery (channel, address, recipient_name, title, message, created_at) values
       ('email', 'old', 'x', 'T', 'M', now() - interval '91 days'), ('email', 'kept', 'x', 'T', 'M', now() - interval '89 days')`,
  );
  const others = async () =>
    database.everywhere(
      'select id from platform.session where user_agent is null or user_agent not similar to $1 order by id',
      ['(expired|revoked|alive)%'],
    );
  const before = await others();

  await database.query("select graphile_worker.add_job('clean_up')");
  await queueIsEmpty(service);

  const left = async (text: string) => (await database.query<{ name: string }>(text)).map((row) => row.name).sort();
  expect(
    await left(
      "select user_agent as name from platform.session where user_agent similar to '(expired|revoked|alive)%'",
    ),
  ).toEqual(['alive', 'revoked lately']);
  const kept = "convert_from(%, 'UTF8') as name";
  expect(await left(`select ${kept.replace('%', 'hash')} from platform.refresh_token where length(hash) < 10`)).toEqual(
    ['alive'],
  );
  expect(
    await left(`select ${kept.replace('%', 'hash')} from platform.one_time_token where length(hash) < 10`),
  ).toEqual(['alive']);
  expect(
    await left(`select ${kept.replace('%', 'account')} from platform.login_throttle where length(account) < 10`),
  ).toEqual(['alive']);
  expect(await left(`select key as name from ${school.schema}.idempotency_key`)).toEqual(['alive']);
  expect(await left('select key as name from platform.idempotency_key')).toEqual([]);
  expect(await left('select event as name from platform.outbox')).toEqual(['kept', 'waits']);
  expect(await left(`select title as name from ${school.schema}.notification where title like 'clean-up %'`)).toEqual([
    'clean-up kept',
  ]);
  expect(
    await left(`select address as name from ${school.schema}.notification_delivery where recipient_name = 'x'`),
  ).toEqual(['kept']);
  expect(before.length).toBeGreaterThanOrEqual(2);
  expect(await others()).toEqual(before);
  await school.admin.get('/api/auth/profile');
  await service.operator.get('/api/auth/profile');
});

test('clean-up corrects the numbers of students, teachers and classes that the plan is compared with', async () => {
  const { database } = service;
  const counts = () => database.query(`select students, teachers, classes from ${school.schema}.school_usage`);
  const right = await counts();
  await database.query(`update ${school.schema}.school_usage set students = 7, teachers = 0, classes = 99`);
  await database.query("select graphile_worker.add_job('clean_up')");
  await queueIsEmpty(service);
  expect(await counts()).toEqual(right);
});
