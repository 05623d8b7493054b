// The search of the menu, and the forms that send requests.

/** The token of this tab, so that the pages of other sections have it. */
const token = document.querySelector('#token');
token.value = sessionStorage.getItem('docs-token') ?? '';
token.addEventListener('input', () => sessionStorage.setItem('docs-token', token.value));

/** Keeps the access token that a login or a refresh returned. */
function keepToken(address, { data } = {}) {
  if (!address.startsWith('/api/auth/') || typeof data?.access_token !== 'string') return;
  token.value = data.access_token;
  sessionStorage.setItem('docs-token', data.access_token);
}

/** The address and the options of the request of a form. */
function requestOf(form) {
  const { method } = form.dataset;
  let { path } = form.dataset;
  const query = new URLSearchParams();
  const headers = new Headers({ Accept: 'application/json, */*' });
  if (token.value) headers.set('Authorization', `Bearer ${token.value}`);
  let body;
  for (const field of form.querySelectorAll('[data-in]')) {
    const { value, name } = field;
    if (field.dataset.in === 'path') path = path.replace(`{${name}}`, encodeURIComponent(value));
    else if (field.dataset.in === 'body') {
      body = value;
      headers.set('Content-Type', 'application/json');
    } else if (field.dataset.in === 'form') {
      body ??= new FormData();
      const [file] = field.files ?? [];
      if (file) body.set(name, file);
      else if (!field.files && value) body.set(name, value);
    } else if (value && field.dataset.in === 'query') query.append(name, value);
    else if (value) headers.set(name, value);
  }
  return [query.size > 0 ? `${path}?${query}` : path, { method, headers, body }];
}

/** Shows a response. Only the beginning of a stream is read. */
async function show(form) {
  const output = form.querySelector('output');
  const result = document.createElement('pre');
  result.tabIndex = 0;
  output.replaceChildren(result);
  try {
    const [address, options] = requestOf(form);
    const response = await fetch(address, options);
    const type = response.headers.get('Content-Type') ?? '';
    const head = `${response.status} ${response.statusText}\n${type}\n\n`;
    if (type.startsWith('text/event-stream')) {
      result.textContent = head;
      for await (const bytes of response.body.pipeThrough(new TextDecoderStream())) result.textContent += bytes;
      return;
    }
    if (!/json|text/.test(type)) {
      const link = document.createElement('a');
      link.href = URL.createObjectURL(await response.blob());
      link.download = '';
      link.textContent = 'Save the file';
      result.textContent = head;
      output.append(link);
      return;
    }
    const text = await response.text();
    if (!type.includes('json')) {
      result.textContent = head + text;
      return;
    }
    const answer = JSON.parse(text);
    keepToken(address, answer);
    result.textContent = head + JSON.stringify(answer, null, 2);
  } catch (error) {
    result.textContent = `The request failed: ${error.message}`;
  }
}

document.addEventListener('submit', (event) => {
  event.preventDefault();
  void show(event.target);
});

const filter = document.querySelector('#filter');
filter.addEventListener('input', () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of document.querySelectorAll('nav details')) {
    let found = 0;
    for (const item of section.querySelectorAll('li')) {
      const isFound = words.every((word) => item.dataset.words.includes(word));
      item.hidden = !isFound;
      if (isFound) found++;
    }
    section.hidden = found === 0;
    section.open = words.length > 0 && found > 0;
  }
});
