import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';

/** A module of this folder in a separate process. It handles one message at a time. */
export interface Child {
  pid: number | undefined;
  ask<Answer>(message: object): Promise<Answer>;
  stop(): Promise<void>;
}

/** Stops a process and waits until it has exited. Kills it after 10 s. */
export async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise((done) => child.once('exit', done));
  child.kill('SIGTERM');
  const hurry = setTimeout(() => child.kill('SIGKILL'), 10_000);
  await exit;
  clearTimeout(hurry);
}

/** Starts `bench/<module>` as a child process. It exits with this process, because the IPC channel closes. */
export function startChild(module: string, args: string[] = []): Child {
  const child = fork(join(import.meta.dirname, module), args, {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    execArgv: [],
    env: { ...process.env, NODE_ENV: 'production', GRAPHILE_ENV: 'production' },
  });
  return {
    pid: child.pid,
    ask<Answer>(message: object): Promise<Answer> {
      return new Promise((done, fail) => {
        const onExit = (code: number | null) => fail(new Error(`bench/${module} ended with ${String(code)}`));
        child.once('exit', onExit);
        child.once('message', (answer: { error?: string } & Record<string, unknown>) => {
          child.off('exit', onExit);
          if (answer.error === undefined) done(answer as Answer);
          else fail(new Error(`bench/${module}: ${answer.error}`));
        });
        child.send(message);
      });
    },
    stop: () => end(child),
  };
}

/** For the child: answers each message of the parent. Ignores Ctrl-C, because the parent handles it. */
export function answerParent(answer: (message: never) => Promise<object>): void {
  process.on('SIGINT', () => undefined);
  process.on('disconnect', () => process.exit());
  process.on('message', (message) => {
    answer(message as never).then(
      (result) => process.send?.(result),
      (error: unknown) => process.send?.({ error: error instanceof Error ? error.message : String(error) }),
    );
  });
}
