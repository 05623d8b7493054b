import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import type { ServiceChild } from './service.ts';
import { timedRequest } from './steady.ts';

/** Processes that use all processors. @returns a function that ends them */
function busyProcesses(count: number): () => void {
  const children = Array.from({ length: count }, () =>
    spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }),
  );
  return () => {
    for (const child of children) child.kill('SIGKILL');
  };
}

/** Times in milliseconds. */
interface FirstQuery {
  /** Of the first query, right after a start of the service. It starts the analytics process. */
  first: number;
  second: number;
}

/**
 * Starts the service several times, each time with a query as soon as it is ready. There must be no analysts, because
 * the analytics process would then start with the service.
 * @param token  of an operator
 */
async function measure(count: number, start: () => Promise<ServiceChild>, stop: () => Promise<void>, token: string) {
  const queries: FirstQuery[] = [];
  for (let n = 0; n < count; n++) {
    const { url } = await start();
    const query = async () => {
      const body = { query: '{ tenants { totalCount nodes { name } } }' };
      const { milliseconds, text } = await timedRequest(url, '/graphql', token, body);
      if (!text.startsWith('{"data"')) throw new Error(text);
      return milliseconds;
    };
    queries.push({ first: await query(), second: await query() });
    await stop();
  }
  return queries;
}

/** Measures the first query of a cold process, on an idle machine and on one whose processors are busy. */
export async function firstQueries(
  count: number,
  start: () => Promise<ServiceChild>,
  stop: () => Promise<void>,
  token: string,
): Promise<string> {
  const busy = 2 * availableParallelism();
  const idle = await measure(count, start, stop, token);
  const end = busyProcesses(busy);
  const loaded = await measure(count, start, stop, token).finally(end);
  const row = (name: string, queries: FirstQuery[]) =>
    `| ${name} | ${queries.map(({ first }) => first.toFixed(0)).join(', ')} | ${queries.map(({ second }) => second.toFixed(0)).join(', ')} |`;
  const slowest = Math.max(...[...idle, ...loaded].map(({ first }) => first));
  return `
| after a start of the service | first query ms | second query ms |
|---|--:|--:|
${row('no other processes', idle)}
${row(`${String(busy)} busy processes`, loaded)}

The slowest first query took ${slowest.toFixed(0)} ms (aim: below 1,000, ${slowest < 1_000 ? 'met' : 'not met'}).`;
}
