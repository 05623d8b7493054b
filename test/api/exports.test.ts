import { EventEmitter, once } from 'node:events';
import { get, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { strFromU8, unzipSync } from 'fflate';
import pg from 'pg';
import type { Exchange } from '../../src/http/endpoint.ts';
import { exported, type ExportColumn } from '../../src/endpoints/parts/exports.ts';
import { readSheet } from '../../src/documents/spreadsheets.ts';
import { dispatcher } from '../../src/database/call.ts';
import { apiPool } from '../../src/database/pool/pool.ts';
import type { Client } from '../support/client/client.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

const { service, school } = await serviceWithSchool();
const { schema } = school;
const path = '/api/fees/payments/export';

/** The cells of an exported file, without the header. */
const rowsOf = async (content: Buffer, contentType: string) =>
  (await readSheet({ content, contentType: contentType.split(';')[0] ?? '' }, 5000)).slice(1).map(({ cells }) => cells);
const exportedRows = async (client: Client, query = '') => {
  const { data, headers } = await client.get<Buffer>(path + query);
  return rowsOf(data, headers.get('content-type') ?? '');
};

/** Payments of one fee, from 2026-01-01 to 2026-02-19, in an order that differs from the order of ids. */
const pay = (count: number, day = `date '2026-01-01' + (n * 7) % 50`, reference = `'R' || n`) =>
  service.database.query(
    `insert into ${schema}.payment (student_id, student_fee_id, amount, payment_date, payment_method, reference_number, recorded_by_name)
     select f.student_id, f.id, n + 0.25, ${day}, 'cash', ${reference}, 'Clara' from ${schema}.student_fee f, generate_series(1, ${count}) n where f.id = 1`,
  );

let classId = 0;
beforeAll(async () => {
  const room = await school.classroom('Blue');
  classId = room.classId;
  const studentId = await school.insert('student', {
    first_name: 'Zoë',
    last_name: 'Núñez',
    admission_number: '007',
    class_id: classId,
    grade_id: room.gradeId,
  });
  const structureId = await school.insert('fee_structure', { name: 'Tuition', academic_year_id: room.yearId });
  await school.insert('student_fee', {
    student_id: studentId,
    fee_structure_id: structureId,
    class_id: classId,
    amount: 1e9,
    due_date: '2034-01-01',
  });
  await pay(2500);
});

/** The expected rows, in the order of the export. */
const expected = async () =>
  (
    await service.database.query<{ cells: string[] }>(
      `select array['', payment_date::text, '007', 'Zoë Núñez', 'Blue', 'Tuition', amount::float::text, 'cash', reference_number, '', '', '', 'Clara'] as cells
       from ${schema}.payment order by payment_date, id`,
    )
  ).map(({ cells }) => cells);

describe('an export', () => {
  test.each(['csv', 'xlsx'])('as .%s holds all rows of all pages in their order', async (format) => {
    const { data, headers } = await school.admin.get<Buffer>(`${path}?format=${format}`);
    expect(headers.get('content-disposition')).toMatch(
      new RegExp(`^attachment; filename=payments-\\d{4}-\\d\\d-\\d\\d\\.${format}$`),
    );
    expect(headers.get('content-type')).toBe(
      format === 'csv'
        ? 'text/csv; charset=utf-8'
        : 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
    );
    expect(await rowsOf(data, headers.get('content-type') ?? '')).toEqual(await expected());
  });

  test('is a .csv by default, and an unknown format returns 400', async () => {
    expect((await school.admin.get(path)).headers.get('content-type')).toBe('text/csv; charset=utf-8');
    expect((await school.admin.get(`${path}?format=pdf`, 400)).details).toMatchObject([{ path: 'format' }]);
    await school.admin.get(`${path}?page=2`, 400);
    await school.admin.get(`${path}?after=1`, 400);
  });

  test('has typed amounts, dates and text cells in an .xlsx, and no text becomes a formula', async () => {
    await pay(1, `date '2025-01-01'`, `'=1+1'`);
    const { data } = await school.admin.get<Buffer>(`${path}?format=xlsx&to_date=2025-12-31`);
    const row = strFromU8(unzipSync(data)['xl/worksheets/sheet1.xml'] ?? new Uint8Array()).split('<row r="2">')[1];
    expect(row).toContain('<c r="B2" s="3"><v>45658</v></c>');
    expect(row).toContain('<c r="C2" t="inlineStr"><is><t xml:space="preserve">007</t></is></c>');
    expect(row).toContain('<c r="G2" s="6"><v>1.25</v></c>');
    expect(row).toContain(`'=1+1`);
    const { data: text } = await school.admin.get<Buffer>(`${path}?to_date=2025-12-31`);
    expect(text.toString()).toContain(`,2025-01-01,007,Zoë Núñez,Blue,Tuition,1.25,cash,'=1+1,`);
  });

  test('takes the filters of the list', async () => {
    for (const query of [
      'from_date=2026-02-18',
      `class_id=${classId}&search=R77&to_date=2026-01-20`,
      'payment_method=CASH&student_fee_id=1&from_date=2026-01-03&to_date=2026-01-03',
      'kind=invoice',
      'kind=student_fee&search=n%C3%BA%C3%B1ez&from_date=2026-01-02&to_date=2026-01-02',
      'student_id=999',
    ]) {
      const { data } = await school.admin.get<{ reference_number: string }[]>(
        `/api/fees/payments?${query}&sort=payment_date&order=asc&pageSize=100`,
      );
      expect((await exportedRows(school.admin, `?${query}`)).map((cells) => cells[8])).toEqual(
        data.map((payment) => payment.reference_number),
      );
    }
  });

  test('requires fee.read for the whole school', async () => {
    expect(await exportedRows(await school.user(['accountant']), '?to_date=2025-12-31')).toHaveLength(1);
    await (await school.user(['teacher'])).get(path, 403);
    await (await school.user(['student'])).get(path, 403);
    // A teacher with the permission can access only their own classes.
    await service.database.query(
      `insert into ${schema}.role_permission (role_id, permission_id) select r.id, p.id from ${schema}.role r, core.permission p where r.name = 'teacher' and p.name = 'fee.read'`,
    );
    const refused = await (await school.user(['teacher'])).get(path, 403);
    expect(refused).toMatchObject({
      error: 'forbidden',
      message: 'This needs access to the whole school.',
    });
    const without = await service.school({ feature_flags: { fees_management: false } });
    expect(await without.admin.get(path, 403)).toMatchObject({ error: 'feature_disabled' });
  });
});

const columns = ['Receipt', 'Date', 'Number', 'Student', 'Class', 'For', 'Amount', 'Method', 'Reference'].map(
  (header): ExportColumn => ({
    header,
    type: 'text',
  }),
);

/** The file that a handler returns to the admin. `seen` is called before each page is read. */
async function handled(pageRows: number, seen: (page: number) => Promise<unknown>, params: object = {}) {
  const pool = apiPool(await school.database.addressFor(), undefined, 2);
  const { sid } = JSON.parse(Buffer.from(school.admin.token.split('.')[1] ?? '', 'base64url').toString()) as {
    sid: number;
  };
  let page = 0;
  const call = async (operation: string, p: object) => {
    await seen(++page);
    return (await dispatcher(pool)(operation, String(sid), p, {})).answer;
  };
  const download = await exported('payments_export', { name: 'x', columns, pageRows }).handler({
    req: {},
    res: new EventEmitter(),
    params: { format: 'csv', ...params },
    call,
  } as unknown as Exchange);
  return { content: download.content as Readable, close: () => pool.end() };
}

describe('the pages of an export', () => {
  test('have each row exactly once while payments are added with any date', async () => {
    const before = (await expected()).map((cells) => cells[8]);
    const { content, close } = await handled(97, (page) =>
      pay(1, `date '2026-01-01' + ${page * 2 + (page % 3) * 5 - 5}`, `'new ${page}'`),
    );
    const rows = await rowsOf(await buffer(content), 'text/csv');
    await close();
    const references = rows.map((cells) => cells[8] ?? '');
    expect(references.filter((reference) => !reference.startsWith('new'))).toEqual(before);
    const added = references.filter((reference) => reference.startsWith('new'));
    expect(added.length).toBeGreaterThan(5);
    expect(new Set(added).size).toBe(added.length);
    expect(rows.map((cells) => cells[1])).toEqual(rows.map((cells) => cells[1]).sort());
    await service.database.query(`alter table ${schema}.payment disable trigger user`);
    await service.database.query(`delete from ${schema}.payment where reference_number like 'new %'`);
    await service.database.query(`alter table ${schema}.payment enable trigger user`);
  });

  test.each([501, 500, 77, 1])('%i rows at a time give the same file', async (pageRows) => {
    const { content, close } = await handled(pageRows, () => Promise.resolve(), {
      from_date: '2026-02-10',
      ...(pageRows === 1 ? { to_date: '2026-02-10' } : {}),
    });
    const rows = await rowsOf(await buffer(content), 'text/csv');
    await close();
    const wanted = (await expected()).filter(
      ([, day = '']) => day >= '2026-02-10' && (pageRows > 1 || day === '2026-02-10'),
    );
    expect(wanted.length).toBeGreaterThan(40);
    expect(rows.map((cells) => cells[8])).toEqual(wanted.map((cells) => cells[8]));
  });

  test('are read only after the client has received the previous one, and stop when it disconnects', async () => {
    let pages = 0;
    const call = () => {
      pages++;
      return Promise.resolve(
        JSON.stringify({
          rows: Array(1000).fill(['some text that takes place', 'and more of it', pages]),
          next: pages,
          date: '2026-11-21',
        }),
      );
    };
    const { content } = await exported('x', { name: 'x', columns: columns.slice(0, 3) }).handler({
      req: {},
      res: new EventEmitter(),
      params: { format: 'csv' },
      call,
    } as unknown as Exchange);
    const stream = content as Readable;
    await pause(50);
    expect(pages).toBe(1);
    let bytes = 0;
    while (bytes < 500_000) {
      const chunk = stream.read() as Buffer | null;
      if (chunk === null) await once(stream, 'readable');
      else bytes += chunk.length;
    }
    await pause(50);
    const taken = pages;
    // 47 bytes per row: those that were consumed, and the buffer of the stream.
    expect(taken).toBeGreaterThan(8);
    expect(taken).toBeLessThan(16);
    stream.destroy();
    await pause(50);
    expect(pages).toBeLessThanOrEqual(taken + 1);
  });
});

describe('over HTTP', () => {
  /** The request id of each page that was read. A page of an earlier test may still be on its way. */
  let pages: string[] = [];
  let listener: InstanceType<typeof pg.Client>;
  beforeAll(async () => {
    await pay(20_000, `date '2030-01-01'`);
    // Pages are slow and counted. A search term makes one fail, or the export endless.
    await school.database.query(`
      alter function api.payments_export(jsonb) rename to payments_export_page;
      create function api.payments_export(p jsonb) returns json language plpgsql stable as $$
      begin
        perform pg_sleep(case p ->> 'search' when 'slow' then 20 else 0.03 end), pg_notify('page', current_setting('app.context')::json ->> 'request_id');
        if p ->> 'search' = 'endless' then
          return json_build_object('rows', (select json_agg(json_build_array(repeat('x', 2000))) from generate_series(1, 1000)), 'next', '[1]'::json, 'date', current_date);
        end if;
        if p ->> 'search' = 'fail' and p ? 'after' then
          raise 'a page that fails';
        end if;
        return api.payments_export_page(p - 'search');
      end $$`);
    listener = new pg.Client({ connectionString: await school.database.addressFor() });
    await listener.connect();
    await listener.query('listen page');
    listener.on('notification', ({ payload }) => pages.push(payload ?? ''));
  });
  afterAll(() => listener.end());
  beforeEach(() => {
    pages = [];
  });

  /** Downloads the file until `until` bytes. Returns the number of bytes received and whether the file is complete. */
  const take = (query: string, max = Infinity) =>
    new Promise<{ bytes: number; isWhole: boolean }>((done, fail) => {
      let bytes = 0;
      const sent = get(
        `${service.url}${path}${query}`,
        { headers: { authorization: `Bearer ${school.admin.token}` }, agent: false },
        (response) => {
          response.on('data', (chunk: Buffer) => {
            bytes += chunk.length;
            if (bytes >= max) sent.destroy();
          });
          response.on('error', () => undefined);
          response.on('close', () => done({ bytes, isWhole: response.complete }));
        },
      );
      sent.on('error', (error) => {
        if (bytes === 0) fail(error);
      });
    });

  test('no more pages are read after the client disconnects', async () => {
    expect(await take('')).toMatchObject({ isWhole: true });
    await until(() => pages.length === 23 || undefined);
    pages = [];
    expect(await take('', 1)).toMatchObject({ isWhole: false });
    await pause(1000);
    expect(pages.length).toBeLessThan(10);
  });

  test('an error on a later page closes the connection, so that the file is not taken for complete', async () => {
    for (const format of ['csv', 'xlsx']) {
      const { bytes, isWhole } = await take(`?search=fail&format=${format}`);
      expect(isWhole).toBe(false);
      expect(bytes).toBeGreaterThan(0);
    }
  });

  /** Starts an endless export and reads only the headers. */
  const hold = (client: Client) =>
    new Promise<{ status: number; leave: () => void }>((done, fail) => {
      const sent = get(
        `${service.url}${path}?search=endless`,
        { headers: { authorization: `Bearer ${client.token}` }, agent: false },
        (response) => {
          response.on('error', () => undefined);
          done({ status: response.statusCode ?? 0, leave: () => sent.destroy() });
        },
      );
      sent.on('error', fail);
    });

  test('a user can run two exports, and a school six of the eight; a slot is free when the client disconnects', async () => {
    const [one, two, three] = [
      await school.user(['accountant']),
      await school.user(['accountant']),
      await school.user(['accountant']),
    ];
    const held = [await hold(school.admin), await hold(school.admin)];
    const refused = await school.admin.get(path, 429);
    expect([refused.error, refused.headers.get('retry-after')]).toEqual(['rate_limited', '3']);
    for (const other of [one, one, two, two]) held.push(await hold(other));
    expect(held.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200, 200]);
    const headers = { 'X-Request-Id': 'seventh' };
    const seventh = three.with(headers).get(`${path}?to_date=2026-01-02`, 200);
    const elsewhere = await service.school();
    await elsewhere.admin.get(path, 200);
    expect(pages).not.toContain('seventh');
    held[0]?.leave();
    await seventh;
    for (const { leave } of held) leave();
    // All slots are free again. Refused requests took none.
    await until(
      async () =>
        (await Promise.all([1, 2].map(() => school.admin.send('GET', `${path}?to_date=2026-01-02`)))).every(
          ({ status }) => status === 200,
        ) || undefined,
    );
    await school.admin.get(`${path}?to_date=20`, 400);
    await school.admin.get(`${path}?to_date=2026-01-02`, 200);
  });

  test('a client that disconnects before the first page frees its slot', async () => {
    const leaves = Array.from({ length: 2 }, () => {
      const sent = get(`${service.url}${path}?search=slow`, {
        headers: { authorization: `Bearer ${school.admin.token}`, 'x-request-id': 'leaving' },
        agent: false,
      });
      sent.on('error', () => undefined);
      return () => sent.destroy();
    });
    const reading = `select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`;
    await until(async () => (await school.database.query(reading)).length === 2 || undefined);
    for (const leave of leaves) leave();
    // The statements are cancelled, so that no page is counted.
    await until(async () => (await school.database.query(reading)).length === 0 || undefined);
    expect(pages).not.toContain('leaving');
    await until(async () => {
      const both = await Promise.all([1, 2].map(() => school.admin.send('GET', `${path}?to_date=2026-01-02`)));
      return both.every(({ status }) => status === 200) || undefined;
    });
  });

  test('a client that reads nothing for a minute is disconnected, and its slot is free', async () => {
    // The timeouts begin when the test says so: half a second instead of a minute.
    const timeouts: { milliseconds: number; socket: Socket | null }[] = [];
    const spy = jest.spyOn(ServerResponse.prototype, 'setTimeout').mockImplementation(function (
      this: ServerResponse,
      milliseconds,
      callback,
    ) {
      if (callback) this.once('timeout', callback);
      timeouts.push({ milliseconds, socket: this.socket });
      return this;
    });
    const held = [await hold(school.admin), await hold(school.admin)];
    const begun = [...timeouts];
    try {
      await school.admin.get(path, 429);
      expect(begun.map(({ milliseconds }) => milliseconds)).toEqual([60_000, 60_000]);
      for (const { socket } of begun) socket?.setTimeout(500);
      await until(
        async () => (await school.admin.send('GET', `${path}?to_date=2026-01-02`)).status === 200 || undefined,
      );
    } finally {
      for (const { leave } of held) leave();
      spy.mockRestore();
    }
  });

  test('HEAD reads the first page only', async () => {
    const headers = { 'X-Request-Id': 'head' };
    const answer = await school.admin.send<Buffer>('HEAD', path, { headers }, 200);
    expect(answer.headers.get('content-disposition')).toMatch(/payments/);
    const read = () => pages.filter((id) => id === 'head').length;
    await until(() => read() > 0 || undefined);
    await pause(300);
    expect(read()).toBe(1);
  });
});
