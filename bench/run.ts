import { execFileSync } from 'node:child_process';
import { InvalidArgumentError } from 'commander';

/** Progress goes to stderr, so that stdout is the report. */
export const note = (line: string) =>
  void process.stderr.write(`${String(Math.round(performance.now() / 1000)).padStart(4)} s  ${line}\n`);

/** The value of an option: a number of at least 1. */
export function count(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('Must be a number of at least 1.');
  return value;
}

/** Values of an option, separated by commas or spaces. */
export const listOf =
  <T>(parse: (text: string) => T) =>
  (text: string, previous: T[] = []): T[] => [...previous, ...text.split(',').map(parse)];

/** The commit that is measured, with `+` if files were changed since. */
export function commit(): string {
  const git = (...args: string[]) =>
    execFileSync('git', args, { cwd: import.meta.dirname, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  try {
    return git('rev-parse', '--short', 'HEAD').trim() + (git('status', '--porcelain', '..') === '' ? '' : '+');
  } catch {
    return 'unknown';
  }
}

/**
 * Runs a benchmark and prints its report. Stops what it started, also on Ctrl-C.
 * @param work  calls `atEnd` for everything that it starts; stopped in reverse order
 */
export async function runBenchmark(
  work: (atEnd: (stop: () => Promise<void>) => void) => Promise<string>,
): Promise<void> {
  const stops: (() => Promise<void>)[] = [];
  const stop = async () => {
    for (const one of stops.splice(0).reverse()) await one();
  };
  const stopping = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      // Under npm, Ctrl-C is received twice.
      if (stopping.signal.aborted) return;
      stopping.abort();
      stop().then(
        () => process.exit(130),
        () => process.exit(1),
      );
    });
  }
  try {
    const text = await work((one) => stops.push(one));
    await stop();
    process.stdout.write(text);
  } catch (error) {
    // Errors after a stop was requested are a consequence of it.
    if (stopping.signal.aborted) return;
    note(error instanceof Error ? error.message : String(error));
    await stop().catch(() => undefined);
    process.exitCode = 1;
  }
}
