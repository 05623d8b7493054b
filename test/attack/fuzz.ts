import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { resources } from '../../src/endpoints/index.ts';
import { startRun } from '../support/server/run.ts';

// `npm run test:fuzz`: the random requests of fuzz.test.ts, more of them, with another seed each time.

const root = join(import.meta.dirname, '../..');

/**
 * Requests to each endpoint in a round. Each round starts with a new database and new logins: requests use up records,
 * and access tokens expire after 15 minutes.
 */
const requestsPerRound = 20;

/** What fuzz.test.ts reports. */
interface Figures {
  requests: Record<string, number>;
  successes: Record<string, number>;
}

function count(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('must be a whole number from 1');
  return value;
}

const { requests, seed = 1 + Math.floor(Math.random() * 1_000_000) } = new Command('test:fuzz')
  .description(
    'Sends valid, nearly valid and hostile requests of every role to every endpoint. Checks that none returns 500, ' +
      'that every response matches the OpenAPI document, and that refused requests change nothing.',
  )
  .option('--requests <count>', 'number of requests, spread over all endpoints', count, 100_000)
  .option('--seed <number>', 'determines the requests (default: random)', count)
  .parse()
  .opts<{ requests: number; seed?: number }>();

const endpoints = resources.reduce((sum, { endpoints: each }) => sum + each.length, 0);
const total = Math.ceil(requests / endpoints);
const rounds = Math.ceil(total / requestsPerRound);
const { folder } = await startRun();
const report = join(folder, 'figures.json');

/** Adds numbers to the sums of the same name. */
function add(sums: Record<string, number>, more: Record<string, number>) {
  for (const [name, value] of Object.entries(more)) sums[name] = (sums[name] ?? 0) + value;
}

/** Runs fuzz.test.ts once. @returns its exit code */
const round = (seedOfRound: number, runs: number) =>
  new Promise<number>((done) => {
    const child = spawn(
      process.execPath,
      [
        '--experimental-vm-modules',
        '--disable-warning=ExperimentalWarning',
        join(root, 'node_modules/jest/bin/jest.js'),
        'test/attack/fuzz.test.ts',
        '--testNamePattern=random requests',
        '--verbose=false',
      ],
      {
        cwd: root,
        stdio: 'inherit',
        env: { ...process.env, FUZZ_SEED: String(seedOfRound), FUZZ_RUNS: String(runs), FUZZ_REPORT: report },
      },
    );
    child.on('exit', (code) => {
      done(code ?? 1);
    });
  });

const sums: Figures = { requests: {}, successes: {} };
for (let index = 0; index < rounds; index++) {
  const runs = Math.min(requestsPerRound, total - index * requestsPerRound);
  process.stdout.write(
    `\nRound ${String(index + 1)} of ${String(rounds)}, seed ${String(seed + index)}: ` +
      `${String(runs)} requests to each of ${String(endpoints)} endpoints\n`,
  );
  const code = await round(seed + index, runs);
  if (code !== 0) process.exitCode = code;
  const figures = JSON.parse(await readFile(report, 'utf8')) as Figures;
  add(sums.requests, figures.requests);
  add(sums.successes, figures.successes);
}

/** Prints the number of responses by kind or caller, and by status. */
function printTable(property: string, nameOf: (kind: string, caller: string) => string) {
  const table: Record<string, Record<string, number>> = {};
  for (const [key, value] of Object.entries(sums.requests)) {
    const [, kind = '', caller = '', status = ''] = /^(.+) (\w+) (\d+)$/.exec(key) ?? [];
    const row = (table[nameOf(kind, caller)] ??= {});
    row['total'] = (row['total'] ?? 0) + value;
    row[status] = (row[status] ?? 0) + value;
  }
  const statuses = [...new Set(Object.values(table).flatMap(Object.keys))].sort();
  const line = (name: string, cells: string[]) => name.padEnd(18) + cells.map((cell) => cell.padStart(8)).join('');
  const lines = Object.entries(table).map(([name, row]) =>
    line(
      name,
      statuses.map((status) => String(row[status] ?? 0)),
    ),
  );
  process.stdout.write(`\n${[line(property, statuses), ...lines].join('\n')}\n`);
}

printTable('kind', (kind) => kind);
printTable('caller', (_kind, caller) => caller);
const withoutSuccess = Object.entries(sums.successes).flatMap(([name, successes]) => (successes === 0 ? [name] : []));
process.stdout.write(
  `Endpoints without a valid request that succeeded: ${String(withoutSuccess.length)}\n` +
    withoutSuccess.map((name) => `  ${name}\n`).join(''),
);
