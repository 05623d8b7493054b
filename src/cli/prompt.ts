import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';

/** Whether there is somebody to ask. */
export const isInteractive = (): boolean => process.stdin.isTTY && process.stderr.isTTY;

/** Asks on the terminal; what is typed in answer to a hidden question is not shown. @throws when Ctrl-C or Ctrl-D comes instead of an answer */
export async function ask(question: string, { hidden = false } = {}): Promise<string> {
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const prompt = createInterface({
    input: process.stdin,
    output: hidden ? nowhere : process.stderr,
    terminal: true,
    historySize: 0,
  });
  // Only now: until the terminal has been told to show nothing, it shows what a fast typist types.
  if (hidden) process.stderr.write(question);
  const left = once(prompt, 'close').then(() => undefined);
  try {
    const answer = await Promise.race([prompt.question(hidden ? '' : question).catch(() => undefined), left]);
    if (answer === undefined) throw new Error('Stopped; nothing was changed.');
    return answer;
  } finally {
    prompt.close();
    if (hidden) process.stderr.write('\n');
  }
}
