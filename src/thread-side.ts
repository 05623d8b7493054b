import { parentPort } from 'node:worker_threads';

/** What the script of a `threadLine` does: answers each request with what `work` makes of it. What it throws ends the thread. */
export function answerWith<Request, Answer>(work: (request: Request) => Answer | Promise<Answer>): void {
  parentPort?.on('message', (request: Request) => {
    // A rejection that nobody handles ends the thread, as an exception does.
    void Promise.resolve(work(request)).then((answer) => parentPort?.postMessage(answer));
  });
}
