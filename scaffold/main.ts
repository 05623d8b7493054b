// `npm run new`: writes the files of a new resource or a new job, for developers. docs/adding-a-resource.md shows both.
import { Command } from 'commander';
import { writeJob } from './job.ts';
import { writeResource } from './resource.ts';

/**
 * Without `--` before the words, npm takes an option for its own, and passes its value as another word.
 * @returns the fields, and the resources after `--ref`
 */
const split = (words: string[], ref: string[]) => {
  const isTaken = process.env['npm_config_ref'] === 'true';
  const references = isTaken ? words.filter((word) => !word.includes(':')) : [];
  return {
    fields: words.filter((word) => !references.includes(word)),
    references: [...references, ...ref],
  };
};

const report = (paths: string[], next: string) => {
  process.stdout.write(`${paths.map((path) => `  ${path}\n`).join('')}\n${next}\n`);
};

const program = new Command('npm run new').description('Write the files of a new resource or job.');
program
  .command('resource')
  .description('a resource of the API with a table in each school')
  .argument('<name>', 'its name in the plural: houses, bus-passes')
  .argument(
    '<fields...>',
    'name:type, or name?:type for an optional field. Types: text, integer, boolean, date, money, choice=small,large',
  )
  .option(
    '--ref <resources>',
    'other resources that each record belongs to: students,classes',
    (list: string, earlier: string[]) => [...earlier, list],
    [],
  )
  .option('--singular <word>', 'the singular of the name, if it follows no rule')
  .action(async (name: string, words: string[], { ref, singular }: { ref: string[]; singular?: string }) => {
    const { fields, references } = split(words, ref);
    report(
      await writeResource(
        process.cwd(),
        name,
        fields,
        references.flatMap((list) => list.split(',')),
        singular,
      ),
      `Next: read the files, then run \`npm run check\` and \`npm test -- test/api/${name}\`.`,
    );
  });
program
  .command('job')
  .description('a background job that runs for each school')
  .argument('<name>', 'what it does: send_reports')
  .action(async (name: string) => {
    const paths = await writeJob(process.cwd(), name);
    report(
      paths,
      `Next: write what the job does into ${paths[0] ?? ''}, then run \`npm run check\` and \`npm test -- ${paths[2] ?? ''}\`.`,
    );
  });
await program.parseAsync().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
