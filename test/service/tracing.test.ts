import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, expect, test } from '@jest/globals';
import { send } from '../support/client/wire.ts';
import { serviceOfFile, unique } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

interface Span {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  attributes: { key: string; value: Record<string, unknown> }[];
  status: { code?: number };
}
interface Export {
  resourceSpans: { scopeSpans: { spans: Span[] }[] }[];
}

/** A collector that keeps the spans of OTLP over HTTP. */
const spans: Span[] = [];
let sent = '';
const collector = createServer((req, res) => {
  void (async () => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString();
    sent += body;
    const { resourceSpans } = JSON.parse(body) as Export;
    spans.push(...resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)));
    res.setHeader('Content-Type', 'application/json').end('{}');
  })();
});
await new Promise<void>((done) => collector.listen(0, '127.0.0.1', done));
afterAll(() => void collector.close());

const service = await serviceOfFile({
  OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${String((collector.address() as AddressInfo).port)}`,
});
const school = await service.school();

const newTrace = () => randomBytes(16).toString('hex');
const header = (traceId: string, flags = '01') => `00-${traceId}-${'12'.repeat(8)}-${flags}`;
const ofTrace = (traceId: string) => spans.filter((span) => span.traceId === traceId);
const attribute = (span: Span | undefined, name: string) =>
  Object.values(span?.attributes.find(({ key }) => key === name)?.value ?? {})[0];
const spanIn = (traceId: string, name: string) => until(() => ofTrace(traceId).find((span) => span.name === name));

test('the trace of a client continues in its request, the call of the database and the job', async () => {
  const traceId = newTrace();
  const email = `${unique('traced')}@test.example`;
  const { status } = await send(service.url, {
    method: 'POST',
    path: '/api/users',
    headers: {
      authorization: `Bearer ${school.admin.token}`,
      'content-type': 'application/json',
      traceparent: header(traceId),
    },
    body: JSON.stringify({ first_name: 'Trace', last_name: 'Person', email }),
  });
  expect(status).toBe(201);
  const request = await spanIn(traceId, 'POST /api/users');
  const call = await spanIn(traceId, 'core.call users_create');
  const job = await spanIn(traceId, 'job send_email');
  expect([request.parentSpanId, call.parentSpanId, job.parentSpanId]).toEqual([
    '12'.repeat(8),
    request.spanId,
    call.spanId,
  ]);
  expect([request, call, job].map((span) => Number(attribute(span, 'school.id')))).toEqual(Array(3).fill(school.id));
  expect([attribute(request, 'school.operation'), attribute(call, 'db.operation.name')]).toEqual(
    Array(2).fill('users_create'),
  );
  expect(sent).not.toMatch(/traced|Trace"|Person|@test/);
});

test('the trace of a request continues in the write of its notifications and in the job that delivers them', async () => {
  const traceId = newTrace();
  const { status } = await send(service.url, {
    method: 'POST',
    path: '/api/notifications/send',
    headers: {
      authorization: `Bearer ${school.admin.token}`,
      'content-type': 'application/json',
      traceparent: header(traceId),
    },
    body: JSON.stringify({ all: true, title: 'Hello', message: 'Secret words', channels: ['in_app', 'email'] }),
  });
  expect(status).toBe(200);
  const request = await spanIn(traceId, 'POST /api/notifications/send');
  const call = await spanIn(traceId, 'core.call notifications_send');
  const written = await spanIn(traceId, 'notifications');
  const delivery = await spanIn(traceId, 'job deliver');
  expect([call.parentSpanId, written.parentSpanId, delivery.parentSpanId]).toEqual([
    request.spanId,
    call.spanId,
    call.spanId,
  ]);
  expect([written, delivery].map((span) => Number(attribute(span, 'school.id')))).toEqual(Array(2).fill(school.id));
  expect(sent).not.toContain('Secret words');
});

test('a request without a valid traceparent begins a trace of its own, and a refused call is marked', async () => {
  const traceId = newTrace();
  await send(service.url, { path: '/api/health', headers: { traceparent: header(traceId).replace('00-', 'ff-') } });
  await until(() => spans.find((span) => span.name === 'GET /api/health' && span.parentSpanId === undefined));
  expect(ofTrace(traceId)).toEqual([]);
  const refused = newTrace();
  await send(service.url, {
    path: '/api/students/999999999',
    headers: { authorization: `Bearer ${school.admin.token}`, traceparent: header(refused) },
  });
  const call = await spanIn(refused, 'core.call students_get');
  expect([call.status.code, typeof attribute(call, 'error.type')]).toEqual([2, 'string']);
});

test('a client decides by its flag that a trace is not recorded', async () => {
  const [silent, recorded] = [newTrace(), newTrace()];
  await send(service.url, { path: '/api/health', headers: { traceparent: header(silent, '00') } });
  await send(service.url, { path: '/api/health', headers: { traceparent: header(recorded) } });
  await spanIn(recorded, 'GET /api/health');
  expect(ofTrace(silent)).toEqual([]);
});
