import { parse } from 'content-disposition';
import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { compoundFile, officeFile, openDocumentFile, pdfOf, zip } from '../support/fixtures/documents.ts';
import { ids, inOrder, plain, walk } from '../support/client/pages.ts';
import { jpeg, png } from '../support/fixtures/pictures.ts';
import { multipart } from '../support/server/registry.ts';
import { type School, serviceWithSchool, testPassword } from '../support/server/service.ts';
import { send } from '../support/client/wire.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { StudentDocument as StudentDocumentSchema } from '../../src/endpoints/students.ts';

const { service, school } = await serviceWithSchool();
let student: number;

beforeAll(async () => {
  student = await addStudent();
});

type Document = OutputOf<typeof StudentDocumentSchema>;

const addStudent = async (fields: Record<string, unknown> = {}, at = school) =>
  (await at.admin.post<{ id: number }>('/api/students', { first_name: 'Dora', last_name: 'Document', ...fields }, 201))
    .data.id;

const pathOf = (of: number) => `/api/students/${of}/documents`;
const pdf = pdfOf('a page');

function form(content: Buffer, name: string, fields: Record<string, string> = {}, field = 'file'): FormData {
  const data = new FormData();
  for (const [key, value] of Object.entries(fields)) data.append(key, value);
  data.append(field, new Blob([new Uint8Array(content)]), name);
  return data;
}

interface Upload {
  content?: Buffer;
  name?: string;
  fields?: Record<string, string>;
  of?: number;
  client?: Client;
  headers?: Record<string, string>;
}

const upload = <T = Document>(
  { content = pdf, name = 'page.pdf', fields = {}, of = student, client = school.admin, headers = {} }: Upload,
  status: number,
) => client.send<T>('POST', pathOf(of), { body: form(content, name, fields), headers }, status);

const add = async (given: Upload = {}) => (await upload(given, 201)).data;

const list = async (of: number, query = '', client = school.admin) =>
  (await client.get<Document[]>(`${pathOf(of)}?pageSize=100${query}`)).data;

/** The number of rows in the tables student_document and file. */
async function countRows(at = school): Promise<{ documents: number; files: number }> {
  const [found] = await service.database.query<{ documents: number; files: number }>(
    `select (select count(*)::integer from ${at.schema}.student_document) as documents, (select count(*)::integer from ${at.schema}.file) as files`,
  );
  return found ?? { documents: -1, files: -1 };
}

/** Two of the document types that every new school has. */
const types = async () =>
  service.database.query<{ id: number; name: string }>(
    `select id::integer, name from ${school.schema}.document_type where sequence is not null order by id limit 2`,
  );

