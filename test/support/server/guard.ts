// The guard of a run (run.ts): `node guard.ts <folder>...`. Its standard input ends with the process that started it.
import { removeRun } from './run.ts';

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
process.stdin.resume().on('close', () => void removeRun(process.argv.slice(2)));
