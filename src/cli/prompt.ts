import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';

/** Whether the process has a terminal to ask on. */
export const isInteractive = (): boolean => process.stdin.isTTY && process.stderr.isTTY;

/** Asks on the terminal. With `hidden`, the input is not displayed. @throws when the user presses Ctrl-C or Ctrl-D */
export async function ask(question: string, { hidden = false } = {}): Promise<string> {
  const discard = new Writable({ write: (_chunk, _encoding, done) => done() });
  const prompt = createInterface({
    input: process.stdin,
    output: hidden ? discard : process.stderr,
    terminal: true,
    historySize: 0,
  });
  // Written only after createInterface has disabled the echo. Before, the terminal would display early input.
  if (hidden) process.stderr.write(question);
  const closed = once(prompt, 'close').then(() => undefined);
  try {
    const answer = await Promise.race([prompt.question(hidden ? '' : question).catch(() => undefined), closed]);
    if (answer === undefined) throw new Error('Stopped. Nothing was changed.');
    return answer;
  } finally {
    prompt.close();
    if (hidden) process.stderr.write('\n');
  }
}
