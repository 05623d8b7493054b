import { parentPort } from 'node:worker_threads';

/** What the script of a `threadLine` does: answers each request with what `work` makes of it. What it throws ends the thread. */
export function answerWith(work: (request: never) => unknown): void {
  parentPort?.on('message', (request: unknown) => {
    // A rejection that nobody handles ends the thread, as an exception does.
    void Promise.resolve(work(request as never)).then((answer) => parentPort?.postMessage(answer));
  });
}
