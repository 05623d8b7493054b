import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort, ready, startProgram } from '../support/server/processes.ts';
import { startRun } from '../support/server/run.ts';
import { prepareRequests } from './demo-school.ts';
import { exceptions, notCalled, withoutPrism } from './exceptions.ts';
import { orderOf, portmanConfig } from './portman-config.ts';
import type { OpenApi } from '../support/server/registry.ts';

// `npm run test:conformance`: Portman generates requests and tests from the OpenAPI document. Newman sends the requests
// through Prism, which checks requests and responses against the document as well.

const folder = import.meta.dirname;
const tool = (name: string) => join(folder, 'node_modules/.bin', name);

/** Runs a program in a folder until it exits. @throws with its output unless the exit code is 0 */
function run(program: string, args: string[], cwd: string): Promise<void> {
  return new Promise((done, fail) => {
    const child = spawn(program, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text: Buffer) => (output += text.toString()));
    child.on('error', fail);
    child.on('close', (code) => {
      if (code === 0) done();
      else fail(new Error(`${program} ended with the exit code ${String(code)}:\n${output.slice(-5000)}`));
    });
  });
}

/** A request of a Postman collection, as far as this script reads it. */
interface Item {
  id: string;
  item?: Item[];
  request: { method: string; url: { path: string[]; variable?: unknown[] } };
  response?: unknown[];
}

interface Collection {
  item: Item[];
  variable: { key: string; value: string }[];
}

/** The name of an operation from a request of the collection: `GET /api/students/{id}`. */
const operationOf = ({ request: { method, url } }: Item) =>
  `${method} /${url.path.join('/').replace(/:(\w+)|\{\{(\w+)\}\}/g, '{$1$2}')}`;

/** Corrects a path with text after a parameter, which Portman's converter takes for two segments. */
function correctPath(item: Item): Item {
  const { path } = item.request.url;
  const mixed = path.findIndex((segment) => /\{\{\w+\}\}./.test(segment));
  if (mixed >= 0) item.request.url = { ...item.request.url, path: path.slice(0, mixed + 1), variable: [] };
  return item;
}

const flat = (items: Item[]): Item[] => items.flatMap((one) => (one.item ? flat(one.item) : [one]));

// npm writes this file at the end of an installation.
if (!existsSync(join(folder, 'node_modules/.package-lock.json'))) {
  process.stdout.write('Installing the tools in test/conformance\n');
  await run('npm', ['ci'], folder);
}

/** The event emitter of a run of Newman, as far as this script uses it. */
interface NewmanRun {
  on(
    event: 'request',
    listener: (
      error: Error | null,
      sent: { item: { id: string }; response?: { code: number; stream?: Buffer } },
    ) => void,
  ): NewmanRun;
  on(
    event: 'assertion',
    listener: (error: Error | null, test: { item: { id: string }; assertion: string }) => void,
  ): NewmanRun;
}
const newman = createRequire(join(folder, 'package.json'))('newman') as {
  run(options: object, done: (error: Error | null) => void): NewmanRun;
};

/** What happened to a request. */
interface Execution {
  operation: string;
  error: Error | null;
  code: number;
  text: string;
  tests: { name: string; error: Error | null }[];
}

/** Runs a collection. */
function send(collection: Collection): Promise<Execution[]> {
  const executions = new Map<string, Execution>(
    collection.item.map((item) => [
      item.id,
      { operation: operationOf(item), error: null, code: 0, text: '', tests: [] },
    ]),
  );
  const of = ({ id }: { id: string }) => {
    const found = executions.get(id);
    if (!found) throw new Error(`Newman reports the unknown request ${id}.`);
    return found;
  };
  return new Promise((done, fail) => {
    newman
      .run({ collection, reporters: [], timeoutRequest: 60_000, ignoreRedirects: true }, (error) => {
        if (error) fail(error);
        else done([...executions.values()]);
      })
      .on('request', (error, { item, response }) => {
        Object.assign(of(item), { error, code: response?.code ?? 0, text: response?.stream?.toString() ?? '' });
      })
      .on('assertion', (error, { item, assertion }) => {
        of(item).tests.push({ name: assertion.replace(/^.* - /, ''), error });
      });
  });
}

/** A test that failed, or a violation that Prism reported. */
interface Failure {
  operation: string;
  text: string;
}

/** The failures of a request. Prism answers a violation with an RFC 7807 problem instead of the response. */
function failuresOf({ operation, error, code, text, tests }: Execution): Failure[] {
  if (error) return [{ operation, text: `No response: ${error.message}` }];
  if (text.includes('https://stoplight.io/prism/errors#')) {
    const problem = JSON.parse(text) as {
      title: string;
      detail: string;
      validation?: { location: string[]; message: string }[];
    };
    const violations = problem.validation?.map(({ location, message }) => `${location.join('.')} ${message}`) ?? [];
    return (violations.length > 0 ? violations : [`${problem.title}: ${problem.detail}`]).map((violation) => ({
      operation,
      text: `Prism: ${violation}`,
    }));
  }
  return tests.flatMap((test) =>
    test.error
      ? [
          {
            operation,
            text: `Portman: ${test.name}: ${test.error.message.slice(0, 500)} (${String(code)} ${text.slice(0, 300)})`,
          },
        ]
      : [],
  );
}

