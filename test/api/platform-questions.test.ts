import { describe, expect, test } from '@jest/globals';
import type { Question as QuestionSchema } from '../../src/endpoints/platform-questions.ts';
import type { OutputOf } from '../support/client/output.ts';
import { until } from '../support/client/until.ts';
import { send } from '../support/client/wire.ts';
import { analystOf, disableRefresh, type Facts, replaceJobsView, writeFacts } from '../support/fixtures/analysts.ts';
import { serviceOfFile, unique } from '../support/server/service.ts';

type Question = OutputOf<typeof QuestionSchema>;

const service = await serviceOfFile({}, 2);
await disableRefresh(service);
const facts: Facts = {
  absent: () => 2,
  billed: 1000,
  paid: 50,
  bands: { '10-19': 3 },
  routes: [],
  messages: 40,
  failedJobs: 0,
};
const first = await service.school({ name: 'Ashgrove' });
const second = await service.school({ name: 'Birch Hill' });
for (const { id } of [first, second]) await writeFacts(service, id, facts);
const analyst = await analystOf(service, [first.id]);
const colleague = await analystOf(service, [first.id, second.id]);

const path = '/api/platform/questions';
const save = async (fields: Record<string, unknown> = {}, as = analyst) =>
  (
    await as.post<Question>(
      path,
      { name: unique('Question'), query: '{ tenants(orderBy: [NAME_ASC]) { nodes { name } } }', ...fields },
      201,
    )
  ).data;
/** The .csv of a question, without its byte order mark. */
async function answer(id: number, token = analyst.token) {
  const { status, text, headers } = await send(service.url, { path: `${path}/${id}/answer`, token });
  expect({ status, type: headers['content-type'] }).toEqual({ status: 200, type: 'text/csv; charset=utf-8' });
  return text
    .replace(/^\uFEFF/, '')
    .trimEnd()
    .split(/\r?\n/);
}

describe('saved questions', () => {
  test('a question is saved, listed, read, changed and deleted', async () => {
    const question = await save({ name: 'Names', description: 'All of them', variables: { n: 1 } });
    expect(question).toMatchObject({
      name: 'Names',
      description: 'All of them',
      variables: { n: 1 },
      is_built_in: false,
      owner: { email: analyst.email },
      schedule: null,
      recipients: [],
      next_run_at: null,
    });
    expect((await analyst.get<Question>(`${path}/${question.id}`)).data).toEqual(question);
    expect((await colleague.get<Question[]>(`${path}?search=names`)).data).toEqual([question]);
    const { data: changed } = await analyst.put<Question>(`${path}/${question.id}`, { name: 'Names of schools' });
    expect(changed).toEqual({ ...question, name: 'Names of schools', updated_at: changed.updated_at });
    await analyst.delete(`${path}/${question.id}`);
    await analyst.get(`${path}/${question.id}`, 404);
  });

  test('is changed by another order of a list in its variables, which may mean another answer', async () => {
    const { id } = await save({
      query: 'query ($by: [TenantOrderBy!]) { tenants(orderBy: $by) { nodes { name } } }',
      variables: { by: ['NAME_DESC', 'TENANT_ID_ASC'] },
    });
    const variables = { by: ['TENANT_ID_ASC', 'NAME_DESC'] };
    expect((await analyst.put<Question>(`${path}/${id}`, { variables })).data.variables).toEqual(variables);
    expect((await analyst.get<Question>(`${path}/${id}`)).data.variables).toEqual(variables);
  });

  test('only the owner and administrators can change a question, and nobody can change a built-in one', async () => {
    const question = await save();
    await colleague.put(`${path}/${question.id}`, { name: 'Mine' }, 403);
    await colleague.delete(`${path}/${question.id}`, 403);
    await service.operator.put(`${path}/${question.id}`, { name: 'Renamed' });
    const { data } = await analyst.get<Question[]>(`${path}?pageSize=100`);
    const builtIn = data.find(({ is_built_in }) => is_built_in);
    await service.operator.put(`${path}/${builtIn?.id ?? 0}`, { name: 'Mine' }, 403);
  });

  test('school users and strangers see no questions', async () => {
    await first.admin.get(path, 403);
    await service.anonymous.get(path, 401);
  });

  test('changes are in the audit log', async () => {
    const { id } = await save();
    await analyst.delete(`${path}/${id}`);
    const rows = await service.database.query(
      "select action, actor_email from platform.audit_log where target_type = 'saved_question' and target_id = $1 order by id",
      [id],
    );
    expect(rows).toEqual([
      { action: 'saved_question.create', actor_email: analyst.email },
      { action: 'saved_question.delete', actor_email: analyst.email },
    ]);
  });
});

