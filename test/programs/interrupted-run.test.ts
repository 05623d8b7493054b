import { spawn } from 'node:child_process';
import { mkdtemp, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { until } from '../support/client/until.ts';
import { processesOf } from '../support/server/run.ts';

const root = join(import.meta.dirname, '../..');
const jest = ['--experimental-vm-modules', 'node_modules/jest/bin/jest.js', 'test/timetable/board'];

/** The folders of runs that processes have created in a folder. */
const runsIn = async (folder: string) => (await readdir(folder)).filter((name) => name.startsWith('school-run-'));

/** The processes of a run, at most four times a second: it reads all processes of the machine. */
async function findProcesses(folder: string) {
  await pause(250);
  return processesOf([folder]);
}

/** Starts a run whose temporary files are in a folder, and waits until it has started its Postgres server. */
async function startRunIn(folder: string, program: string, args: string[]) {
  const env = { ...process.env, TMPDIR: folder };
  const child = spawn(program, args, { cwd: root, env, stdio: 'ignore', detached: true });
  await until(async () => (await findProcesses(folder)).find(({ isServer }) => isServer));
  const [run = ''] = await runsIn(folder);
  return { pid: child.pid ?? 0, runPid: Number(/\d+/.exec(run)?.[0]) };
}

test.each([
  ['npm test, by Ctrl-C', 'npm', ['test', '--', 'test/timetable/board'], 'SIGINT', 'group'],
  ['npm test, by SIGTERM', 'npm', ['test', '--', 'test/timetable/board'], 'SIGTERM', 'process'],
  ['Jest, by SIGKILL', process.execPath, jest, 'SIGKILL', 'process'],
  ['a program of test, by SIGHUP', process.execPath, ['test/recovery/main.ts'], 'SIGHUP', 'process'],
] as const)('an interrupted run leaves no process and no folder: %s', async (_, program, args, signal, target) => {
  const folder = await mkdtemp(join(tmpdir(), 'interrupted-'));
  const { pid, runPid } = await startRunIn(folder, program, [...args]);
  process.kill(target === 'group' ? -pid : pid, signal);
  await until(async () => ((await findProcesses(folder)).length === 0 ? true : undefined));
  await until(async () => ((await runsIn(folder)).length === 0 ? true : undefined));
  const inMemory = await readdir('/dev/shm').catch(() => []);
  expect(inMemory.filter((name) => name.startsWith(`school-run-${String(runPid)}-`))).toEqual([]);
});