describe('a document', () => {
  test('is returned as it was uploaded, by id and in the list, and so is its file', async () => {
    const [type] = await types();
    const of = await addStudent();
    const { data, headers } = await upload(
      {
        of,
        name: 'Zeugnis März.pdf',
        fields: { document_type_id: String(type?.id), description: '  First half year  ' },
      },
      201,
    );
    const admin = (await school.admin.get<{ id: number; first_name: string; last_name: string }>('/api/auth/profile'))
      .data;
    expect(data).toEqual({
      id: data.id,
      student_id: of,
      document_type_id: type?.id,
      document_type_name: 'Birth certificate',
      description: 'First half year',
      name: 'Zeugnis März.pdf',
      content_type: 'application/pdf',
      size: pdf.length,
      uploaded_by: admin.id,
      uploaded_by_name: `${admin.first_name} ${admin.last_name}`,
      created_at: data.created_at,
      updated_at: data.created_at,
    });
    expect(headers.get('location')).toBe(`${pathOf(of)}/${data.id}`);
    expect((await school.admin.get<Document>(headers.get('location') ?? '')).data).toEqual(data);
    expect(await list(of)).toEqual([data]);
    const file = await school.admin.get<Buffer>(`${pathOf(of)}/${data.id}/file`);
    expect(file.data.equals(pdf)).toBe(true);
    expect(file.headers.get('content-type')).toBe('application/pdf');
    expect(file.headers.get('content-length')).toBe(String(pdf.length));
    expect(file.headers.get('x-content-type-options')).toBe('nosniff');
    expect(file.headers.get('content-security-policy')).toBe("default-src 'none'; sandbox");
    expect(file.headers.get('content-disposition')).toBe(
      `inline; filename=Zeugnis_M_rz.pdf; filename*=UTF-8''Zeugnis%20M%C3%A4rz.pdf`,
    );
  });

  test('requires neither type nor description, and treats empty form fields as missing', async () => {
    for (const fields of [{}, { document_type_id: '', description: '' }]) {
      expect(await add({ fields })).toMatchObject({
        document_type_id: null,
        document_type_name: null,
        description: null,
      });
    }
  });

  test('is deleted together with its file', async () => {
    const before = await countRows();
    const { id } = await add();
    expect(await countRows()).toEqual({ documents: before.documents + 1, files: before.files + 1 });
    expect((await school.admin.delete<{ id: number }>(`${pathOf(student)}/${id}`)).data).toEqual({ id });
    expect(await countRows()).toEqual(before);
    for (const path of [`${pathOf(student)}/${id}`, `${pathOf(student)}/${id}/file`]) {
      expect((await school.admin.get(path, 404)).error).toBe('not_found');
    }
    await school.admin.delete(`${pathOf(student)}/${id}`, 404);
  });

  test('deleted by two concurrent requests is a 200 for one and a 404 for the other', async () => {
    const { id } = await add();
    const answers = await Promise.all([1, 2].map(() => school.admin.send('DELETE', `${pathOf(student)}/${id}`)));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 404]);
  });

  test('is deleted only if If-Match names its current version', async () => {
    const { data, headers } = await upload({}, 201);
    const path = `${pathOf(student)}/${data.id}`;
    const etag = headers.get('etag') ?? '';
    await school.admin.send('DELETE', path, { headers: { 'If-Match': '"0123456789abcdef0123456789abcdef.0"' } }, 412);
    await school.admin.send('DELETE', path, { headers: { 'If-Match': etag } }, 200);
  });

  test('is created once for repeated requests with one Idempotency-Key', async () => {
    const of = await addStudent();
    const once = (content: Buffer, status: number) =>
      upload({ of, content, headers: { 'Idempotency-Key': 'doc-1' } }, status);
    const [one, two] = await Promise.all([once(pdf, 201), once(pdf, 201)]);
    expect(one.data).toEqual(two.data);
    expect(await list(of)).toEqual([one.data]);
    expect((await once(pdfOf('another page'), 422)).error).toBe('idempotency_key_reused');
    expect(await list(of)).toEqual([one.data]);
  });

  test("that belongs to another student is a 404 under this student's URL, and is not deleted", async () => {
    const other = await addStudent();
    const { id } = await add();
    for (const path of [`${pathOf(other)}/${id}`, `${pathOf(other)}/${id}/file`]) await school.admin.get(path, 404);
    await school.admin.delete(`${pathOf(other)}/${id}`, 404);
    expect((await school.admin.get<Document>(`${pathOf(student)}/${id}`)).data.id).toBe(id);
  });

  test('is a 404 for every request if the student is unknown or deleted, and no file is stored', async () => {
    const gone = await addStudent();
    const { id } = await add({ of: gone });
    await school.admin.delete(`/api/students/${gone}`);
    const before = await countRows();
    for (const nobody of [gone, 999_999]) {
      for (const path of [pathOf(nobody), `${pathOf(nobody)}/${id}`, `${pathOf(nobody)}/${id}/file`])
        await school.admin.get(path, 404);
      await school.admin.delete(`${pathOf(nobody)}/${id}`, 404);
      expect((await upload<unknown>({ of: nobody }, 404)).error).toBe('not_found');
    }
    expect(await countRows()).toEqual(before);
  });

  test('prevents the deletion of its document type', async () => {
    const [type] = await service.database.query<{ id: number }>(
      `insert into ${school.schema}.document_type (name) values ('Referred to') returning id::integer`,
    );
    await add({ fields: { document_type_id: String(type?.id) } });
    await expect(
      service.database.query(`delete from ${school.schema}.document_type where id = $1`, [type?.id]),
    ).rejects.toThrow('violates');
  });
});

const office = 'application/vnd.openxmlformats-officedocument';
const openDocument = 'application/vnd.oasis.opendocument';
const webp = Buffer.concat([Buffer.from('RIFF\x1a\0\0\0WEBPVP8L', 'latin1'), Buffer.alloc(14)]);

