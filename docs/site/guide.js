// The search of the guide. Without this script the pages and the menu work, and the search is hidden.
import MiniSearch from 'minisearch';
import '../../src/pages/docs/docs.css';

const { guide, index: indexAddress } = document.body.dataset;
const box = document.querySelector('search');
const input = document.querySelector('#search');
const count = document.querySelector('#count');
const list = document.querySelector('#results');
const maxResults = 12;

let loading;
/** Loads the index at the first use. */
const loadIndex = () =>
  (loading ??= fetch(indexAddress)
    .then((response) => response.json())
    .then(({ options, index }) => MiniSearch.loadJS(index, options))
    .catch((error) => {
      loading = undefined;
      throw error;
    }));

function entry({ title, page, address, excerpt }) {
  const link = document.createElement('a');
  link.href = guide + address;
  const name = document.createElement('strong');
  name.textContent = title;
  const place = document.createElement('span');
  place.className = 'place';
  place.textContent = title === page ? '' : page;
  const text = document.createElement('span');
  text.className = 'excerpt';
  text.textContent = excerpt;
  link.append(name, ' ', place, text);
  const item = document.createElement('li');
  item.append(link);
  return item;
}

const links = () => [...list.querySelectorAll('a')];

function close() {
  list.replaceChildren();
  count.textContent = '';
}

async function search() {
  const words = input.value.trim();
  if (words === '') {
    close();
    return;
  }
  try {
    const index = await loadIndex();
    // The reader may have typed on while the index was loading.
    if (words !== input.value.trim()) return;
    const found = index.search(words, {
      ...{ prefix: true, fuzzy: 0.15, boost: { title: 3, page: 2 }, combineWith: 'AND' },
      // Readers look for instructions more often than for reasons and history.
      boostDocument: (address) => (/^(decisions|changelog)/.test(address) ? 0.3 : 1),
    });
    list.replaceChildren(...found.slice(0, maxResults).map(entry));
    count.textContent =
      found.length === 0
        ? `Nothing was found for "${words}".`
        : found.length > maxResults
          ? `The first ${maxResults} of ${found.length} results`
          : `${found.length} ${found.length === 1 ? 'result' : 'results'}`;
  } catch {
    count.textContent = 'The search could not be loaded. Check the connection and type again.';
  }
}

box.hidden = false;
input.addEventListener('focus', () => void loadIndex().catch(() => undefined), { once: true });
input.addEventListener('input', () => void search());
// A link to a heading of this page loads nothing, so the results would stay open.
list.addEventListener('click', () => setTimeout(close));
document.addEventListener('click', (event) => {
  if (!box.contains(event.target)) close();
});
box.addEventListener('focusout', (event) => {
  if (event.relatedTarget && !box.contains(event.relatedTarget)) close();
});
document.addEventListener('keydown', (event) => {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? '');
  if (event.key === '/' && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    input.focus();
  }
});
box.addEventListener('keydown', (event) => {
  const all = links();
  const position = all.indexOf(document.activeElement);
  if (event.key === 'Escape') {
    close();
    input.focus();
  } else if (event.key === 'Enter' && document.activeElement === input) all[0]?.click();
  else if (event.key === 'ArrowDown') (all[position + 1] ?? all.at(-1))?.focus();
  else if (event.key === 'ArrowUp') (all[position - 1] ?? input).focus();
  else return;
  event.preventDefault();
});
