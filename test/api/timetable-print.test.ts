import { beforeAll, describe, expect, test } from '@jest/globals';
import { extractText, getDocumentProxy } from 'unpdf';
import type { Client } from '../support/client/client.ts';
import { malformedPictures, jpeg, palettePng } from '../support/fixtures/pictures.ts';
import { type PdfElement, pdfStructure } from '../support/client/pdf.ts';
import { pixel } from '../support/server/registry.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { type Planned, planned } from '../support/fixtures/planned-school.ts';
import { until } from '../support/client/until.ts';

const { service } = await serviceWithSchool({}, 9);

let one: Planned;
beforeAll(async () => {
  one = await planned(service, { name: 'Green Valley' });
});

const path = '/api/timetable/print';
const fetchPdf = async (query: string, client: Pick<Client, 'get'> = one.school.admin) =>
  client.get<Buffer>(`${path}?${query}`);

/** The text of all pages without line breaks. */
async function textOf(pdf: Buffer): Promise<{ pages: number; text: string }> {
  const { totalPages, text } = await extractText(await getDocumentProxy(new Uint8Array(pdf)), { mergePages: true });
  return { pages: totalPages, text: text.replace(/\s+/g, ' ') };
}
const print = async (query: string, client?: Pick<Client, 'get'>) => textOf((await fetchPdf(query, client)).data);

