import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';

export const root = join(import.meta.dirname, '../..');

/** A step of CI or of the matrix: a command, and for tests the files that it passes to Jest. */
export interface Step {
  name: string;
  command: readonly string[];
  /** Set if the command passes its arguments to Jest: the files or folders, none for all. */
  files?: readonly string[];
  env?: Record<string, string>;
}

/** What a step has shown. */
export interface Result {
  seconds: number;
  passed: number;
  failed: number;
  /** The files, or the command, that failed at first and were run again. */
  secondRuns: string[];
}

export const namesOf = (steps: readonly Step[]) => steps.map(({ name }) => name).join(', ');

/** The steps with these names, separated by commas; all without names. @throws for an unknown name */
export function select(steps: readonly Step[], names: string | undefined): Step[] {
  const chosen = names?.split(',') ?? steps.map(({ name }) => name);
  return chosen.map((name) => {
    const step = steps.find((each) => each.name === name);
    if (!step) throw new Error(`There is no ${name}: ${namesOf(steps)}`);
    return step;
  });
}

/** If more files fail, the change is at fault, and nothing runs again. */
const maxSecondRuns = 10;

/** Runs a command in the project. @returns whether it ended with 0 */
async function run(command: readonly string[], env: Record<string, string> = {}): Promise<boolean> {
  const [program = '', ...args] = command;
  const child = spawn(program, args, { cwd: root, env: { ...process.env, ...env }, stdio: 'inherit' });
  const [code] = (await once(child, 'close')) as [number | null];
  return code === 0;
}

/** A test file in a report of Jest. */
interface FileResult {
  name: string;
  status: string;
  assertionResults: { status: string }[];
}

/** Runs files with Jest. @returns the files of its report, and whether the command ended with 0 */
async function runJest({ command, env }: Step, args: readonly string[], report: string) {
  const isSuccess = await run([...command, ...args, '--ci', '--json', `--outputFile=${report}`], env);
  const text = await readFile(report, 'utf8').catch(() => '{"testResults":[]}');
  return { isSuccess, files: (JSON.parse(text) as { testResults: FileResult[] }).testResults };
}

const count = (files: Iterable<FileResult>, status: string) =>
  [...files].flatMap(({ assertionResults }) => assertionResults).filter((each) => each.status === status).length;

/** A file that failed without a failed test: it could not be loaded, for example. */
const isBroken = ({ status, assertionResults }: FileResult) =>
  status === 'failed' && !assertionResults.some((each) => each.status === 'failed');

/**
 * Runs test files, and those that fail once more, one at a time. What fails twice counts as failed
 * (docs/decisions/0056-tests-that-fail-once.md). A run that fails without a failed test counts as one failure.
 */
async function runFiles(step: Step, files: readonly string[], folder: string): Promise<Omit<Result, 'seconds'>> {
  let { isSuccess, files: results } = await runJest(step, files, join(folder, `${step.name}-1.json`));
  const last = new Map(results.map((file) => [file.name, file]));
  const secondRuns = results
    .filter(({ status }) => status === 'failed')
    .map(({ name }) => relative(root, name))
    .sort();
  if (secondRuns.length > 0 && secondRuns.length <= maxSecondRuns) {
    ({ isSuccess, files: results } = await runJest(
      step,
      [...secondRuns, '--runInBand'],
      join(folder, `${step.name}-2.json`),
    ));
    for (const file of results) last.set(file.name, file);
  }
  const failed = count(last.values(), 'failed') + [...last.values()].filter(isBroken).length;
  return {
    passed: count(last.values(), 'passed'),
    failed: failed === 0 && !isSuccess ? 1 : failed,
    secondRuns: secondRuns.length <= maxSecondRuns ? secondRuns : [],
  };
}

/** Runs a command, and once more if it fails. It counts as one test. */
async function runCommand({ name, command, env }: Step): Promise<Omit<Result, 'seconds'>> {
  if (await run(command, env)) return { passed: 1, failed: 0, secondRuns: [] };
  const isSuccess = await run(command, env);
  return { passed: Number(isSuccess), failed: Number(!isSuccess), secondRuns: [name] };
}

/**
 * Runs a step.
 * @param folder  for the reports of Jest
 */
export async function runStep(step: Step, folder: string): Promise<Result> {
  process.stdout.write(`\n== ${step.name}\n`);
  const start = performance.now();
  const result = step.files ? await runFiles(step, step.files, folder) : await runCommand(step);
  return { ...result, seconds: Math.round((performance.now() - start) / 1000) };
}

/** Prints a table of results, with the files that needed a second run. */
export function printTable(results: ReadonlyMap<string, Result | undefined>): void {
  const width = Math.max(8, ...[...results.keys()].map(({ length }) => length));
  const line = (name: string, ...cells: (string | number)[]) =>
    [name.padEnd(width), ...cells.map((cell) => String(cell).padStart(8))].join(' ');
  const lines = ['', line('step', 'seconds', 'passed', 'failed')];
  for (const [name, result] of results) {
    lines.push(result ? line(name, result.seconds, result.passed, result.failed) : line(name, 'not run'));
    for (const file of result?.secondRuns ?? []) lines.push(`  needed a second run: ${file}`);
  }
  process.stdout.write(`${lines.join('\n')}\n`);
}

/** Prints the closing line: the numbers of steps and tests that passed and failed. Sets the exit code. */
export function finish(results: ReadonlyMap<string, Result | undefined>): void {
  const all = [...results.values()].filter((result) => result !== undefined);
  const passed = all.reduce((sum, result) => sum + result.passed, 0);
  const failed = all.reduce((sum, result) => sum + result.failed, 0);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
  process.stdout.write(`${String(passed)} passed, ${String(failed)} failed\n`);
}
