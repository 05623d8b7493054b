import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';

/** Whether this machine can run a program at a terminal, with `script` of util-linux. */
export const hasTerminals = String(spawnSync('script', ['--version']).stdout).includes('util-linux');

/**
 * Runs a program of the project at a terminal, and types each line once the terminal shows the text before it.
 * @param command  the file and its arguments, for a shell
 */
export async function atTerminal(
  command: string,
  env: Record<string, string>,
  ...typed: [after: string, line: string][]
): Promise<{ code: number | null; shown: string }> {
  const terminal = spawn('script', ['-qefc', `exec '${process.execPath}' ${command}`, '/dev/null'], {
    cwd: join(import.meta.dirname, '../../..'),
    env: {
      PATH: process.env['PATH'] ?? '',
      POSTGRES_BIN: process.env['POSTGRES_BIN'] ?? '',
      ENV_FILE: '',
      TERM: 'dumb',
      ...env,
    },
  });
  let shown = '';
  let from = 0;
  terminal.stdout.setEncoding('utf8').on('data', (text: string) => {
    shown += text;
    const [next] = typed;
    const position = next ? shown.indexOf(next[0], from) : -1;
    if (!next || position < 0) return;
    from = position + next[0].length;
    typed.shift();
    terminal.stdin.write(`${next[1]}\n`);
  });
  const [code] = (await once(terminal, 'close')) as [number | null];
  return { code, shown };
}