describe('an uploaded file', () => {
  test.each<[string, Buffer, string, 'inline' | 'attachment']>([
    ['a.pdf', pdf, 'application/pdf', 'inline'],
    ['a.jpg', jpeg, 'image/jpeg', 'inline'],
    ['a.jpeg', jpeg, 'image/jpeg', 'inline'],
    ['a.png', png, 'image/png', 'inline'],
    ['a.webp', webp, 'image/webp', 'inline'],
    [
      'a.docx',
      officeFile(`${office}.wordprocessingml.document`, 'word/document.xml'),
      `${office}.wordprocessingml.document`,
      'attachment',
    ],
    [
      'a.xlsx',
      officeFile(`${office}.spreadsheetml.sheet`, 'xl/workbook.xml'),
      `${office}.spreadsheetml.sheet`,
      'attachment',
    ],
    [
      'a.pptx',
      officeFile(`${office}.presentationml.presentation`, 'ppt/presentation.xml'),
      `${office}.presentationml.presentation`,
      'attachment',
    ],
    ['a.odt', openDocumentFile(`${openDocument}.text`), `${openDocument}.text`, 'attachment'],
    ['a.ods', openDocumentFile(`${openDocument}.spreadsheet`), `${openDocument}.spreadsheet`, 'attachment'],
    ['a.odp', openDocumentFile(`${openDocument}.presentation`), `${openDocument}.presentation`, 'attachment'],
    ['a.doc', compoundFile, 'application/x-cfb', 'attachment'],
    ['a.xls', compoundFile, 'application/x-cfb', 'attachment'],
    ['A.PPT', compoundFile, 'application/x-cfb', 'attachment'],
  ])('%s is accepted, and its file has the detected content type', async (name, content, content_type, kind) => {
    const created = await add({ name, content });
    expect(created).toMatchObject({ name, content_type, size: content.length });
    const file = await school.admin.get<Buffer>(`${pathOf(student)}/${created.id}/file`);
    expect(file.data.equals(content)).toBe(true);
    expect(file.headers.get('content-type')).toBe(content_type);
    expect(file.headers.get('content-disposition')).toBe(`${kind}; filename=${name}`);
  });

  test.each<[string, string, Buffer]>([
    ['HTML named .pdf', 'invoice.pdf', Buffer.from('<!doctype html><script>alert(1)</script>')],
    ['HTML with a PDF inside', 'invoice.pdf', Buffer.concat([Buffer.from('<html>'), pdf])],
    ['SVG', 'picture.svg', Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>')],
    [
      'SVG named .png',
      'picture.png',
      Buffer.from('<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script/></svg>'),
    ],
    ['XML', 'a.docx', Buffer.from('<?xml version="1.0"?><?mso-application progid="Word.Document"?><w:wordDocument/>')],
    ['a zip of other files', 'a.docx', zip({ 'word.txt': 'no document' })],
    ['an empty zip', 'a.docx', zip({})],
    ['a Java archive', 'a.docx', zip({ 'META-INF/MANIFEST.MF': 'Main-Class: Evil' })],
    [
      'a document with macros',
      'a.docx',
      officeFile('application/vnd.ms-word.document.macroEnabled', 'word/document.xml'),
    ],
    ['an archive that unpacks to 50 MB', 'a.docx', zip({ '[Content_Types].xml': Buffer.alloc(50_000_000) })],
    ['a program', 'a.pdf', Buffer.concat([Buffer.from('MZ'), Buffer.alloc(200)])],
    ['a GIF', 'a.gif', Buffer.from('GIF89a')],
    ['text', 'a.txt', Buffer.from('plain')],
    ['CSV', 'a.csv', Buffer.from('a,b\n1,2\n')],
    ['no content', 'a.pdf', Buffer.alloc(0)],
  ])('%s is a 415, and nothing is stored', async (_case, name, content) => {
    const before = await countRows();
    expect((await upload<unknown>({ name, content }, 415)).error).toBe('unsupported_media_type');
    expect(await countRows()).toEqual(before);
  });

  test('may have 10 MB; one more byte is a 413 that stores nothing', async () => {
    const largest = pdfOf(Buffer.alloc(10 * 1024 * 1024 - 9));
    const created = await add({ content: largest });
    expect(created.size).toBe(10 * 1024 * 1024);
    expect((await school.admin.get<Buffer>(`${pathOf(student)}/${created.id}/file`)).data.equals(largest)).toBe(true);
    const before = await countRows();
    expect((await upload<unknown>({ content: Buffer.concat([largest, Buffer.alloc(1)]) }, 413)).error).toBe(
      'payload_too_large',
    );
    expect(await countRows()).toEqual(before);
  });

  test('with an unknown document type is a 422 that stores no file; a malformed one is a 400', async () => {
    const before = await countRows();
    const unknown = await upload<unknown>({ fields: { document_type_id: '999999' } }, 422);
    expect(unknown).toMatchObject({ error: 'invalid_reference', details: [{ path: 'document_type_id' }] });
    for (const document_type_id of ['one', '0', '-1', '1.5', '1e3']) {
      expect((await upload<unknown>({ fields: { document_type_id } }, 400)).details).toMatchObject([
        { path: 'document_type_id' },
      ]);
    }
    expect(await countRows()).toEqual(before);
  });

  test('with an invalid, unknown or read-only field is a 400 that names the field', async () => {
    const before = await countRows();
    for (const [path, value] of Object.entries({
      description: 'x'.repeat(501),
      color: 'red',
      uploaded_by: '1',
      file_id: '1',
      __proto__x: '1',
    })) {
      expect((await upload<unknown>({ fields: { [path]: value } }, 400)).details).toMatchObject([{ path }]);
    }
    expect(await countRows()).toEqual(before);
  });

  test('must be exactly one, in the field `file`, else it is a 400; JSON is a 415', async () => {
    const before = await countRows();
    const post = (body: unknown, status: number) => school.admin.send('POST', pathOf(student), { body }, status);
    const none = new FormData();
    none.append('description', 'none');
    expect((await post(none, 400)).details).toMatchObject([{ path: 'file' }]);
    expect((await post(form(pdf, 'a.pdf', {}, 'document'), 400)).details).toMatchObject([{ path: 'file' }]);
    const two = form(pdf, 'a.pdf');
    two.append('file', new Blob([new Uint8Array(pdf)]), 'b.pdf');
    expect((await post(two, 400)).error).toBe('validation_error');
    expect((await post({ description: 'json' }, 415)).error).toBe('unsupported_media_type');
    expect(await countRows()).toEqual(before);
  });
});

describe('a file name', () => {
  /** Uploads a file with a raw `filename` parameter, as a malicious client could send it. */
  async function uploadWithFilename(
    parameter: string,
    content = pdf,
  ): Promise<{ name: string; disposition: string; headers: Record<string, unknown> }> {
    const { body, headers } = multipart('file', content, 'NAME');
    const sent = Buffer.from(
      body.toString('latin1').replace('filename="NAME"', Buffer.from(parameter).toString('latin1')),
      'latin1',
    );
    const created = await send(service.url, {
      method: 'POST',
      path: pathOf(student),
      token: school.admin.token,
      headers,
      body: sent,
    });
    expect([created.status, created.text]).toEqual([201, expect.anything()]);
    const { id, name } = created.json?.data as Document;
    const file = await send(service.url, { path: `${pathOf(student)}/${id}/file`, token: school.admin.token });
    expect(file.status).toBe(200);
    return { name, disposition: file.headers['content-disposition'] ?? '', headers: file.headers };
  }

  test.each<[string, string, string]>([
    ['with emoji of several parts', 'filename="👩\u200d👧 ❤\ufe0f.pdf"', '👩\u200d👧 ❤\ufe0f.pdf'],
    ['with a Persian joiner', 'filename="علی\u200cرضا.pdf"', 'علی\u200cرضا.pdf'],
    ['with a hidden direction', 'filename="a\u202efdp.pdf"', 'afdp.pdf'],
    ['with a Windows folder', 'filename="C:\\\\Users\\\\me\\\\a.pdf"', 'a.pdf'],
    ['with parent folders', 'filename="../../etc/cron.d/a.pdf"', 'a.pdf'],
    ['with quotes', 'filename="a\\"; filename=\\"b.exe.pdf"', 'a"; filename="b.exe.pdf'],
    ['in any script', 'filename="名前 é.pdf"', '名前 é.pdf'],
    ['in Latin-1', Buffer.from('filename="e\xe9.pdf"', 'latin1').toString('latin1'), 'eé.pdf'],
    ['in the extended form', "filename*=UTF-8''%E5%90%8D%E5%89%8D.pdf", '名前.pdf'],
    ['with a right-to-left override', 'filename="invoice\u202efdp.exe.pdf"', 'invoicefdp.exe.pdf'],
  ])('%s is stored without folders and control characters', async (_case, parameter, kept) => {
    const { name, disposition } = await uploadWithFilename(parameter);
    expect(name).toBe(kept);
    expect(disposition).toMatch(/^inline; filename=[\w.-]+(; filename\*=UTF-8''[\w.%!~-]+)?$/);
    expect(parse(disposition)).toMatchObject({ type: 'inline', parameters: { filename: kept } });
  });

  test.each<[string, string]>([
    ['invoice.html', 'invoice.html.pdf'],
    ['invoice.pdf.html', 'invoice.pdf.html.pdf'],
    ['invoice.pdf.', 'invoice.pdf..pdf'],
    ['invoice.pdf ', 'invoice.pdf .pdf'],
    ['invoice.pdf;.html', 'invoice.pdf;.html.pdf'],
    ['invoice.PDF', 'invoice.PDF'],
    ['invoice', 'invoice.pdf'],
    ['pdf', 'pdf.pdf'],
    ['.htaccess', '.htaccess.pdf'],
    ['setup.exe', 'setup.exe.pdf'],
  ])('%s gets the extension of its content type: %s', async (sent, kept) => {
    expect((await uploadWithFilename(`filename="${sent}"`, pdfOf('<script>alert(1)</script>'))).name).toBe(kept);
  });

  test('gets the extension .doc for an installer, which is a compound file too', async () => {
    const created = await add({ name: 'setup.msi', content: compoundFile });
    expect(created.name).toBe('setup.msi.doc');
  });

  test('cannot inject headers into the response with line breaks or percent escapes', async () => {
    for (const parameter of [
      "filename*=UTF-8''a%0D%0ASet-Cookie%3A%20x%3D1%0D%0A%0D%0A%3Cscript%3E.pdf",
      'filename="a%0d%0aSet-Cookie: x=1.pdf"',
      'filename="a\tb.pdf"',
    ]) {
      const { name, headers } = await uploadWithFilename(parameter);
      expect(name).not.toMatch(/[\0-\x1f]/);
      expect(headers['set-cookie']).toBeUndefined();
      expect(headers['content-type']).toBe('application/pdf');
    }
  });

  test('with characters that a header cannot have, or of only dots, is a 400 that stores nothing', async () => {
    const before = await countRows();
    for (const parameter of ['filename="a\0b.pdf"', 'filename="a\rb.pdf"', 'filename=".."', 'filename=""']) {
      const { body, headers } = multipart('file', pdf, 'NAME');
      const sent = Buffer.from(body.toString('latin1').replace('filename="NAME"', parameter), 'latin1');
      const answer = await send(service.url, {
        method: 'POST',
        path: pathOf(student),
        token: school.admin.token,
        headers,
        body: sent,
      });
      expect([parameter, answer.status, answer.json?.error]).toEqual([parameter, 400, 'validation_error']);
    }
    expect(await countRows()).toEqual(before);
  });

  test('is truncated to 200 characters, keeping the extension and splitting no surrogate pair', async () => {
    const { name } = await uploadWithFilename(`filename="${'👍'.repeat(300)}.pdf"`);
    expect(name).toHaveLength(200);
    expect(name.isWellFormed()).toBe(true);
    expect(name.endsWith('👍.pdf')).toBe(true);
  });
});

describe('the list', () => {
  let of: number;
  let everything: Document[];
  let type: number;

  beforeAll(async () => {
    of = await addStudent();
    const [one, two] = await types();
    type = one?.id ?? 0;
    for (let n = 0; n < 13; n++) {
      await add({
        of,
        name: `${['Zebra', 'émile', 'Emil', 'apple'][n % 4] ?? ''} ${n % 3}.pdf`,
        fields: {
          document_type_id: n % 3 === 0 ? String(type) : n % 3 === 1 ? String(two?.id) : '',
          description: n === 5 ? 'Überweisung 100%' : '',
        },
      });
    }
    await add({ name: 'of somebody else.pdf' });
    // Only three distinct timestamps, so that sorting by created_at has ties.
    await service.database.query(
      `update ${school.schema}.student_document set created_at = timestamptz '2026-01-01Z' + (id % 3) * interval '1 day' where student_id = $1`,
      [of],
    );
    everything = await walk<Document>(school.admin, pathOf(of), 100);
  });

  const keys: Record<string, (document: Document) => string[]> = {
    created_at: ({ created_at }) => [created_at],
    name: ({ name }) => [plain(name)],
  };

  test('contains only the documents of this student, latest first by default', async () => {
    expect(everything).toHaveLength(13);
    expect(new Set(everything.map(({ student_id }) => student_id))).toEqual(new Set([of]));
    expect(ids(everything)).toEqual(ids(inOrder(everything, ({ created_at }) => [created_at], 'desc')));
    const { pagination } = await school.admin.get<Document[]>(`${pathOf(of)}?pageSize=5&page=3`);
    expect(pagination).toEqual({ page: 3, pageSize: 5, totalItems: 13, totalPages: 3 });
  });

  test.each(Object.keys(keys).flatMap((sort) => (['asc', 'desc'] as const).map((order) => [sort, order] as const)))(
    'contains each document on exactly one page when sorted by %s %s, with ties sorted by id',
    async (sort, order) => {
      const walked = await walk<Document>(school.admin, `${pathOf(of)}?sort=${sort}&order=${order}`, 4);
      expect(ids(walked)).toEqual(ids(inOrder(everything, keys[sort] ?? (() => []), order)));
    },
  );

  test('filters by document_type_id', async () => {
    const fitting = everything.filter((document) => document.document_type_id === type);
    expect(fitting).toHaveLength(5);
    expect(ids(await list(of, `&document_type_id=${type}`))).toEqual(ids(fitting));
    expect(await list(of, '&document_type_id=999999')).toEqual([]);
  });

  test.each([
    ['name', 'EMIL', (d: Document) => plain(d.name).includes('emil')],
    ['name, typed with accents that it does not have', 'ápple', (d: Document) => d.name.startsWith('apple')],
    ['description', 'uberweis 100%25', (d: Document) => d.description !== null],
    ['no content', 'xyz', () => false],
  ])('searches the %s', async (_case, search, fits) => {
    expect(ids(await list(of, `&search=${search}`))).toEqual(ids(everything.filter(fits)));
  });

  test.each([
    ['sort=content', 'sort'],
    ['document_type_id=one', 'document_type_id'],
    ['student_id=1', 'student_id'],
  ])('%s is a 400 that names the parameter', async (query, path) => {
    expect((await school.admin.get(`${pathOf(of)}?${query}`, 400)).details).toMatchObject([{ path }]);
  });
});

describe('a range of a file', () => {
  // The value of each byte depends on its position, so a wrong range is noticed.
  const content = pdfOf(Buffer.from(Array.from({ length: 991 }, (_, n) => n % 251)));
  let path: string;
  let etag: string;

  beforeAll(async () => {
    const { id } = await add({ content });
    path = `${pathOf(student)}/${id}/file`;
    etag = (await school.admin.get(path)).headers.get('etag') ?? '';
  });

  const request = (headers: Record<string, string>, method = 'GET') =>
    school.admin.send<Buffer>(method, path, { headers });

  test('is announced by the full response, which has Accept-Ranges and an ETag', async () => {
    const whole = await request({});
    expect(whole.status).toBe(200);
    expect(whole.data.equals(content)).toBe(true);
    expect(whole.headers.get('accept-ranges')).toBe('bytes');
    expect(whole.headers.get('content-length')).toBe('1000');
    expect(whole.headers.get('content-range')).toBeNull();
    expect(etag).toMatch(/^"[0-9a-f]{32}"$/);
  });

  test.each<[string, string, number, number]>([
    ['the first bytes', 'bytes=0-99', 0, 99],
    ['one byte', 'bytes=0-0', 0, 0],
    ['the last byte by position', 'bytes=999-999', 999, 999],
    ['a range in the middle', 'bytes=123-456', 123, 456],
    ['an open end', 'bytes=900-', 900, 999],
    ['the whole file with an open end', 'bytes=0-', 0, 999],
    ['the last bytes', 'bytes=-100', 900, 999],
    ['the last byte', 'bytes=-1', 999, 999],
    ['a suffix longer than the file', 'bytes=-5000', 0, 999],
    ['an end beyond the end of the file', 'bytes=990-5000', 990, 999],
    ['an end beyond every integer type', `bytes=990-${'9'.repeat(40)}`, 990, 999],
    ['a suffix length beyond every number type', `bytes=-${'9'.repeat(400)}`, 0, 999],
    ['leading zeros', 'bytes=0007-0009', 7, 9],
    ['the unit in upper case', 'BYTES=1-2', 1, 2],
  ])('%s (%s) is a 206', async (_case, range, first, last) => {
    const part = await request({ Range: range });
    expect(part.status).toBe(206);
    expect(part.data.equals(content.subarray(first, last + 1))).toBe(true);
    expect(part.headers.get('content-range')).toBe(`bytes ${first}-${last}/1000`);
    expect(part.headers.get('content-length')).toBe(String(last - first + 1));
    expect(part.headers.get('content-type')).toBe('application/pdf');
    expect(part.headers.get('etag')).toBe(etag);
  });

  test.each(['bytes=1000-', 'bytes=1000-1000', 'bytes=5000-6000', `bytes=${'9'.repeat(30)}-`, 'bytes=-0'])(
    '%s is beyond the end: a 416 with the size of the file',
    async (range) => {
      const refused = await request({ Range: range });
      expect([refused.status, refused.error]).toEqual([416, 'range_not_satisfiable']);
      expect(refused.headers.get('content-range')).toBe('bytes */1000');
      expect(refused.headers.get('content-type')).toBe('application/json; charset=utf-8');
      expect(refused.headers.get('etag')).toBeNull();
    },
  );

  test.each([
    'bytes=9-8',
    'bytes=-',
    'bytes=',
    'bytes',
    '',
    'bytes=a-b',
    'bytes=1',
    'bytes=1-2-3',
    'bytes=--1',
    'bytes=-1-',
    'bytes=+1-2',
    'bytes=1.0-2',
    'bytes=0x1-2',
    'bytes =0-1',
    'bytes=0 - 1',
    'bits=0-1',
    'items=0-1',
    '0-1',
    'bytes=0-1,5-6',
    'bytes=0-1, -1',
    'bytes=0-1,',
    'bytes=1000-,0-1',
  ])('%p is malformed, has another unit or several ranges: the full file', async (range) => {
    const whole = await request({ Range: range });
    expect(whole.status).toBe(200);
    expect(whole.data.equals(content)).toBe(true);
    expect(whole.headers.get('content-range')).toBeNull();
  });

  test('with If-Range is returned if the ETag matches, else the full file', async () => {
    const part = await request({ Range: 'bytes=10-19', 'If-Range': etag });
    expect([part.status, part.data.equals(content.subarray(10, 20))]).toEqual([206, true]);
    for (const ifRange of [
      '"0123"',
      `W/${etag}`,
      etag.slice(1, -1),
      '*',
      `${etag}, ${etag}`,
      new Date().toUTCString(),
    ]) {
      const whole = await request({ Range: 'bytes=10-19', 'If-Range': ifRange });
      expect([ifRange, whole.status, whole.data.equals(content)]).toEqual([ifRange, 200, true]);
    }
    expect((await request({ Range: 'bytes=5000-', 'If-Range': etag })).status).toBe(416);
    expect((await request({ Range: 'bytes=5000-', 'If-Range': '"0123"' })).status).toBe(200);
    expect((await request({ 'If-Range': etag })).status).toBe(200);
  });

  test('with a matching If-None-Match is a 304 without content', async () => {
    for (const headers of [
      {},
      { Range: 'bytes=0-9' },
      { Range: 'bytes=5000-' },
      { Range: 'bytes=0-9', 'If-Range': etag },
    ]) {
      for (const tag of [etag, `W/${etag}`, `"0", ${etag}`, '*']) {
        const known = await request({ ...headers, 'If-None-Match': tag });
        expect([known.status, known.data.length, known.headers.get('etag')]).toEqual([304, 0, etag]);
      }
      expect((await request({ ...headers, 'If-None-Match': '"0"' })).status).not.toBe(304);
    }
    expect((await request({ 'If-None-Match': '"*"' })).status).toBe(200);
  });

  test('is ignored by HEAD, which returns the headers of the full file', async () => {
    for (const headers of [{}, { Range: 'bytes=0-9' }, { Range: 'bytes=5000-' }]) {
      const head = await request(headers, 'HEAD');
      expect([head.status, head.data.length]).toEqual([200, 0]);
      for (const name of ['content-type', 'content-disposition', 'accept-ranges', 'etag']) {
        expect(head.headers.get(name)).toBe((await request({})).headers.get(name));
      }
      expect(head.headers.get('content-length')).toBe('1000');
      expect(head.headers.get('content-range')).toBeNull();
    }
    expect((await request({ 'If-None-Match': etag }, 'HEAD')).status).toBe(304);
  });

  test('of a large file is exact: all ranges together are the file', async () => {
    const large = pdfOf(Buffer.from(Array.from({ length: 3_000_000 }, (_, n) => (n * 31 + (n >> 8)) % 256)));
    const { id, size } = await add({ content: large });
    const parts: Buffer[] = [];
    for (let start = 0; start < size; start += 700_001) {
      const part = await school.admin.send<Buffer>(
        'GET',
        `${pathOf(student)}/${id}/file`,
        { headers: { Range: `bytes=${start}-${start + 700_000}` } },
        206,
      );
      parts.push(part.data);
    }
    expect(parts).toHaveLength(5);
    expect(Buffer.concat(parts).equals(large)).toBe(true);
  });

  test('of an empty file is a 416, and the file is a 200 without content', async () => {
    const { id } = await add();
    await service.database.query(
      `update ${school.schema}.file set content = '' where id = (select file_id from ${school.schema}.student_document where id = $1)`,
      [id],
    );
    const empty = (headers: Record<string, string>) =>
      school.admin.send<Buffer>('GET', `${pathOf(student)}/${id}/file`, { headers });
    const whole = await empty({});
    expect([whole.status, whole.data.length, whole.headers.get('content-length')]).toEqual([200, 0, '0']);
    for (const range of ['bytes=0-', 'bytes=0-0', 'bytes=-1', 'bytes=-0']) {
      const refused = await empty({ Range: range });
      expect([refused.status, refused.headers.get('content-range')]).toEqual([416, 'bytes */0']);
    }
  });

  test('is supported for every stored file, such as a profile picture', async () => {
    const picture = new FormData();
    picture.append('picture', new Blob([new Uint8Array(png)]), 'me.png');
    await school.admin.send('POST', '/api/auth/profile/picture', { body: picture }, 200);
    const part = await school.admin.send<Buffer>(
      'GET',
      '/api/auth/profile/picture',
      { headers: { Range: 'bytes=1-3' } },
      206,
    );
    expect(part.data.toString()).toBe('PNG');
  });
});

describe('permissions', () => {
  let taught: number;
  let other: number;
  let ofTaught: Document;
  let ofOther: Document;
  let teacher: Client & { id: number };
  let place: School;

  /** The status of each kind of request for a student's documents: list, get, file, create, delete (an unknown id). */
  async function statuses(client: Client, of: number, document: Document): Promise<number[]> {
    const path = pathOf(of);
    return [
      (await client.send('GET', path)).status,
      (await client.send('GET', `${path}/${document.id}`)).status,
      (await client.send('GET', `${path}/${document.id}/file`)).status,
      (await client.send('POST', path, { body: form(pdf, 'a.pdf') })).status,
      (await client.send('DELETE', `${path}/999999`)).status,
    ];
  }

  const login = (email: string) => service.anonymous.login({ tenant_id: place.id, email, password: testPassword });

  beforeAll(async () => {
    place = await service.school();
    const [mine, theirs] = [await place.classroom('Mine'), await place.classroom('Theirs')];
    const email = (n: string) => `${n}@${place.subdomain}.example`;
    taught = await addStudent(
      { class_id: mine.classId, email: email('taught'), create_user_account: true, password: testPassword },
      place,
    );
    other = await addStudent(
      { class_id: theirs.classId, email: email('other'), create_user_account: true, password: testPassword },
      place,
    );
    ofTaught = (await upload({ of: taught, client: place.admin }, 201)).data;
    ofOther = (await upload({ of: other, client: place.admin }, 201)).data;
    teacher = await place.user(['teacher']);
    await service.database.query(
      `with t as (insert into ${place.schema}.teacher (user_id, first_name, last_name) values ($1, 'Te', 'Acher') returning id)
       update ${place.schema}.class set class_teacher_id = t.id from t where class.id = $2`,
      [teacher.id, mine.classId],
    );
  });

  test('a student reads only their own documents, and writes none', async () => {
    const student = await login(`taught@${place.subdomain}.example`);
    expect(await statuses(student, taught, ofTaught)).toEqual([200, 200, 200, 403, 403]);
    expect(await statuses(student, other, ofOther)).toEqual([404, 404, 404, 403, 403]);
    expect((await student.get<Document[]>(pathOf(taught))).data).toEqual([ofTaught]);
    await student.get(`${pathOf(taught)}/${ofOther.id}/file`, 404);
  });

  test('a teacher reads the documents of their classes, and writes none', async () => {
    expect(await statuses(teacher, taught, ofTaught)).toEqual([200, 200, 200, 403, 403]);
    expect(await statuses(teacher, other, ofOther)).toEqual([404, 404, 404, 403, 403]);
    await teacher.get(`${pathOf(taught)}/${ofOther.id}/file`, 404);
  });

  test('student.read allows reading, student.update allows writing, and users without them and operators can do neither', async () => {
    expect(await statuses(await place.user(['accountant']), other, ofOther)).toEqual([200, 200, 200, 403, 403]);
    expect(await statuses(await place.user([await place.role('student.update')]), other, ofOther)).toEqual([
      404, 404, 404, 201, 404,
    ]);
    expect(await statuses(await place.user([]), other, ofOther)).toEqual([404, 404, 404, 403, 403]);
    expect(await statuses(service.anonymous, other, ofOther)).toEqual([401, 401, 401, 401, 401]);
    expect(await statuses(service.operator, other, ofOther)).toEqual([403, 403, 403, 403, 403]);
  });

  test('a teacher with student.update writes only for the students of their classes', async () => {
    await service.database.query(
      `insert into ${place.schema}.role_permission (role_id, permission_id) select r.id, p.id from ${place.schema}.role r, core.permission p where r.name = 'teacher' and p.name = 'student.update'`,
    );
    const [row] = await service.database.query<{ email: string }>(
      `select email from ${place.schema}.user_account where id = $1`,
      [teacher.id],
    );
    const again = await login(row?.email ?? '');
    const before = await countRows(place);
    expect(await statuses(again, other, ofOther)).toEqual([404, 404, 404, 404, 404]);
    await again.delete(`${pathOf(other)}/${ofOther.id}`, 404);
    await again.delete(`${pathOf(taught)}/${ofOther.id}`, 404);
    expect(await countRows(place)).toEqual(before);
    expect(await statuses(again, taught, ofTaught)).toEqual([200, 200, 200, 201, 404]);
    const { id } = (await upload({ of: taught, client: again }, 201)).data;
    await again.delete(`${pathOf(taught)}/${id}`);
  });
});
