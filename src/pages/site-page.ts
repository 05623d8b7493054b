import { type Html, html } from './html.ts';

interface SitePage {
  kind: 'guide' | 'reference';
  title: string;
  /** The name of the site. Addresses are relative to the page. */
  site: Html | string;
  home: string;
  version?: string;
  style: string;
  script: string;
  icon?: string;
  /** The text of the link to the menu, on phones. */
  toMenu: string;
  /** Links and fields of the header. */
  header: Html;
  main: Html;
  /** The menu, and what else stands beside `main`. */
  beside: Html;
  /** Attributes of the body, for the script. */
  data?: Html;
}

/** A page of the API reference or of the guide. Both have the layout of src/pages/docs/docs.css. */
export const sitePage = (page: SitePage): string =>
  `<!doctype html>\n${
    html`<html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>${page.title}</title>
        ${page.icon !== undefined && html`<link rel="icon" type="image/svg+xml" href="${page.icon}" />`}
        <link rel="stylesheet" href="${page.style}" />
        <script type="module" src="${page.script}"></script>
      </head>
      <body class="${page.kind}" ${page.data}>
        <header>
          <strong><a href="${page.home}">${page.site}</a></strong>
          ${page.version !== undefined && html`<span class="type">${page.version}</span>`}
          <a class="to-menu" href="#menu">${page.toMenu}</a>
          ${page.header}
        </header>
        <main>${page.main}</main>
        ${page.beside}
      </body>
    </html>`.markup
  }`;
