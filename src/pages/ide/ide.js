import { createRoot, React, Ruru } from './ruru/ruru.js';

const scripts = { json: 'jsonWorker.js', graphql: 'graphqlWorker.js' };
globalThis.MonacoEnvironment = {
  getWorker: (_, label) =>
    new Worker(new URL(`ruru/${scripts[label] ?? 'editorWorker.js'}`, import.meta.url), { type: 'module' }),
};

/** In memory and nowhere else: a page that is left forgets it. */
let token = '';

/** The next access token, by the cookie of an operator who is logged in at the console. Tabs take turns: a cookie works once. */
const refresh = () =>
  navigator.locks.request('console.refresh', async () => {
    const answer = await fetch('/api/auth/refresh', { method: 'POST' });
    token = answer.ok ? (await answer.json()).data.access_token : '';
    return answer.ok;
  });

const login = document.getElementById('login');
const ask = (why) => {
  login.hidden = false;
  login.querySelector('output').textContent = why;
};

const post = (body) =>
  fetch('/graphql', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'application/json', Authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });

async function fetcher({ query, variables, operationName }) {
  const body = { query, variables, operationName };
  let answer = await post(body);
  if (answer.status === 401 && (await refresh())) answer = await post(body);
  const json = await answer.json();
  if (answer.status === 401 || answer.status === 403) ask(json.message);
  else login.hidden = true;
  // What is refused before GraphQL sees it comes in the envelope of the API.
  return json.success === false ? { errors: [{ message: json.message, extensions: { code: json.error } }] } : json;
}

const root = createRoot(document.getElementById('ide'));
const show = (key) =>
  root.render(
    React.createElement(Ruru, {
      key,
      fetcher,
      initialQuery:
        '{\n  tenants {\n    totalCount\n    nodes {\n      name\n      status\n      studentCount\n    }\n  }\n}\n',
    }),
  );

login.addEventListener('submit', (event) => {
  event.preventDefault();
  token = new FormData(login).get('token').trim();
  login.reset();
  login.hidden = true;
  // Anew, so that it asks for the schema again.
  show(String(Date.now()));
});

if (!(await refresh().catch(() => false))) ask('');
show('first');
