import { type Html, html } from './html.ts';
import { article, type Entry, type ReferenceDocument } from './operation-html.ts';
import { prose } from './schema-html.ts';
import { sitePage } from './site-page.ts';

// Renders the OpenAPI document as pages of HTML, one per section.

interface Section {
  name: string;
  description: string;
  /** The name in the address of its page. */
  file: string;
  entries: Entry[];
}

function sectionsOf({ tags, paths }: ReferenceDocument): Section[] {
  const entries: Entry[] = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  );
  return tags.map(({ name, description }) => ({
    name,
    description,
    file: name.toLowerCase().replace(/[^a-z0-9]+/g, '-'),
    entries: entries.filter(({ operation }) => operation.tags.includes(name)),
  }));
}

const menuItem = (file: string, { method, path, operation: { summary, operationId } }: Entry): Html =>
  html`<li data-words="${`${method} ${path} ${summary}`.toLowerCase()}">
    <a href="${file}#${operationId}">${summary}</a>
  </li>`;

const menu = (sections: Section[], current: Section): Html =>
  html`<nav id="menu" aria-label="Operations">
    <label for="filter">Find an operation</label>
    <input id="filter" type="search" placeholder="student, POST, /fees …" autocomplete="off" />
    ${sections.map(
      (section) =>
        html`<details ${section === current && 'open'}>
          <summary>${section.name}</summary>
          <ul>
            ${section.entries.map((entry) => menuItem(section.file, entry))}
          </ul>
        </details>`,
    )}
  </nav>`;

/** The introduction of the document, above its first section. */
const introduction = ({ info: { title, description } }: ReferenceDocument): Html =>
  html`<h1>${title}</h1>
    ${prose(description)}`;

function page(document: ReferenceDocument, sections: Section[], section: Section, top: Html | false): string {
  const { title, version } = document.info;
  return sitePage({
    kind: 'reference',
    title: `${section.name}: ${title}, API`,
    site: title,
    home: './',
    version,
    style: 'docs.css',
    script: 'docs.js',
    toMenu: 'All operations',
    header: html`<a href="../guide/">Guide</a>
      <a href="../openapi.json">openapi.json</a>
      <label for="token">Access token</label>
      <input id="token" type="password" autocomplete="off" placeholder="filled in by a login below" />`,
    main: html`${top}
      <h2>${section.name}</h2>
      ${prose(section.description)} ${section.entries.map((entry) => article(entry, document.components))}`,
    beside: menu(sections, section),
  });
}

/** Functions that render the pages of a document, by the name in their address. */
export function referencePages(document: ReferenceDocument): Map<string, () => string> {
  const sections = sectionsOf(document);
  const pages = new Map(sections.map((section) => [section.file, () => page(document, sections, section, false)]));
  const [first] = sections;
  if (first) pages.set('', () => page(document, sections, first, introduction(document)));
  return pages;
}