describe('the answer as .csv', () => {
  test('has the schools of the operator who asks, not those of the owner', async () => {
    const { id } = await save();
    expect(await answer(id)).toEqual(['name', 'Ashgrove']);
    expect(await answer(id, colleague.token)).toEqual(['name', 'Ashgrove', 'Birch Hill']);
  });

  test.each([
    ['a list', '{ enrollments { groupedAggregates(groupBy: [MONTH, GENDER]) { keys sum { students } } } }', {}],
    [
      'a variable and a fragment',
      `query ($by: [EnrollmentGroupBy!]!) { enrollments { groupedAggregates(groupBy: $by) { ...all } } }
       fragment all on EnrollmentAggregates { keys sum { students } }`,
      { by: ['MONTH', 'GENDER'] },
    ],
  ])('has a column for each sum of groups and for what they are grouped by (%s)', async (_case, query, variables) => {
    const { id } = await save({ query, variables });
    expect((await answer(id)).slice(0, 3)).toEqual([
      'month,gender,sum students',
      '2026-09-01,female,22',
      '2026-09-01,male,18',
    ]);
  });

  test('repeats a school for each of its rows', async () => {
    const { id } = await save({
      query: `{ tenants(orderBy: [NAME_ASC]) { nodes { name
        attendanceMonths { groupedAggregates(groupBy: [MONTH]) { keys sum { marked } } } } } }`,
    });
    expect(await answer(id, colleague.token)).toEqual([
      'name,attendanceMonths month,attendanceMonths sum marked',
      ...['Ashgrove', 'Birch Hill'].flatMap((name) =>
        ['2026-09-01', '2026-10-01', '2026-11-01'].map((month) => `${name},${month},800`),
      ),
    ]);
  });

  test('has the totals of a list in one row', async () => {
    const { id } = await save({ query: '{ feeMonths { totalCount aggregates { sum { billed } max { month } } } }' });
    expect(await answer(id)).toEqual(['totalCount,sum billed,max month', '6,3300.00,2026-11-01']);
  });

  test('neutralizes text that a spreadsheet program would run', async () => {
    await service.database.query(`update platform.tenant set name = '=1+1' where id = $1`, [first.id]);
    try {
      expect(await answer((await save()).id)).toEqual(['name', "'=1+1"]);
    } finally {
      await service.database.query(`update platform.tenant set name = 'Ashgrove' where id = $1`, [first.id]);
    }
  });

  test('uses relative dates in variables', async () => {
    const { id } = await save({
      query:
        'query ($month: Date!) { enrollments(filter: { month: { equalTo: $month } }) { aggregates { sum { students } } } }',
      variables: { month: '@month' },
    });
    const thisMonth = "date_trunc('month', now() at time zone 'UTC')::date";
    await service.database.query(`delete from mart.enrollment where month in (${thisMonth}, '2026-09-01')`);
    await service.database.query(`update mart.enrollment set month = ${thisMonth} where month = '2026-10-01'`);
    expect(await answer(id)).toEqual(['sum students', '40']);
  });

  test('is refused with the reason if the query is refused', async () => {
    const { id } = await save({ query: '{ enrollments { aggregates { sum { students } } } }' });
    expect(await analyst.send('GET', `${path}/${id}/answer`, undefined, 409)).toMatchObject({
      error: 'invalid_state',
      message: expect.stringContaining('group by MONTH') as unknown,
    });
  });

  test('is refused if a long list would repeat many columns', async () => {
    const counts = '{ ready waiting running failed }';
    const functions = ['sum', 'min', 'max', 'average'];
    const { id } = await save({
      query: `{ jobs {
        aggregates { ${functions.map((name) => `${name} ${counts}`).join(' ')} }
        groupedAggregates(groupBy: [TASK]) { keys }
      } }`,
    });
    await replaceJobsView(service, { task: "'task ' || n", count: 40_000 }, async () => {
      expect(await analyst.send('GET', `${path}/${id}/answer`, undefined, 409)).toMatchObject({
        error: 'invalid_state',
        message: expect.stringContaining('more than 500000 cells') as unknown,
      });
    });
  });
});

