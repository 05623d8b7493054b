import { Command, InvalidArgumentError } from 'commander';
import { runLedger } from './ledger.ts';

function count(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('It takes a number from 1.');
  return value;
}

const options = new Command('test:ledger')
  .description(
    'Lets clients bill, pay, reverse, waive, void, promote and remove at random while Postgres crashes, and holds the ledger to its rules.',
  )
  .option('--seconds <n>', 'how long', count, 120)
  .option('--seed <n>', 'what the clients choose by; another one each time unless it is given', count)
  .option('--clients <n>', 'how many at a time', count, 5)
  .option('--sabotage <sql>', 'breaks something in the schema of the school, to see that it is noticed')
  .parse()
  .opts<{ seconds: number; seed?: number; clients: number; sabotage?: string }>();

const print = (line: string) => process.stdout.write(`${line}\n`);
const seed = options.seed ?? 1 + Math.floor(Math.random() * 1_000_000);
print(`Seed ${String(seed)}`);
try {
  const { phases, crashes, requests, answers } = await runLedger({ ...options, seed, onPhase: print });
  for (const [what, times] of Object.entries(answers).sort()) print(`${String(times).padStart(6)}  ${what}`);
  print(`${String(phases)} phases, ${String(crashes)} crashes, ${String(requests)} requests: the ledger is right.`);
} catch (error) {
  print(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