await startRun();
const work = await mkdtemp(join(tmpdir(), 'school-conformance-'));
const file = (name: string) => join(work, name);
const port = await freePort();
const service = startProgram('src/main.ts', [], {
  PORT: String(port),
  DATA_DIR: file('data'),
  LOG_LEVEL: 'warn',
  RATE_LIMIT_PER_MINUTE: '0',
  PUBLIC_RATE_LIMIT_PER_MINUTE: '0',
});
const cleanups = [
  async () => {
    service.kill('SIGTERM');
    await service.ended;
  },
];
try {
  const url = `http://127.0.0.1:${String(port)}`;
  await ready(service);
  const document = (await (await fetch(`${url}/api/openapi.json`)).json()) as OpenApi;
  await writeFile(file('openapi.json'), JSON.stringify(document));
  await run(
    process.execPath,
    [
      tool('spectral'),
      ...['lint', file('openapi.json'), '--ruleset', join(folder, 'spectral.yaml'), '--fail-severity', 'hint'],
    ],
    folder,
  );

  const proxyPort = await freePort();
  const prism = spawn(
    process.execPath,
    [tool('prism'), 'proxy', file('openapi.json'), url, '--errors', '--port', String(proxyPort)],
    { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const prismEnded = new Promise((done) => prism.on('close', done));
  cleanups.push(async () => {
    prism.kill('SIGTERM');
    await prismEnded;
  });
  const prismListens = new Promise<void>((done, fail) => {
    prism.stdout.on('data', (text: Buffer) => {
      if (text.includes('Prism is listening')) done();
    });
    void prismEnded.then(() => fail(new Error('Prism ended.')));
  });
  prismListens.catch(() => undefined);

  const requests = await prepareRequests(url, work, file('data'));
  const isDirect = (operation: string) => withoutPrism.some((one) => one.operation === operation);
  await writeFile(file('portman-config.json'), JSON.stringify(portmanConfig(document, requests, url, isDirect)));
  // Portman leaves its working files in the current folder.
  await run(
    process.execPath,
    [
      '--require',
      join(folder, 'seed.cjs'),
      tool('portman'),
      ...['--local', file('openapi.json'), '--baseUrl', `http://127.0.0.1:${String(proxyPort)}`],
      ...['--portmanConfigFile', file('portman-config.json'), '--output', file('collection.json')],
    ],
    work,
  );
  const collection = JSON.parse(await readFile(file('collection.json'), 'utf8')) as Collection;
  const isCalled = (operation: string) => !notCalled.some((one) => one.operation === operation);
  // Without the example responses, which are most of the collection.
  const items = flat(collection.item).map((item) => ({ ...correctPath(item), response: [] }));
  collection.item = items
    .filter((item) => isCalled(operationOf(item)))
    .sort((a, b) => orderOf(operationOf(a)) - orderOf(operationOf(b)));
  await prismListens;
  for (const [key, value] of Object.entries(requests.shortLived())) collection.variable.push({ key, value });
  const executions = await send(collection);
  const failures = executions.flatMap(failuresOf);
  const isExpected = (failure: Failure) =>
    exceptions.some((one) => one.operation === failure.operation && one.failure.test(failure.text));
  const unexpected = failures.filter((failure) => !isExpected(failure));
  for (const { operation, text } of unexpected) process.stdout.write(`${operation}\n    ${text}\n`);

  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  const called = new Set(executions.map(({ operation }) => operation));
  const missing = operations.filter((operation) => isCalled(operation) && !called.has(operation));
  const unused = [
    ...exceptions.filter(
      (one) => !failures.some(({ operation, text }) => one.operation === operation && one.failure.test(text)),
    ),
    ...[...notCalled, ...withoutPrism].filter(({ operation }) => !operations.includes(operation)),
  ];
  for (const operation of missing) process.stdout.write(`${operation}\n    Portman generated no request.\n`);
  for (const { operation } of unused) process.stdout.write(`${operation}\n    The exception is not needed.\n`);

  const tests = executions.reduce((sum, { tests: each }) => sum + each.length, 0);
  const failed = new Set([...unexpected, ...unused].map(({ operation }) => operation).concat(missing)).size;
  process.stdout.write(
    `Conformance: ${String(called.size)} of ${String(operations.length)} operations called, ${String(tests)} tests, ` +
      `${String(failures.length - unexpected.length)} expected deviations, ${String(failed)} operations failed\n`,
  );
  process.exitCode = failed > 0 ? 1 : 0;
} finally {
  for (const cleanUp of cleanups.reverse()) await cleanUp();
  await rm(work, { recursive: true, force: true });
}