describe('a printed timetable', () => {
  test('for a class shows the school, the year, the days, the periods with lunch and breaks, and each lesson with teacher and room', async () => {
    await one.school.admin.post('/api/school-setup/school-info', { address: '1 Valley Road', phone: '+44 20 1234' });
    await one.sql("update @timetable_config set break_after = '{1}', break_duration = 20");
    const { pages, text } = await print(`class_id=${one.classId}`);
    expect(pages).toBe(1);
    for (const part of [
      'Green Valley',
      '1 Valley Road · +44 20 1234',
      '5 A',
      'Class timetable · 2030/2031',
      'Monday',
      'Friday',
      'Mathematics',
      'Tess Teacher',
      'R5',
      'Otto Other',
      'Studio',
    ])
      expect(text).toContain(part);
    for (const part of ['1 08:00–08:45', '08:45–09:05 Break', '2 09:05–09:50', '09:50–10:35 Lunch', '5 11:20–12:05'])
      expect(text).toContain(part);
    expect(text.match(/Mathematics/g)).toHaveLength(2);
    expect(text).not.toContain('Saturday');
    await one.sql("update @timetable_config set break_after = '{}'");
  });

  test('is a table for screen readers, whose rows and columns have headers', async () => {
    const found = await pdfStructure((await fetchPdf(`class_id=${one.classId}`)).data);
    expect(found).toMatchObject({
      ...{ title: 'Timetable 5 A', language: 'en-GB', isTagged: true, showsTitle: true, uaPart: '1', untagged: [] },
    });
    const [, rows = []] = found.pages[0]?.find(([tag]) => tag === 'Table') ?? [];
    const [titles, first, ...others] = (rows as [string, PdfElement[]][]).map(([, cells]) => cells);
    expect(titles).toEqual([
      ['TD', ''],
      ...['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday'].map((day) => ['TH', day]),
    ]);
    expect(first).toEqual([
      ['TH', '1 08:00–08:45'],
      ['TD', 'Mathematics Tess Teacher R5'],
      ['TD', ''],
      ['TD', 'Art Otto Other R5'],
      ['TD', ''],
      ['TD', ''],
    ]);
    expect(others).toContainEqual([
      ['TH', '09:30–10:15'],
      ['TD', 'Lunch'],
    ]);
  });

  test('for a teacher shows only their lessons, each with the class', async () => {
    const { text } = await print(`teacher_id=${one.other.id}`);
    expect(text).toContain('Otto Other Teacher timetable · 2030/2031');
    expect(text).not.toContain('Mathematics');
    expect(text.match(/Art 5 A (R5|Studio)/g)).toEqual(
      ['Art 5 A R5', 'Art 5 A Studio'].sort((a, b) => text.indexOf(a) - text.indexOf(b)),
    );
  });

  test('is an inline PDF with the name of the class or teacher, whose ETag changes only with the content', async () => {
    const { data, headers } = await fetchPdf(`class_id=${one.classId}`);
    expect(data.subarray(0, 5).toString()).toBe('%PDF-');
    expect(headers.get('content-type')).toBe('application/pdf');
    expect(headers.get('content-disposition')).toBe(
      `inline; filename=timetable_5_A.pdf; filename*=UTF-8''timetable%205%20A.pdf`,
    );
    const etag = headers.get('etag') ?? '';
    const again = await one.school.admin.send('GET', `${path}?class_id=${one.classId}`, {
      headers: { 'if-none-match': etag },
    });
    expect(again.status).toBe(304);
    await one.sql("update @subject set name = 'Fine art' where id = $1", [one.art]);
    const changed = await one.school.admin.send(
      'GET',
      `${path}?class_id=${one.classId}`,
      { headers: { 'if-none-match': etag } },
      200,
    );
    expect(changed.headers.get('etag')).not.toBe(etag);
    await one.sql("update @subject set name = 'Art' where id = $1", [one.art]);
  });

  test('without lessons is an empty grid with a note', async () => {
    const classId = await one.insert('class', { name: 'Empty', grade_id: one.gradeId, academic_year_id: one.yearId });
    const { pages, text } = await print(`class_id=${classId}`);
    expect(pages).toBe(1);
    expect(text).toContain('Class timetable · 2030/2031 · no lessons yet');
    expect(text).toContain('Monday');
  });

  test('prints Latin with diacritics, Vietnamese, Cyrillic and Greek, and replaces unsupported characters by a box', async () => {
    const names = ['Łukasz Çağla Øyvind', 'Nguyễn Thị Ứng', 'Їжак Жұқаң', 'Παπαδόπουλος Ωάέΐ'];
    for (const name of names) {
      await one.sql('update @subject set name = $1 where id = $2', [name, one.maths]);
      const { text } = await print(`class_id=${one.classId}`);
      expect(text.normalize('NFC')).toContain(name);
      expect(text).not.toContain('□');
    }
    await one.sql("update @subject set name = '学校 हिन्दी Kanji' where id = $1", [one.maths]);
    const { text } = await print(`class_id=${one.classId}`);
    expect(text).toContain('□□ □□□□□□ Kanji');
    expect(text).toContain('□ replaces a character that cannot be printed.');
    await one.sql("update @subject set name = 'Mathematics' where id = $1", [one.maths]);
  });

  test('with 7 days and 12 periods fits on one page, with the longest names truncated', async () => {
    const full = await planned(service);
    await full.sql('delete from @timetable_slot');
    await full.sql(
      "update @timetable_config set working_days = '{1,2,3,4,5,6,7}', total_periods = 12, lunch_start_period = 6, break_after = '{2,4,8,10}'",
    );
    await full.sql("update @subject set name = rpad('Rindfleischetikettierung', 100, 'überwachung und ')");
    await full.sql(
      "update @teacher set first_name = rpad('Maximiliane', 100, 'maria'), last_name = rpad('von', 100, ' und zu')",
    );
    await full.sql("update @class set name = rpad('Klasse', 100, 'n '), room = rpad('Raum', 200, 'x')");
    await full.sql(
      `insert into @timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period)
       select $1, $2, $3, $4, day, period from generate_series(1, 7) day, generate_series(1, 12) period where period <> 6`,
      [full.classId, full.yearId, full.maths, full.teacher.id],
    );
    for (const query of [`class_id=${full.classId}`, `teacher_id=${full.teacher.id}`]) {
      const { pages, text } = await print(query, full.school.admin);
      expect(pages).toBe(1);
      expect(text.match(/Rindfleisch/g)).toHaveLength(77);
      expect(text).toContain('…');
    }
  });

  test('with 168 lessons and names of 100 letters without spaces is printed within the time limit', async () => {
    const full = await planned(service);
    await full.sql('delete from @timetable_slot');
    await full.sql(
      "update @timetable_config set working_days = '{1,2,3,4,5,6,7}', total_periods = 24, lunch_start_period = null, period_duration = 20",
    );
    await full.sql(
      `with subject as (insert into @subject (name, code) select substr(repeat(md5(n::text), 4), 1, 100), 'C' || n from generate_series(1, 168) n returning id)
       insert into @timetable_slot (class_id, academic_year_id, subject_id, day_of_week, period, room)
       select $1, $2, id, 1 + (n - 1) % 7, 1 + (n - 1) / 7, substr(repeat(md5(n || 'r'), 4), 1, 50) from (select id, row_number() over () as n from subject) s`,
      [full.classId, full.yearId],
    );
    expect((await print(`class_id=${full.classId}`, full.school.admin)).text).toContain('…');
  });

  test('shows slots of a former longer day, with their times limited to midnight', async () => {
    const late = await planned(service);
    await late.sql("update @timetable_config set start_time = '22:00', total_periods = 2, lunch_start_period = null");
    const { text: after } = await print(`class_id=${late.classId}`, late.school.admin);
    expect(after).toMatch(/1 22:00–22:45 Mathematics.* 2 22:45–23:30 Mathematics.* 4 23:59–23:59 Art/);
  });

  test('shows slots of a former longer day after the periods of the present day', async () => {
    const long = await planned(service);
    await long.sql('update @timetable_config set total_periods = 3, lunch_start_period = null');
    const { text } = await print(`class_id=${long.classId}`, long.school.admin);
    expect(text).toMatch(/4 10:15–11:00 Art/);
    expect(text).not.toContain('11:45');
  });

  test('contains the logo of the school, as PNG or JPEG', async () => {
    const school = await planned(service);
    const images = async () =>
      (
        (await fetchPdf(`class_id=${school.classId}`, school.school.admin)).data
          .toString('latin1')
          .match(/\/Subtype \/Image/g) ?? []
      ).length;
    expect(await images()).toBe(0);
    const form = new FormData();
    form.append('logo', new Blob([pixel], { type: 'image/png' }), 'logo.png');
    await school.school.admin.send('POST', '/api/school-setup/school-info', { body: form }, 200);
    expect(await images()).toBeGreaterThan(0);
    for (const [picture, type] of [
      [jpeg, 'image/jpeg'],
      [palettePng, 'image/png'],
    ] as const) {
      await school.sql('update @file set content = $1, content_type = $2', [picture, type]);
      expect(await images()).toBeGreaterThan(0);
    }
  });

  test('omits a logo that is damaged, of an unsupported type, or too large when unpacked', async () => {
    const school = await planned(service);
    const id = await school.insert('file', { content: Buffer.from('none'), content_type: 'image/png' });
    await school.sql(
      'insert into @school (logo_id) values ($1) on conflict (id) do update set logo_id = excluded.logo_id',
      [id],
    );
    for (const [content, type] of [
      [Buffer.from('not a picture'), 'image/png'],
      [pixel.subarray(0, 40), 'image/png'],
      ...Object.values(malformedPictures).map(
        (picture) => [picture, picture[0] === 0xff ? 'image/jpeg' : 'image/png'] as const,
      ),
      [Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 1, 2]), 'image/jpeg'],
      [Buffer.from('RIFF1234WEBP'), 'image/webp'],
    ] as const) {
      await school.sql('update @file set content = $1, content_type = $2 where id = $3', [content, type, id]);
      expect((await print(`class_id=${school.classId}`, school.school.admin)).text).toContain('5 A');
    }
  });
});

