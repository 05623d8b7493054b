import { readdir } from 'node:fs/promises';
import { expect, test } from '@jest/globals';
import { raw } from '../support/client/raw.ts';
import { serviceOfFile } from '../support/server/service.ts';

const service = await serviceOfFile();
const get = (path: string, headers: Record<string, string> = {}) => raw(service.url, { path, headers });

interface GuidePage {
  body: string;
  ids: Set<string>;
  /** The addresses of links, scripts, style sheets and pictures. */
  addresses: URL[];
}

const unescape = (text: string) => text.replaceAll('&amp;', '&').replaceAll('&quot;', '"');

/** Reads every page of the guide that can be reached from the first one. */
async function readAll(): Promise<Map<string, GuidePage>> {
  const pages = new Map<string, GuidePage>();
  const open = ['/api/guide/'];
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (pages.has(path)) continue;
    const { status, headers, body } = await get(path);
    expect([path, status, headers['content-type']]).toEqual([path, 200, 'text/html; charset=utf-8']);
    expect([path, /<script(?![^>]* src=)|<style| style=| on\w+=/.exec(body)]).toEqual([path, null]);
    const addresses = [...body.matchAll(/ (?:href|src|data-index)="([^"]*)"/g)].map(
      ([, address = '']) => new URL(unescape(address), service.url + path),
    );
    const ids = new Set([...body.matchAll(/ id="([^"]*)"/g)].map(([, id = '']) => unescape(id)));
    pages.set(path, { body, ids, addresses });
    for (const { origin, pathname } of addresses)
      if (origin === service.url && /^\/api\/guide\/(?!assets\/)/.test(pathname)) open.push(pathname);
  }
  return pages;
}

test('the guide has a page for every document, without inline code and without broken links', async () => {
  const pages = await readAll();
  const documents = ['', 'operations/', 'decisions/'].map(async (folder) =>
    (await readdir(new URL(`../../docs/${folder}`, import.meta.url)))
      .filter((name) => name.endsWith('.md'))
      .map((name) => `/api/guide/${folder}${name.slice(0, -3)}`),
  );
  expect([...pages.keys()].sort()).toEqual(
    ['/api/guide/', '/api/guide/changelog', ...(await Promise.all(documents)).flat()].sort(),
  );
  const broken: string[] = [];
  const others = new Set<string>();
  for (const [path, { addresses }] of pages)
    for (const address of addresses) {
      const { origin, pathname, hash } = address;
      if (origin !== service.url) continue;
      const target = pages.get(pathname);
      if (!target) others.add(pathname);
      else if (hash !== '' && !target.ids.has(decodeURIComponent(hash.slice(1))))
        broken.push(`${path}: ${address.href}`);
    }
  for (const path of others) if ((await get(path)).status >= 400) broken.push(path);
  expect(broken).toEqual([]);
  expect([...others].filter((path) => path.endsWith('.png')).length).toBeGreaterThan(5);
  expect(others).toContain('/api/docs/');
});

test('a page may be kept until it changes, and its assets are cached forever', async () => {
  const { body, headers } = await get('/api/guide/decisions/0001-one-statement-per-request');
  expect(headers['content-security-policy']).toContain("default-src 'none';script-src 'self';style-src 'self'");
  expect(headers['content-security-policy']).not.toContain('unsafe');
  expect(headers['cache-control']).toBe('no-cache');
  const again = await get('/api/guide/decisions/0001-one-statement-per-request', {
    'if-none-match': String(headers.etag),
  });
  expect([again.status, again.body]).toEqual([304, '']);
  const assets = [...body.matchAll(/"\.\.\/(assets\/[^"]+)"/g)].map(([, path = '']) => path);
  expect(assets.map((path) => path.replace(/-[\w-]{8}\./, '.')).sort()).toEqual(
    ['assets/guide.css', 'assets/guide.js', 'assets/icon.svg', 'assets/search.json'].sort(),
  );
  for (const path of assets) {
    const asset = await get(`/api/guide/${path}`, { 'accept-encoding': 'br' });
    expect([asset.status, asset.headers['cache-control'], asset.headers['content-encoding']]).toEqual([
      200,
      'public, max-age=31536000, immutable',
      'br',
    ]);
  }
});

test('the guide is linked from the API reference and named at /api; other paths return a JSON 404', async () => {
  expect((await get('/api/docs/')).body).toContain('href="../guide/"');
  expect(JSON.parse((await get('/api')).body)).toMatchObject({ data: { guide: '/api/guide/' } });
  const redirect = await get('/api/guide');
  expect([redirect.status, redirect.headers.location]).toEqual([308, '/api/guide/']);
  for (const path of ['no-such-page', 'assets/guide-old.js', 'assets/..%2findex.html', '..%2fconsole%2findex']) {
    const { status, body } = await get(`/api/guide/${path}`);
    expect([path, status, (JSON.parse(body) as { error: string }).error]).toEqual([path, 404, 'not_found']);
  }
});
