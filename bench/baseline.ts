import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { passwords } from '../src/domain/passwords.ts';
import { type Call, dispatcher } from '../src/database/call.ts';
import { rolePool } from '../src/database/pool.ts';
import type { InvoiceData } from '../src/documents/invoice.ts';
import { print } from '../src/documents/print.ts';
import { answerParent } from './child.ts';

/** The arguments of `core.call`. */
export type Statement = Parameters<Call>;

/** Tells the baseline process what to do next. */
export type BaselineMessage =
  | { mode: 'statements'; statements: Statement[] }
  | { mode: 'constant'; bytes: number }
  | { mode: 'loop'; statements: Statement[]; seconds: number; concurrency: number }
  | { mode: 'print'; statements: Statement[]; seconds: number; concurrency: number }
  | { mode: 'argon2'; hash: string; password: string; seconds: number; concurrency: number };

// The baselines that the service is compared with, in a separate process with a pool of the same size:
//   statements  GET /<n> runs statement n through node:http and pg, without routing, token, validation and logging
//   constant    only node:http, responding with as many bytes as the service
//   loop        the same statements, only with pg
//   argon2      only verifying a password
//   print       only writing the PDFs of the statement results
const [databaseUrl = '', poolSize = ''] = process.argv.slice(2);
const pool = rolePool('school_api', databaseUrl, undefined, Number(poolSize));
const hashing = passwords();
let statements: Statement[] = [];
let constant: Buffer | undefined;

const call = dispatcher(pool);
const run = async (statement: Statement | undefined): Promise<string> =>
  statement ? (await call(...statement)).answer : '';

const server = createServer((req, res) => {
  const answer = (body: string | Buffer) => {
    res.setHeader('Content-Type', 'application/json; charset=utf-8');
    res.end(body);
  };
  if (constant) answer(constant);
  else
    run(statements[Number(req.url?.slice(1))]).then(answer, () => {
      res.statusCode = 500;
      res.end();
    });
});
await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
const url = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;

/** Repeats `work` for some seconds, with `concurrency` in parallel. */
async function loop(
  work: (n: number) => Promise<unknown>,
  seconds: number,
  concurrency: number,
): Promise<{ perSecond: number }> {
  const start = performance.now();
  let n = 0;
  let done = 0;
  const worker = async () => {
    while (performance.now() - start < seconds * 1000) {
      await work(n++);
      done++;
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  return { perSecond: (done / (performance.now() - start)) * 1000 };
}

answerParent(async (message: BaselineMessage) => {
  switch (message.mode) {
    case 'statements':
      statements = message.statements;
      constant = undefined;
      return { url };
    case 'constant':
      constant = Buffer.alloc(message.bytes, 'x');
      return { url };
    case 'loop':
      return loop((n) => run(message.statements[n % message.statements.length]), message.seconds, message.concurrency);
    case 'print': {
      const invoices = await Promise.all(
        message.statements.slice(0, 100).map(async (statement) => JSON.parse(await run(statement)) as InvoiceData),
      );
      const write = (data: InvoiceData | undefined) => (data ? print({ kind: 'invoice', data }) : undefined);
      return loop((n) => Promise.resolve(write(invoices[n % invoices.length])), message.seconds, message.concurrency);
    }
    case 'argon2':
      return loop(() => hashing.verify(message.hash, message.password), message.seconds, message.concurrency);
  }
});
