import { readdir, readFile } from 'node:fs/promises';
import type { Server } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { expect, test } from '@jest/globals';
import express from 'express';
import { consoleRouter } from '../../src/pages/console.ts';
import { raw } from '../support/client/raw.ts';
import { serviceOfFile } from '../support/server/service.ts';

const service = await serviceOfFile();
const folder = new URL('../../dist/console/', import.meta.url);
const text = (body: string | Buffer) => body.toString();

test('every path below /console serves the page, uncached and with a policy that forbids inline code', async () => {
  for (const path of ['/console', '/console/', '/console/schools/7?x=1', '/console/audit']) {
    const { status, headers, body } = await raw(service.url, { path });
    expect([status, headers['content-type'], headers['cache-control']]).toEqual([
      200,
      'text/html; charset=utf-8',
      'no-cache',
    ]);
    expect(headers['content-security-policy']).toBe(
      "default-src 'none';script-src 'self';style-src 'self';connect-src 'self';" +
        "base-uri 'none';form-action 'none';frame-ancestors 'none';img-src 'self';" +
        "require-trusted-types-for 'script';trusted-types 'none'",
    );
    expect([headers['x-content-type-options'], headers['referrer-policy']]).toEqual(['nosniff', 'no-referrer']);
    expect(text(body)).not.toMatch(/<script(?![^>]* src=)|<style|style=|https?:/);
  }
});

test('assets have hashed names, are cached forever and are served compressed if the browser accepts it', async () => {
  const page = text((await raw(service.url, { path: '/console/' })).body);
  const assets = [...page.matchAll(/(?:src|href)="(\/console\/[^"]+)"/g)].map(([, path]) => path ?? '');
  expect(assets.length).toBeGreaterThanOrEqual(3);
  for (const path of assets) {
    expect(path).toMatch(/^\/console\/assets\/\w+-[\w-]{8}\.(js|css|svg)$/);
    const plain = await fetch(service.url + path, { headers: { 'Accept-Encoding': 'identity' } });
    const content = Buffer.from(await plain.arrayBuffer());
    expect([plain.status, plain.headers.get('cache-control'), plain.headers.get('vary')]).toEqual([
      200,
      'public, max-age=31536000, immutable',
      'Accept-Encoding',
    ]);
    expect(plain.headers.get('content-encoding')).toBeNull();
    const stored = await readFile(new URL(path.slice('/console/'.length), folder));
    expect(content.equals(stored)).toBe(true);
    expect(
      brotliDecompressSync(await readFile(new URL(`${path.slice('/console/'.length)}.br`, folder))).equals(stored),
    ).toBe(true);
    for (const encoding of ['br', 'gzip']) {
      const compressed = await fetch(service.url + path, { headers: { 'Accept-Encoding': encoding } });
      expect(compressed.headers.get('content-encoding')).toBe(encoding);
      expect(Buffer.from(await compressed.arrayBuffer()).equals(stored)).toBe(true);
    }
    const head = await fetch(service.url + path, { method: 'HEAD' });
    expect([head.status, Number(head.headers.get('content-length')) > 0]).toEqual([200, true]);
  }
});

test('missing assets and other methods return a JSON 404', async () => {
  for (const [method, path] of [
    ['GET', '/console/assets/index-old.js'],
    ['GET', '/console/assets/..%2findex.html'],
    ['POST', '/console/'],
  ] as const) {
    const answer = await raw(service.url, { method, path });
    expect([answer.status, JSON.parse(text(answer.body))]).toMatchObject([404, { success: false, error: 'not_found' }]);
  }
});

test('the first load is less than 150 kB gzipped', async () => {
  const names = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.gz'));
  const sizes = await Promise.all(names.map(async (name) => (await readFile(new URL(name, folder))).length));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  expect(names.length).toBeGreaterThanOrEqual(4);
  expect(gunzipSync(await readFile(new URL('index.html.gz', folder))).toString()).toContain('<div id="console">');
  expect(total).toBeLessThan(150_000);
});

test('without a build, the page and the log say how to build the console', async () => {
  const lines: object[] = [];
  const app = express().use(
    '/console',
    consoleRouter({ warn: (line: object) => lines.push(line) } as never, '/nowhere'),
  );
  const server: Server = createServer(app);
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const answer = await raw(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, { path: '/console/schools' });
  server.close();
  expect([answer.status, answer.headers['cache-control']]).toEqual([503, 'no-store']);
  expect(text(answer.body)).toContain('npm run build');
  expect(lines).toMatchObject([{ message: 'The console is not built. Run npm run build.' }]);
});
