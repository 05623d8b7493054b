// Builds the guide: the documents of docs/ as pages of HTML with a search, in dist/guide. `npm run build` runs it.
import { createHash } from 'node:crypto';
import { globSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { basename, dirname, extname, join, posix } from 'node:path';
import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import graphql from 'highlight.js/lib/languages/graphql';
import http from 'highlight.js/lib/languages/http';
import ini from 'highlight.js/lib/languages/ini';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import shell from 'highlight.js/lib/languages/shell';
import sql from 'highlight.js/lib/languages/sql';
import typescript from 'highlight.js/lib/languages/typescript';
import MarkdownIt, { type Token } from 'markdown-it';
import MiniSearch from 'minisearch';
import sharp from 'sharp';
import { build } from 'vite';
import { compressFiles } from '../../packaging/compress.ts';
import { type Html, html } from '../../src/pages/html.ts';
import { sitePage } from '../../src/pages/site-page.ts';

const root = join(import.meta.dirname, '../..');
const outDir = join(root, 'dist/guide');

// Their aliases too, such as `sh`, `console` and `ts`.
for (const [name, language] of Object.entries({
  ...{ bash, graphql, http, ini, javascript, json, shell, sql, typescript },
}))
  hljs.registerLanguage(name, language);

const decisions = globSync('docs/decisions/*.md', { cwd: root })
  .map((path) => path.replaceAll('\\', '/'))
  .sort();

/** The pages in the order of the menu. Paths are relative to the repository. */
const groups: { title: string; isFolded?: boolean; paths: string[] }[] = [
  { title: 'Start here', paths: ['README.md', 'docs/tour.md', 'docs/glossary.md'] },
  {
    title: 'Using the API',
    paths: ['api', 'leaving', 'guardians', 'moving-in', 'api-keys', 'webhooks', 'analytics'].map(
      (name) => `docs/${name}.md`,
    ),
  },
  {
    title: 'Running the service',
    paths: [
      ...['production', 'running', 'upgrades', 'jobs', 'watching', 'trouble', 'runbook'].map(
        (name) => `docs/operations/${name}.md`,
      ),
      ...['schools', 'platform-operators', 'backup', 'scaling', 'security', 'benchmarks'].map(
        (name) => `docs/${name}.md`,
      ),
    ],
  },
  { title: 'Design', paths: ['docs/architecture.md', 'docs/adding-a-resource.md'] },
  { title: 'Decisions', isFolded: true, paths: decisions },
  { title: 'Releases', paths: ['CHANGELOG.md'] },
];

/** The address of a page below /api/guide/. */
const addressOf = (path: string) =>
  path === 'README.md' ? '' : path === 'CHANGELOG.md' ? 'changelog' : path.replace(/^docs\/(.*)\.md$/, '$1');

/** A picture. */
interface Asset {
  address: string;
  width: number;
  height: number;
}

interface Section {
  id: string;
  title: string;
  level: number;
  text: string;
}

interface Page {
  path: string;
  address: string;
  title: string;
  sections: Section[];
  body: Html;
}

/** The id that GitHub gives a heading, so that links work in both places. */
const slugOf = (title: string) =>
  title
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(' ', '-');

/** The address of a page or file, relative to a page. */
const relativeTo = (page: string, address: string) => '../'.repeat(page.split('/').length - 1) + address || './';

const iconPath = 'src/console/icon.svg';

/** Writes a file under a hashed name. Returns its address. */
async function writeAsset(path: string, content: Buffer): Promise<string> {
  const hash = createHash('sha256').update(content).digest('base64url').slice(0, 8);
  const extension = extname(path);
  const address = `assets/${basename(path, extension)}-${hash}${extension}`;
  await writeFile(join(outDir, address), content);
  return address;
}

/** Copies the pictures under hashed names. */
async function copyAssets(): Promise<Map<string, Asset>> {
  const assets = new Map<string, Asset>();
  for (const path of globSync('docs/images/*.{png,svg}', { cwd: root })) {
    const content = await readFile(join(root, path));
    const { width, height } = await sharp(content).metadata();
    assets.set(path.replaceAll('\\', '/'), { address: await writeAsset(path, content), width, height });
  }
  return assets;
}

/** Renders the documents. */
function renderer(assets: Map<string, Asset>) {
  const addresses = new Map(groups.flatMap(({ paths }) => paths.map((path) => [path, addressOf(path)])));
  const markdown = new MarkdownIt();
  const { renderer, utils } = markdown;
  renderer.rules['table_open'] = () => '<div class="wide" tabindex="0"><table>';
  renderer.rules['table_close'] = () => '</table></div>';
  renderer.rules['fence'] = (tokens, index) => {
    const { content = '', info: language = '' } = tokens[index] ?? {};
    const code = hljs.getLanguage(language)
      ? hljs.highlight(content, { language, ignoreIllegals: true }).value
      : utils.escapeHtml(content);
    return `<pre tabindex="0"><code>${code}</code></pre>\n`;
  };

  /** Where a link of a document leads on the site, or undefined if it leads to a file that the site does not have. */
  const resolve = (path: string, link: string): string | undefined => {
    if (/^([a-z]+:|#|\/)/.test(link)) return link;
    const [file = '', hash] = link.split('#');
    const target = posix.normalize(posix.join(posix.dirname(path), file));
    const address = addresses.get(target) ?? assets.get(target)?.address;
    return address === undefined
      ? undefined
      : relativeTo(addressOf(path), address) + (hash === undefined ? '' : `#${hash}`);
  };

  /** Points the links and pictures of a text to the site. A link to a file that the site does not have becomes text. */
  const relink = (path: string, tokens: Token[]): Token[] => {
    const isKept: boolean[] = [];
    return tokens.filter((token) => {
      if (token.type === 'link_open') {
        const link = resolve(path, String(token.attrGet('href')));
        isKept.push(link !== undefined);
        if (link !== undefined) token.attrSet('href', link);
        return link !== undefined;
      }
      if (token.type === 'link_close') return isKept.pop() ?? true;
      if (token.type === 'image') {
        const source = posix.normalize(posix.join(posix.dirname(path), String(token.attrGet('src'))));
        const asset = assets.get(source);
        if (!asset) throw new Error(`${path} shows ${source}, which is not in docs/images.`);
        token.attrSet('src', relativeTo(addressOf(path), asset.address));
        token.attrSet('loading', 'lazy');
        token.attrSet('width', String(asset.width));
        token.attrSet('height', String(asset.height));
      }
      return true;
    });
  };

  const textOf = (tokens: Token[]) =>
    tokens.map(({ type, content }) => (type === 'softbreak' ? ' ' : type === 'image' ? '' : content)).join('');

  return async (path: string): Promise<Page> => {
    const tokens = markdown.parse(await readFile(join(root, path), 'utf8'), {});
    const sections: Section[] = [];
    const ids = new Map<string, number>();
    for (const [n, token] of tokens.entries()) {
      // The policy of the pages forbids style attributes.
      if (token.attrGet('style') === 'text-align:right') token.attrSet('class', 'right');
      token.attrs &&= token.attrs.filter(([name]) => name !== 'style');
      if (token.children) token.children = relink(path, token.children);
      const text = token.children ? textOf(token.children) : token.content;
      if (token.type === 'heading_open') {
        const title = textOf(tokens[n + 1]?.children ?? []);
        const slug = slugOf(title);
        const repeated = ids.get(slug) ?? 0;
        ids.set(slug, repeated + 1);
        const id = repeated === 0 ? slug : `${slug}-${String(repeated)}`;
        token.attrSet('id', id);
        sections.push({ id, title, level: Number(token.tag.slice(1)), text: '' });
      } else if (tokens[n - 1]?.type !== 'heading_open') {
        const section = sections.at(-1);
        if (section && text !== '') section.text += `${text.replace(/\s+/g, ' ')} `;
      }
    }
    const title = sections[0]?.title ?? path;
    return {
      path,
      address: addressOf(path),
      title,
      sections,
      body: { markup: renderer.render(tokens, markdown.options, {}) },
    };
  };
}

/** Bundles the style sheet and the script of the pages. Returns their addresses. */
async function bundle(): Promise<{ script: string; style: string }> {
  const built = (await build({
    configFile: false,
    root: import.meta.dirname,
    base: './',
    logLevel: 'warn',
    build: {
      outDir,
      emptyOutDir: true,
      target: 'es2023',
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      reportCompressedSize: false,
      rolldownOptions: { input: join(import.meta.dirname, 'guide.js') },
    },
  })) as { output: { fileName: string }[] };
  const named = (extension: string) =>
    built.output.map(({ fileName }) => fileName).find((name) => name.endsWith(extension)) ?? '';
  return { script: named('.js'), style: named('.css') };
}

/** Writes the index of the search: one entry for each section. Returns its address. */
async function writeIndex(pages: Page[]): Promise<string> {
  const options = { fields: ['title', 'page', 'text'], storeFields: ['title', 'page', 'address', 'excerpt'] };
  const search = new MiniSearch({ ...options, idField: 'address' });
  for (const { address, title: page, sections } of pages)
    for (const { id, title, level, text } of sections)
      search.add({
        ...{ title, page, text },
        address: level === 1 ? address : `${address}#${id}`,
        excerpt: text.length > 140 ? `${text.slice(0, 140).replace(/\s\S*$/, '')} …` : text.trim(),
      });
  const content = JSON.stringify({ options: { ...options, idField: 'address' }, index: search });
  return writeAsset('search.json', Buffer.from(content));
}

interface Site {
  pages: Map<string, Page>;
  script: string;
  style: string;
  icon: string;
  index: string;
}

const link = (from: Page, to: Page): Html =>
  html`<a href="${relativeTo(from.address, to.address)}" ${from === to && { markup: 'aria-current="page"' }}
    >${to.address === '' ? 'Introduction' : to.title}</a
  >`;

function menu(page: Page, { pages }: Site): Html {
  return html`<nav id="menu" aria-label="Pages">
    ${groups.map(({ title, isFolded, paths }) => {
      const list = html`<ul>
        ${paths.map((path) => {
          const target = pages.get(path);
          return target && html`<li>${link(page, target)}</li>`;
        })}
      </ul>`;
      return isFolded
        ? html`<details ${paths.includes(page.path) && { markup: 'open' }}>
            <summary>${title}</summary>
            ${list}
          </details>`
        : html`<h2>${title}</h2>
            ${list}`;
    })}
  </nav>`;
}

/** The headings of a page, if there are enough to choose from. */
function outline({ sections }: Page): Html | false {
  const shown = sections.filter(({ level }) => level === 2);
  return (
    shown.length > 1 &&
    html`<nav class="outline" aria-labelledby="outline">
      <h2 id="outline">On this page</h2>
      <ul>
        ${shown.map(({ id, title }) => html`<li><a href="#${id}">${title}</a></li>`)}
      </ul>
    </nav>`
  );
}

function neighbors(page: Page, { pages }: Site): Html {
  const all = [...pages.values()];
  const [previous, next] = [all[all.indexOf(page) - 1], all[all.indexOf(page) + 1]];
  return html`<nav class="neighbors" aria-label="Previous and next page">
    ${previous && html`<p>Previous: ${link(page, previous)}</p>`} ${next && html`<p>Next: ${link(page, next)}</p>`}
  </nav>`;
}

function pageText(page: Page, site: Site): string {
  const at = (address: string) => relativeTo(page.address, address);
  const name = 'School management service';
  return sitePage({
    kind: 'guide',
    title: `${page.address === '' ? 'Guide' : page.title} - ${name}`,
    site: name,
    home: at(''),
    style: at(site.style),
    script: at(site.script),
    icon: at(site.icon),
    toMenu: 'All pages',
    data: html`data-guide="${at('')}" data-index="${at(site.index)}"`,
    header: html`<a href="${at('../docs/')}">API reference</a>
      <search hidden>
        <label for="search">Search</label>
        <input id="search" type="search" autocomplete="off" aria-controls="results" placeholder="/" />
        <p id="count" role="status"></p>
        <ul id="results"></ul>
      </search>`,
    main: html`${page.body} ${neighbors(page, site)}`,
    beside: html`${outline(page)} ${menu(page, site)}`,
  });
}

/** Builds the site into dist/guide. */
export async function buildGuide(): Promise<void> {
  const listed = groups.flatMap(({ paths }) => paths);
  const missing = globSync('docs/{,operations/}*.md', { cwd: root }).filter(
    (path) => !listed.includes(path.replaceAll('\\', '/')),
  );
  if (missing.length > 0) throw new Error(`Add ${missing.join(', ')} to a group in docs/site/build.ts.`);
  const { script, style } = await bundle();
  const render = renderer(await copyAssets());
  const pages = new Map<string, Page>();
  for (const path of listed) pages.set(path, await render(path));
  const icon = await writeAsset(iconPath, await readFile(join(root, iconPath)));
  const site = { pages, script, style, icon, index: await writeIndex([...pages.values()]) };
  for (const page of pages.values()) {
    const file = join(outDir, `${page.address || 'index'}.html`);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, pageText(page, site));
  }
  await compressFiles(outDir);
}

if (import.meta.main) await buildGuide();
