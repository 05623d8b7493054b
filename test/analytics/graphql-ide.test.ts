import { expect, test } from '@jest/globals';
import { serviceOfFile } from '../support/server/service.ts';
import { send } from '../support/client/wire.ts';

const service = await serviceOfFile();
const get = (path: string, headers: Record<string, string> = {}) => send(service.url, { path, headers });

test('the page loads everything from this origin and has no inline scripts', async () => {
  const { status, headers, text } = await get('/graphql/ide/');
  expect(status).toBe(200);
  const policy = Object.fromEntries(
    String(headers['content-security-policy'])
      .split(';')
      .map((directive) => {
        const [name = '', ...sources] = directive.trim().split(' ');
        return [name, sources];
      }),
  );
  expect(policy).toEqual({
    'default-src': ["'none'"],
    'script-src': ["'self'"],
    'style-src': ["'self'", "'unsafe-inline'"],
    'font-src': ["'self'", 'data:'],
    'img-src': ["'self'", 'data:'],
    'connect-src': ["'self'"],
    'worker-src': ["'self'"],
    'base-uri': ["'none'"],
    'form-action': ["'none'"],
    'frame-ancestors': ["'none'"],
  });
  expect(text).not.toMatch(/https?:\/\/|<script(?![^>]* src=)|\son\w+=|<style/);
  const loaded = [...text.matchAll(/(?:src|href)="([^"#:]+)"/g)].map(([, path = '']) => path);
  expect(loaded.length).toBeGreaterThan(2);
  for (const path of loaded) expect({ path, status: (await get(path)).status }).toEqual({ path, status: 200 });
});

test('the files of the editor are served, compressed if the browser supports it; other files are not', async () => {
  const compressed = await get('/graphql/ide/ruru/ruru.css', { 'accept-encoding': 'br, gzip' });
  expect(compressed.headers).toMatchObject({
    'content-encoding': 'br',
    'content-type': 'text/css; charset=utf-8',
    'x-content-type-options': 'nosniff',
  });
  const plain = await get('/graphql/ide/ruru/ruru.css');
  expect(plain.headers['content-encoding']).toBeUndefined();
  expect(plain.text).toContain('graphiql');
  for (const worker of ['editorWorker.js', 'graphqlWorker.js', 'jsonWorker.js'])
    expect((await get(`/graphql/ide/ruru/${worker}`)).status).toBe(200);
  for (const path of [
    'nothing.js',
    'ruru.js.map',
    '..%2f..%2fpackage.json',
    '%2e%2e%2fpackage.json',
    '__proto__',
    'constructor',
  ])
    expect({ path, status: (await get(`/graphql/ide/ruru/${path}`)).status }).toEqual({ path, status: 404 });
});

test('browsers are redirected to the page from /graphql and from a URL without the trailing slash', async () => {
  expect((await get('/graphql', { accept: 'text/html' })).headers['location']).toBe('/graphql/ide/');
  expect((await get('/graphql/ide')).headers['location']).toBe('/graphql/ide/');
});
