import { runProgram } from '../server/processes.ts';

const { withOwner } = shared;

/** The statements of a script, which psql would send one by one. Bodies of functions stay whole. */
const statementsIn = (script: string): string[] =>
  script.includes('$')
    ? [script]
    : script
        .split(';')
        .map((statement) => statement.trim())
        .filter(Boolean);

/**
 * Does what `school doctor` prints as a fix, as a DBA would: statements in psql, commands in a shell.
 * @param restart  restarts the server, with these options of its command line; throws by default
 */
export async function runRemedy(
  url: string,
  remedy: string,
  restart: (options?: string[]) => Promise<unknown> = () => Promise.reject(new Error(`No restart here: ${remedy}`)),
): Promise<void> {
  const option = /^Restart the server with -c (\S+)$/.exec(remedy)?.[1];
  if (option !== undefined) {
    await restart([option]);
    return;
  }
  const command = /^npm run (?:school -- )?(.+?)(?: {2}#.*)?$/.exec(remedy)?.[1];
  if (command !== undefined) {
    const args = command.replace(' -- ', ' ').split(' ');
    const { code, stdout, stderr } = await runProgram('src/cli/main.ts', args, { DATABASE_URL: url });
    if (code !== 0) throw new Error(`${command}: ${stdout}${stderr}`);
    return;
  }
  const [, script = remedy, comment] = /^(.*); -- (.*)$/s.exec(remedy) ?? [];
  await withOwner(url, async (client) => {
    const query = /^(.*) \\gexec$/s.exec(script)?.[1];
    const { rows } = query === undefined ? { rows: [[script]] } : await client.query({ text: query, rowMode: 'array' });
    for (const [text] of rows as [string][]) for (const statement of statementsIn(text)) await client.query(statement);
  });
  if (comment === 'then restart the server') await restart();
  else if (comment === 'then: npm run migrate') await runRemedy(url, 'npm run migrate');
  else if (comment !== undefined && !comment.startsWith('if '))
    throw new Error(`This comment means nothing to the test: ${comment}`);
}
