import { Command, InvalidArgumentError } from 'commander';
import { startRun } from '../support/server/run.ts';
import { runChaos } from './run.ts';

function count(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('must be a whole number from 1');
  return value;
}

const options = new Command('test:chaos')
  .description(
    'Sends random changes to a school while API processes, workers, Postgres and their connections fail. Checks that ' +
      'every acknowledged change is stored once, that every job ran, and that the data are consistent.',
  )
  .option('--minutes <count>', 'duration', count, 10)
  .option('--seed <number>', 'determines the requests and faults (default: random)', count)
  .option('--clients <count>', 'number of concurrent clients', count, 8)
  .option('--nodes <count>', 'also runs nodes, with a school on each server, and moves schools between them', count)
  .option('--sabotage <sql>', 'runs SQL in the schema of the school, to test that the checks detect an error')
  .parse()
  .opts<{ minutes: number; seed?: number; clients: number; nodes?: number; sabotage?: string }>();

const print = (line: string) => process.stdout.write(`${line}\n`);
await startRun();
const seed = options.seed ?? 1 + Math.floor(Math.random() * 1_000_000);
print(`Seed ${String(seed)}`);
try {
  const { minutes, clients, nodes, sabotage } = options;
  const report = await runChaos({
    seed,
    seconds: minutes * 60,
    clients,
    ...(nodes === undefined ? {} : { nodes }),
    sabotage,
    stepsOfPhase: 150,
    onPhase: print,
  });
  for (const counts of [report.answers, report.faults])
    for (const [name, times] of Object.entries(counts).sort()) print(`${String(times).padStart(6)}  ${name}`);
  const faults = Object.values(report.faults).reduce((sum, each) => sum + each, 0);
  print(
    `${String(report.phases)} phases, ${String(faults)} faults, ${String(report.requests)} requests: nothing is lost, ` +
      'nothing is stored twice, and the data are consistent.',
  );
} catch (error) {
  print(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
