import { describe, expect, test } from '@jest/globals';
import { operatorEmail, serviceWithSchool, unique } from '../support/server/service.ts';
import { send } from '../support/client/wire.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { AuditLog as AuditLogSchema } from '../../src/endpoints/platform.ts';

const { service, school } = await serviceWithSchool();
const { operator } = service;

type Entry = OutputOf<typeof AuditLogSchema>;

const list = async (query = '') => (await operator.get<Entry[]>(`/api/platform/audit-logs?pageSize=100${query}`)).data;
/** The header and the lines of an export. */
async function download(query = '') {
  const { data, headers } = await operator.get<Buffer>(`/api/platform/audit-logs/export?format=csv${query}`);
  const [head = '', ...lines] = data
    .toString()
    .replace(/^\uFEFF/, '')
    .trimEnd()
    .split('\r\n');
  return { head, lines, headers };
}

describe('the audit log', () => {
  test('lists its actions, sorted and without duplicates', async () => {
    await operator.put(`/api/platform/tenants/${school.id}`, { name: unique('Renamed') });
    const { data } = await operator.get<string[]>('/api/platform/audit-logs/actions');
    expect(data).toEqual(expect.arrayContaining(['operator.login', 'tenant.create', 'tenant.update']));
    expect(data).toEqual([...new Set(data)].toSorted());
  });

  test('lists the actions of a long trail with one index lookup per action', async () => {
    await service.database.query(
      `insert into platform.audit_log (action, target_type) select 'long.' || n % 5, 'test' from generate_series(1, 50000) n`,
    );
    await service.database.query('analyze platform.audit_log');
    const source = await service.database.query<{ prosrc: string }>(
      `select prosrc from pg_proc where proname = 'platform_audit_logs_actions'`,
    );
    const plan = await service.database.query(
      `explain (analyze, buffers, format json) ${source[0]?.prosrc.replaceAll('audit_log ', 'platform.audit_log ') ?? ''}`,
    );
    const text = JSON.stringify(plan);
    expect(text).not.toContain('Seq Scan');
    expect(Number(/"Shared Hit Blocks": ?(\d+)/.exec(text)?.[1])).toBeLessThan(200);
  });

  test('can be exported, oldest first, with the filters of the list', async () => {
    const of = await service.school();
    await operator.put(`/api/platform/tenants/${of.id}`, { name: '=cmd()' });
    await operator.post(`/api/platform/tenants/${of.id}/suspend`, undefined);
    const { head, lines, headers } = await download(`&tenant_id=${of.id}`);
    expect(headers.get('content-type')).toBe('text/csv; charset=utf-8');
    expect(headers.get('content-disposition')).toMatch(/^attachment; filename=audit-log-\d{4}-\d\d-\d\d\.csv$/);
    expect(head).toBe(
      'id,created_at,actor_id,actor_email,impersonated_user_id,impersonated_email,action,tenant_id,tenant_name,target_type,target_id,changes,ip,user_agent,request_id',
    );
    expect(lines.map((line) => line.split(',')[6])).toEqual([
      'tenant.create',
      'tenant.update',
      'tenant.suspend',
      'audit_log.export',
    ]);
    expect(lines[1]).toContain(operatorEmail);
    expect(lines[1]).toContain(`'=cmd()`);
    expect(lines[1]).toContain('""after"": ""=cmd()""');
    expect((await download(`&tenant_id=${of.id}&action=tenant.suspend`)).lines).toHaveLength(1);
    expect((await download(`&tenant_id=${of.id}&to_date=2020-01-01`)).lines).toHaveLength(0);
    expect((await download(`&tenant_id=${of.id}&search=suspend`)).lines).toHaveLength(1);
    const xlsx = await operator.get<Buffer>('/api/platform/audit-logs/export?format=xlsx&action=tenant.suspend');
    expect(xlsx.data.subarray(0, 2).toString()).toBe('PK');
  });

  test('exports every entry exactly once across several pages', async () => {
    await service.database.query(
      `insert into platform.audit_log (action, target_type, actor_id) select 'many', 'test', 77 from generate_series(1, 2500)`,
    );
    const { lines } = await download('&actor_id=77');
    const ids = lines.map((line) => Number(line.split(',')[0]));
    expect(ids).toHaveLength(2500);
    expect(ids).toEqual([...new Set(ids)].toSorted((a, b) => a - b));
  });

  test('records who exported it with which filters, once per export', async () => {
    const before = (await list('&action=audit_log.export')).length;
    await download('&from_date=2026-01-01&action=many');
    const entries = await list('&action=audit_log.export');
    expect(entries).toHaveLength(before + 1);
    expect(entries[0]).toMatchObject({
      actor: { email: operatorEmail },
      target_type: 'audit_log',
      changes: { from_date: { before: null, after: '2026-01-01' }, action: { before: null, after: 'many' } },
    });
    await operator.get('/api/platform/audit-logs/export?format=pdf', 400);
    for (const path of ['/api/platform/audit-logs', '/api/platform/audit-logs/export'])
      expect(await operator.get(`${path}?from_date=2026-01-02&to_date=2026-01-01`, 400)).toMatchObject({
        error: 'validation_error',
        details: [{ path: 'to_date' }],
      });
    await operator.get('/api/platform/audit-logs/export?tenant_id=x', 400);
    expect(
      (await send(service.url, { method: 'HEAD', path: '/api/platform/audit-logs/export', token: operator.token }))
        .status,
    ).toBe(405);
    expect(await list('&action=audit_log.export')).toHaveLength(before + 1);
    expect((await school.admin.get('/api/platform/audit-logs/export', 403)).error).toBe('forbidden');
  });
});

describe('notification templates of operators', () => {
  const preview = <T = { subject: string; body: string }>(body: Record<string, unknown>, status = 200) =>
    operator.post<T>('/api/platform/notification-templates/preview', body, status);

  test('can be previewed without being stored', async () => {
    const words = {
      key: 'holiday.added',
      channel: 'email',
      subject: '  {{holiday_name}}\n at {{school_name}} ',
      body: 'Dear {{ name }}: {{date}}. 100% {{first_name}}',
    };
    expect((await preview(words)).data).toEqual({
      subject: "Founders' Day at Green Valley School",
      body: 'Dear Amina García: 2 November 2026. 100% Amina',
    });
    expect((await preview({ ...words, subject: undefined })).data.subject).toBe("Holiday: Founders' Day");
    const { pagination } = await operator.get('/api/platform/notification-templates');
    expect(pagination.totalItems).toBe(0);
  });

  test('with an unknown event or channel get the same 400 as when they are added', async () => {
    const words = { key: 'holiday.added', channel: 'email', body: 'Fine' };
    for (const [over, path] of [
      [{ key: 'nothing.happened' }, 'key'],
      [{ channel: 'pigeon' }, 'channel'],
      [{ body: '' }, 'body'],
    ] as const) {
      const [shown, added] = [
        await preview({ ...words, ...over }, 400),
        await operator.post('/api/platform/notification-templates', { ...words, ...over }, 400),
      ];
      expect(shown.details.map((detail) => detail.path)).toEqual([path]);
      expect([shown.error, shown.message, shown.details]).toEqual([added.error, added.message, added.details]);
    }
  });

  test('can be previewed for every event of the catalog with its default text', async () => {
    const { data } = await operator.get<{ key: string; title: string; message: string }[]>(
      '/api/platform/notification-events',
    );
    for (const { key, title, message } of data) {
      const shown = (await preview({ key, channel: 'in_app', subject: title, body: message })).data;
      expect([key, shown.subject, shown.body].join(' ')).not.toMatch(/[{}]/);
    }
  });
});
