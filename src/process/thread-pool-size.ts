import { availableParallelism } from 'node:os';

// Imported first by main.ts: libuv reads this once, before its first thread. A thread that hashes passwords keeps its 19 MB,
// and more threads than processors hash no faster.
process.env['UV_THREADPOOL_SIZE'] ??= String(Math.max(2, availableParallelism()));
