// Runs a script of the service with the Node that it needs: TypeScript in a clone, JavaScript in the npm package. Plain
// JavaScript for Node 20, which starts it.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const root = join(import.meta.dirname ?? dirname(new URL(import.meta.url).pathname), '..');

/** The first version of Node that runs the service and strips types. */
const [minMajor, minMinor] = [22, 18];

/** This Node if it is new enough, else the one that was installed for this platform. */
function findNode() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > minMajor || (major === minMajor && minor >= minMinor)) return process.execPath;
  const require = createRequire(import.meta.url);
  for (const prefix of ['node', 'node-bin']) {
    try {
      return join(dirname(require.resolve(`${prefix}-${process.platform}-${process.arch}/package.json`)), 'bin/node');
    } catch {
      // Not the package of this platform.
    }
  }
  process.stderr.write(`Node ${minMajor}.${minMinor} or later is needed. This is ${process.versions.node}.\n`);
  return process.exit(1);
}

/**
 * Starts the script, passes signals on to it, and ends as it ends.
 * @param {string} script  without its extension
 * @param {string[]} [nodeOptions]
 */
export function run(script, nodeOptions = []) {
  const source = join(root, `${script}.ts`);
  const path = existsSync(source) ? source : join(root, `dist/service/${script}.js`);
  const child = spawn(findNode(), [...nodeOptions, path, ...process.argv.slice(2)], { stdio: 'inherit' });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.on('exit', (code, signal) => {
    if (signal) process.removeAllListeners(signal);
    if (signal) process.kill(process.pid, signal);
    else process.exit(code ?? 1);
  });
}