describe('a schedule', () => {
  /** Makes the schedules of questions due and runs them. */
  async function runDue(...questions: Question[]) {
    await service.database.query('update platform.saved_question set next_run_at = now() where id = any ($1)', [
      questions.map(({ id }) => id),
    ]);
    await service.database.query("select graphile_worker.add_job('saved_questions')");
  }
  /** Waits for the email with this subject. */
  const emailAbout = (subject: string) =>
    until(async () => (await service.outbox(1)).find((text) => text.includes(`Subject: ${subject}`)));
  const at = (text: string | null) => new Date(text ?? '').toISOString();

  test('runs at six in the morning of the next day, Monday or first of a month', async () => {
    for (const [schedule, pattern] of [
      ['daily', /T06:00:00/],
      ['weekly', /T06:00:00/],
      ['monthly', /-01T06:00:00/],
    ] as const) {
      const { next_run_at } = await save({ schedule, recipients: [analyst.email] });
      expect(at(next_run_at)).toMatch(pattern);
      if (schedule === 'weekly') expect(new Date(next_run_at ?? '').getUTCDay()).toBe(1);
    }
    const question = await save({ schedule: 'daily', recipients: [analyst.email] });
    const { data } = await analyst.put<Question>(`${path}/${question.id}`, { schedule: null });
    expect(data.next_run_at).toBeNull();
  });

  test('can be set for 20 questions of an operator', async () => {
    const owner = await analystOf(service, [first.id]);
    const questions = await Promise.all(Array.from({ length: 20 }, () => save({ schedule: 'daily' }, owner)));
    const another = await save({}, owner);
    expect(await owner.put(`${path}/${another.id}`, { schedule: 'monthly' }, 409)).toMatchObject({ error: 'conflict' });
    await owner.post(path, { name: 'x', query: '{ __typename }', schedule: 'daily' }, 409);
    await owner.put(`${path}/${questions[0]?.id ?? 0}`, { schedule: 'weekly' });
    await owner.delete(`${path}/${questions[0]?.id ?? 0}`);
    await owner.put(`${path}/${another.id}`, { schedule: 'monthly' });
  });

  test('accepts only recipients who may see the schools of the owner', async () => {
    const other = await analystOf(service, [second.id]);
    for (const recipient of [other.email, first.adminEmail, 'nobody@test.example'])
      expect(
        await analyst.post(
          path,
          { name: 'x', query: '{ __typename }', schedule: 'daily', recipients: [analyst.email, recipient] },
          400,
        ),
      ).toMatchObject({ error: 'validation_error', details: [{ path: 'recipients' }] });
    expect((await save({ recipients: [colleague.email, 'operator@test.example'] })).recipients).toEqual([
      colleague.email,
      'operator@test.example',
    ]);
    await colleague.post(path, { name: 'x', query: '{ __typename }', recipients: [analyst.email] }, 400);
  });

  test('sends the answer with the schools of the owner, and records it', async () => {
    const question = await save({ name: 'Weekly names', schedule: 'weekly', recipients: [colleague.email] });
    await runDue(question);
    const email = await emailAbout('Weekly names');
    expect(email).toContain(`To: Ana Lyst <${colleague.email}>`);
    const [, encoded = ''] = /answer\.csv\r?\n(?:[^\n]+\n)*\r?\n([A-Za-z0-9+/=\r\n]+)/.exec(email) ?? [];
    expect(
      Buffer.from(encoded, 'base64')
        .toString()
        .replace(/^\uFEFF/, ''),
    ).toMatch(/^name\r?\nAshgrove\r?\n$/);
    expect(
      await service.database.query(
        "select actor_email, changes -> 'recipient' ->> 'after' as recipient from platform.audit_log where action = 'saved_question.send' and target_id = $1",
        [question.id],
      ),
    ).toEqual([{ actor_email: analyst.email, recipient: colleague.email }]);
    const { data } = await analyst.get<Question>(`${path}/${question.id}`);
    expect(new Date(data.next_run_at ?? '').getTime()).toBeGreaterThan(Date.now());
  });

  test('sends the answer later if the database is not available', async () => {
    await service.database.query(
      `create function public.conflict() returns text language plpgsql as $$ begin raise 'conflict' using errcode = '40001'; end $$`,
    );
    const question = await save({
      name: 'Names of jobs',
      query: '{ jobs { nodes { task } } }',
      schedule: 'daily',
      recipients: [analyst.email],
    });
    const failed = `from graphile_worker._private_jobs where key like 'send_answer:${String(question.id)}:%' and attempts > 0`;
    await replaceJobsView(service, { task: 'public.conflict()', count: 1 }, async () => {
      expect((await analyst.send('GET', `${path}/${question.id}/answer`, undefined, 503)).error).toBe('unavailable');
      await runDue(question);
      const error = await until(
        async () =>
          (
            await service.database.query<{ last_error: string }>(
              `select last_error ${failed} and last_error is not null`,
            )
          )[0]?.last_error,
      );
      expect(error).toContain('The database is not available.');
    });
    await service.database.query(
      `update graphile_worker._private_jobs set run_at = now() where id in (select id ${failed})`,
    );
    expect(await emailAbout('Names of jobs')).toContain('The answer to the saved question');
  });

  test('sends nothing for a disabled owner, or to a recipient who has lost a school', async () => {
    const owner = await analystOf(service, [first.id]);
    const former = await analystOf(service, [first.id]);
    const disabled = await save({ name: 'Of a disabled owner', schedule: 'daily', recipients: [analyst.email] }, owner);
    const lost = await save({ name: 'To a former reader', schedule: 'daily', recipients: [former.email] });
    const sent = await save({ name: 'Sent', schedule: 'daily', recipients: [analyst.email] });
    await service.database.query('update platform.user_account set is_active = false where email = $1', [owner.email]);
    await service.database.query('update platform.user_account set analyst_tenant_ids = $2 where email = $1', [
      former.email,
      [second.id],
    ]);
    await runDue(disabled, lost, sent);
    await emailAbout('Sent');
    await until(
      async () =>
        (await service.database.query("select from graphile_worker.jobs where task_identifier = 'send_answer'"))
          .length === 0 || undefined,
    );
    const emails = await service.outbox(1);
    expect(emails.filter((text) => /Subject: (Of a disabled owner|To a former reader)/.test(text))).toEqual([]);
  });
});
