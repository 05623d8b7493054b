import type { Command } from 'commander';

/** Examples for the help of each command, by its name. */
const examples: Record<string, readonly string[]> = {
  'commit-migration': ['school commit-migration "rooms"'],
  'database adopt': ['school database adopt --as copy', 'school database adopt --as successor --yes'],
  'database reset': ['school database reset', 'school database reset --yes'],
  'analytics refresh': ['school analytics refresh', 'school analytics refresh --tenant demo'],
  status: ['school status', 'school status --watch', 'school status --json | jq .queue.tasks'],
  doctor: [
    'school doctor',
    'school doctor --server --offline',
    'school doctor --server --fix',
    'school doctor --tenant demo --json',
  ],
  sql: [
    'school sql north',
    'school sql north --file question.sql --json',
    'school sql north --write --file correction.sql',
    'school sql north --write --yes < correction.sql',
  ],
  'jobs list': ['school jobs list', 'school jobs list --json'],
  'jobs failed': ['school jobs failed', 'school jobs failed --task send_email --limit 10'],
  'jobs show': ['school jobs show 319'],
  'jobs retry': ['school jobs retry 319 320', 'school jobs retry --task deliver', 'school jobs retry --task outbox 41'],
  'jobs cancel': [
    'school jobs cancel 319',
    'school jobs cancel --task deliver --failed',
    'school jobs cancel --task outbox --tenant demo',
  ],
  'migrate status': ['school migrate status', 'school migrate status --json'],
  'migrate plan': ['school migrate plan', 'school migrate plan --sample 10'],
  'migrate up': [
    'school migrate up --dry-run',
    'school migrate up --canary 3 --jobs 4',
    'school migrate up --skip north --reason "the school corrects its data until Friday"',
    'school migrate up --replace 0018',
  ],
  'migrate new': ['school migrate new houses'],
  'migrate watch': ['school migrate watch'],
  openapi: ['school openapi > openapi.json', 'school openapi --lint'],
  'graphql-schema': ['school graphql-schema > analytics.graphql'],
  'node add': ['school node add east postgres://postgres@10.0.0.2/school'],
  'node list': ['school node list', 'school node list --json'],
  'node verify': ['school node verify', 'school node verify --json'],
  'node reconcile': ['school node reconcile --dry-run', 'school node reconcile --yes'],
  'node drain': ['school node drain east', 'school node drain east --undo'],
  'node refresh': ['school node refresh', 'school node refresh east'],
  'node release': ['school node release', 'school node release --json'],
  'node remove': [
    'school node remove east',
    'school node remove east --lost',
    'school node remove east --lost --delete-schools --yes',
  ],
  rebalance: ['school rebalance --dry-run', 'school rebalance --include-home --confirm --yes'],
  'forwarder create': ['school forwarder create api_1 postgres://postgres@127.0.0.1/forwarder'],
  'forwarder remove': [
    'school forwarder remove api_1 postgres://postgres@127.0.0.1/forwarder',
    'school forwarder remove api_1',
  ],
  'operator list': ['school operator list', 'school operator list --json'],
  'operator create': [
    'school operator create ada@example.org',
    'school operator create ana@example.org --role analyst --tenant 3 --tenant 7',
  ],
  'operator reset-second-factor': ['school operator reset-second-factor ada@example.org'],
  'operator disable': ['school operator disable ada@example.org --yes'],
  'operator enable': ['school operator enable ada@example.org'],
  'operator set-role': ['school operator set-role ada@example.org analyst'],
  'operator set-tenants': [
    'school operator set-tenants ana@example.org 3 7',
    'school operator set-tenants ana@example.org --all',
  ],
  'tenant list': ['school tenant list', 'school tenant list --json'],
  'tenant show': ['school tenant show demo', 'school tenant show 7 --json'],
  'tenant create': [
    'school tenant create north --name "North School" --plan Premium --contact-email head@north.example',
    'ADMIN_PASSWORD=… school tenant create north --name "North School" --plan 3 --contact-email head@north.example',
  ],
  'tenant suspend': ['school tenant suspend north'],
  'tenant activate': ['school tenant activate north'],
  'tenant delete': ['school tenant delete north', 'school tenant delete north --yes'],
  'tenant restore': ['school tenant restore north'],
  'tenant move': [
    'school tenant move north east',
    'school tenant move north --confirm --yes',
    'school tenant move north east --cancel',
    'school tenant move north east --cancel --lost',
  ],
  'tenant export': ['school tenant export north', 'school tenant export north --file north.jsonl.gz'],
  'tenant import': ['school tenant import north.jsonl.gz', 'school tenant import north.jsonl.gz --as north-2'],
  'tenant clone': ['school tenant clone north north-training'],
  'tenant verify': ['school tenant verify north north.jsonl.gz', 'school tenant verify north north-training'],
  'student export': ['school student export north 1204', 'school student export 7 1204 --file amina.zip'],
  'student erase': ['school student erase north 1204', 'school student erase north 1204 --yes'],
};

/** Adds the examples to the help of every command. A group shows the first example of each of its commands. */
export function addExamples(command: Command, path: readonly string[] = []): readonly string[] {
  const own = examples[path.join(' ')] ?? [];
  const ofChildren = command.commands.flatMap((child) => addExamples(child, [...path, child.name()]).slice(0, 1));
  const shown = [...own, ...ofChildren];
  if (shown.length > 0) command.addHelpText('after', `\nExamples:\n${shown.map((line) => `  $ ${line}\n`).join('')}`);
  return shown;
}
