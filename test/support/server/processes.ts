import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { poolerSettings } from './pooler-settings.ts';

const root = join(import.meta.dirname, '../../..');

/** A free port. */
export async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((done) => void probe.listen(0, '127.0.0.1', done));
  const address = probe.address();
  await new Promise((done) => probe.close(done));
  return typeof address === 'object' && address ? address.port : 0;
}

/** How a process ended, and everything it wrote. */
export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** A program of the project in its own process. */
export interface Program {
  pid: number;
  readonly hasEnded: boolean;
  ended: Promise<Ended>;
  /** Waits until its standard output matches. @throws with everything it wrote when it ends before that */
  prints(expected: RegExp): Promise<RegExpExecArray>;
  /** Everything it has written to standard output so far. */
  output(): string;
  kill(signal: NodeJS.Signals): void;
}

/**
 * Starts a program as the npm scripts do. It gets these environment variables, PATH, POSTGRES_BIN, the folders of the run
 * and nothing else, not even a .env file.
 * @param options  the user to run as, if not the current one, and the folder of the project, if not this one
 */
export function startProgram(
  file: string,
  args: string[],
  env: Record<string, string>,
  { cwd = root, ...account }: { uid?: number; gid?: number; cwd?: string } = {},
): Program {
  const child = spawn(process.execPath, [resolve(cwd, file), ...args], {
    env: {
      PATH: process.env['PATH'] ?? '',
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] ?? '',
      POSTGRES_BIN: process.env['POSTGRES_BIN'] ?? '',
      TMPDIR: process.env['TMPDIR'] ?? tmpdir(),
      TEST_RUN: process.env['TEST_RUN'] ?? '',
      // A developer's .env must not change the tests.
      ENV_FILE: '',
      ...poolerSettings(env['DATABASE_URL']),
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    cwd,
    ...account,
  });
  let stdout = '';
  let stderr = '';
  const listeners = new Set<() => void>();
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    for (const listener of listeners) listener();
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const ended = new Promise<Ended>((done, fail) => {
    child.on('error', fail);
    child.on('close', (code, signal) => done({ code, signal, stdout, stderr }));
  });
  ended.catch(() => undefined);
  return {
    pid: child.pid ?? 0,
    get hasEnded() {
      return child.exitCode !== null || child.signalCode !== null;
    },
    ended,
    prints: (expected) =>
      new Promise((done, fail) => {
        const look = () => {
          const match = expected.exec(stdout);
          if (!match) return;
          listeners.delete(look);
          done(match);
        };
        listeners.add(look);
        look();
        ended.then(() => fail(new Error(`It ended without printing ${String(expected)}:\n${stdout}\n${stderr}`)), fail);
      }),
    output: () => stdout,
    kill: (signal) => void child.kill(signal),
  };
}

/** Runs a program of the project to its end. */
export const runProgram = (file: string, args: string[], env: Record<string, string>): Promise<Ended> =>
  startProgram(file, args, env).ended;

/** What the service says when it is ready (src/main.ts). */
export interface Ready {
  message: string;
  /** The URL of the service, without a path; empty for a worker. */
  url: string;
  metrics?: string;
  data: string;
  demo?: { subdomain: string; password: string; admin: string; operator: string };
  /** The output before and including this line. */
  printed: string;
}

/** Waits until the service is ready. @throws with everything it wrote when it ends before that */
export async function ready(program: Pick<Program, 'prints'>): Promise<Ready> {
  const { 0: line, index, input } = await program.prints(/^\{.*"message":"[^"]* ready in .*\}$/m);
  const facts = JSON.parse(line) as Ready & { api?: string };
  const url = (facts.api ?? '').replace(/\/api$/, '');
  return { ...facts, url, printed: input.slice(0, index + line.length) };
}