describe('printing', () => {
  test('uses the academic year of the class, and for a teacher the requested or current one', async () => {
    const past = await one.insert('academic_year', {
      name: '2001/2002',
      start_date: '2001-08-01',
      end_date: '2002-07-31',
    });
    const then = await one.insert('class', { name: 'Then', grade_id: one.gradeId, academic_year_id: past });
    await one.insert('timetable_slot', {
      class_id: then,
      academic_year_id: past,
      subject_id: one.art,
      teacher_id: one.teacher.id,
      day_of_week: 2,
      period: 1,
    });
    expect((await print(`class_id=${then}`)).text).toContain('2001/2002');
    expect((await print(`teacher_id=${one.teacher.id}&academic_year_id=${past}`)).text).toContain('Art Then');
    expect((await print(`teacher_id=${one.teacher.id}`)).text).not.toContain('Then');
    expect((await one.school.admin.get(`${path}?class_id=${then}&academic_year_id=${one.yearId}`, 404)).error).toBe(
      'not_found',
    );
    await one.school.admin.get(`${path}?teacher_id=${one.teacher.id}&academic_year_id=999999`, 404);
  });

  test('requires either a class or a teacher', async () => {
    for (const query of ['', 'class_id=1&teacher_id=1', 'academic_year_id=1'])
      expect((await one.school.admin.get(`${path}?${query}`, 400)).details).toMatchObject([{ path: 'class_id' }]);
  });

  test('is allowed only for a class or teacher that the user may see', async () => {
    const far = await one.insert('class', { name: 'Far', grade_id: one.gradeId, academic_year_id: one.yearId });
    for (const client of [one.student.client, one.teacher.client]) {
      expect((await print(`class_id=${one.classId}`, client)).text).toContain('Tess Teacher');
      await client.get(`${path}?class_id=${far}`, 404);
      await client.get(`${path}?teacher_id=${one.other.id}`, 404);
    }
    expect((await print(`teacher_id=${one.teacher.id}`, one.teacher.client)).text).toContain('Mathematics');
    await (await one.school.user(['accountant'])).get(`${path}?class_id=${one.classId}`, 404);
    await one.school.admin.get(`${path}?class_id=999999`, 404);
  });

  test('more than three documents at once is refused with a 429, without affecting other users and schools', async () => {
    const query = `${path}?class_id=${one.classId}`;
    const flood = Array.from({ length: 12 }, () => one.student.client.send<Buffer>('GET', query));
    const elsewhere = await planned(service);
    const [others, answers] = await Promise.all([
      Promise.all(
        [one.teacher.client, elsewhere.school.admin].map((client, n) =>
          client.send('GET', n === 0 ? query : `${path}?class_id=${elsewhere.classId}`),
        ),
      ),
      Promise.all(flood),
    ]);
    expect(others.map(({ status }) => status)).toEqual([200, 200]);
    for (const { status, data, error, headers } of answers) {
      if (status === 200) expect(data.subarray(0, 5).toString()).toBe('%PDF-');
      else expect([status, error, Number(headers.get('retry-after')) > 0]).toEqual([429, 'rate_limited', true]);
    }
    expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(3);
    expect(answers.some(({ status }) => status === 429)).toBe(true);
  });

  test('stops when the client disconnects, and frees its slot', async () => {
    const query = `${path}?class_id=${one.classId}`;
    for (let n = 0; n < 4; n++) {
      const gone = new AbortController();
      const left = [1, 2, 3].map(() =>
        fetch(service.url + query, {
          headers: { Authorization: `Bearer ${one.student.client.token}` },
          signal: gone.signal,
        }).catch(() => undefined),
      );
      setTimeout(() => gone.abort(), 50);
      await Promise.all(left);
    }
    await until(async () => ((await one.student.client.send('GET', query)).status === 200 ? true : undefined));
  });

  test('is skipped for HEAD, which answers the headers of the file', async () => {
    const { status, headers, data } = await one.school.admin.send<Buffer>('HEAD', `${path}?class_id=${one.classId}`);
    expect([
      status,
      headers.get('content-type'),
      headers.has('etag'),
      headers.has('content-length'),
      data.length,
    ]).toEqual([200, 'application/pdf', true, false, 0]);
  });
});
