import { availableParallelism } from 'node:os';

// Must be the first import of main.ts: libuv reads the variable once, when it starts its first thread. A thread that
// has hashed a password keeps 19 MB, and more threads than processors hash no faster.
process.env['UV_THREADPOOL_SIZE'] ??= String(Math.max(2, availableParallelism()));
