import { Presets, SingleBar } from 'cli-progress';

/** Shows how far a command is. */
export interface Progress {
  /** @param label  what is being worked on */
  update: (done: number, label: string) => void;
  /** Prints a line of the result. The bar stays below it. */
  print: (line: string) => void;
  stop: () => void;
}

/**
 * A bar if standard error is a terminal. Otherwise nothing but the lines that are printed, so that logs stay readable.
 * @param total  the value of `done` at the end
 */
export function progress(total: number): Progress {
  const print = (line: string) => void process.stdout.write(`${line}\n`);
  if (!process.stderr.isTTY) return { update: () => undefined, print, stop: () => undefined };
  const bar = new SingleBar(
    {
      format: '{bar} {percentage} %  {label}',
      stream: process.stderr,
      clearOnComplete: true,
      hideCursor: true,
      barsize: 30,
    },
    Presets.shades_classic,
  );
  bar.start(total, 0, { label: '' });
  return {
    update: (done, label) => bar.update(done, { label }),
    print: (line) => {
      // Clears the line of the bar, which is drawn again at the next update.
      process.stderr.write('\r\u001b[K');
      print(line);
    },
    stop: () => bar.stop(),
  };
}
