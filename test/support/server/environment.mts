import { existsSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { TestEnvironment } from 'jest-environment-node';
import * as shared from './shared.ts';

declare global {
  var shared: typeof import('./shared.ts');
  /** Where the services of the test file log warnings and errors. */
  var serviceLog: string;
}

// Only for threads and child processes, which start by the dozen. This process must not have had it at its own start:
// node would then write the cache at exit, and Jest would report that a test left something open.
const cache = process.env['TEST_COMPILE_CACHE'];
if (cache !== undefined) process.env['NODE_COMPILE_CACHE'] = cache;

/** What jest-worker sends to a worker that has no more files. */
const end = 2;

// Jest kills a worker that has not ended half a second after this message, and warns of a leak. Node needs that long to
// free a heap of some hundred megabytes, so the worker ends without. What it would have waited for is a real leak.
if (process.send)
  process.on('message', (message) => {
    if (!Array.isArray(message) || message[0] !== end) return;
    const left = process.getActiveResourcesInfo().filter((resource) => resource !== 'PipeWrap');
    if (left.length > 0) process.stderr.write(`The tests left open: ${left.join(', ')}\n`);
    process.kill(process.pid, 'SIGKILL');
  });

const maxLength = 4000;

/** An event of Jest, as far as this file reads it. */
interface TestEvent {
  name: string;
  test?: { errors: unknown[] };
}

/** The sandbox of a test file, with the modules that all files share as the global `shared`. */
export default class extends TestEnvironment {
  readonly #log: string;
  /** The length of the log when the present test began. */
  #logStart = 0;

  constructor(...[config, context]: ConstructorParameters<typeof TestEnvironment>) {
    super(config, context);
    this.#log = join(process.env['TEST_RUN'] ?? '', `${basename(context.testPath)}-${String(process.pid)}.log`);
  }

  override async setup(): Promise<void> {
    await super.setup();
    // Frozen, since Jest clears the objects of a finished sandbox.
    this.global.shared = Object.freeze({ ...shared });
    this.global.serviceLog = this.#log;
  }

  /** Adds to a failed test what the services logged meanwhile: the cause of a 500, the error of a job. */
  handleTestEvent({ name, test }: TestEvent): void {
    if (name === 'test_start') this.#logStart = existsSync(this.#log) ? statSync(this.#log).size : 0;
    if (name !== 'test_done' || !test || test.errors.length === 0 || !existsSync(this.#log)) return;
    const text = readFileSync(this.#log).subarray(this.#logStart).toString().slice(0, maxLength);
    if (text !== '') test.errors.push(Object.assign(new Error(), { stack: `The service logged:\n${text}` }));
  }
}
