// Packs the service, installs the package into an empty folder, and uses it as a newcomer would: `npm run test:package`.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { startRun } from '../test/support/server/run.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');
const { folder } = await startRun();
const program = (name: string) => join(folder, 'node_modules/.bin', name);
const print = (text: string) => process.stdout.write(`${text}\n`);

/** The address of the API in the banner. */
async function addressOf(output: AsyncIterable<string>): Promise<string> {
  let text = '';
  for await (const part of output) {
    text += part;
    const [, address] = /API +(http:\S+)\/api\n/.exec(text) ?? [];
    if (address) return address;
  }
  throw new Error(`The service did not start:\n${text}`);
}

await run('npm', ['pack', '--pack-destination', folder], { cwd: root });
const [archive = ''] = (await readdir(folder)).filter((name) => name.endsWith('.tgz'));
await writeFile(join(folder, 'package.json'), '{"private": true}');
await run('npm', ['install', join(folder, archive)], { cwd: folder });
print(`installed ${archive}`);
const { stdout } = await run(program('school'), ['--help']);
if (!stdout.includes('Administer the school management service.')) throw new Error(`school --help: ${stdout}`);
print('school --help responds');
const service = spawn(program('school-management-service'), {
  cwd: folder,
  env: { ...process.env, PORT: '0', DATA_DIR: join(folder, 'data') },
  stdio: ['ignore', 'pipe', 'inherit'],
});
const exit = once(service, 'exit');
service.stdout.setEncoding('utf8');
const address = await addressOf(service.stdout.iterator({ destroyOnReturn: false }) as AsyncIterable<string>);
service.stdout.resume();
for (const path of ['/api/health/ready', '/console/', '/graphql/ide/', '/api/docs/', '/password/choose']) {
  const { status } = await fetch(address + path);
  if (status !== 200) throw new Error(`${path}: ${String(status)}`);
}
print('the service responds');
service.kill('SIGTERM');
const [code] = (await exit) as [number | null];
if (code !== 0) throw new Error(`The service ended with ${String(code)}.`);
print('1 passed, 0 failed');
