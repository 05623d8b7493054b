import { createRoot, React, Ruru } from './ruru/ruru.js';

const scripts = { json: 'jsonWorker.js', graphql: 'graphqlWorker.js' };
globalThis.MonacoEnvironment = {
  getWorker: (_, label) =>
    new Worker(new URL(`ruru/${scripts[label] ?? 'editorWorker.js'}`, import.meta.url), { type: 'module' }),
};

/** The access token is only kept in memory. */
let token = '';

/**
 * Gets an access token with the refresh cookie of the console. The lock is shared with the console
 * (src/console/session.ts): a refresh with a cookie that another page has replaced would end the session.
 */
const refresh = () =>
  navigator.locks.request('console.refresh', async () => {
    const answer = await fetch('/api/auth/refresh', { method: 'POST' });
    token = answer.ok ? (await answer.json()).data.access_token : '';
    return answer.ok;
  });

const login = document.getElementById('login');
const showLogin = (reason) => {
  login.hidden = false;
  login.querySelector('output').textContent = reason;
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
  if (answer.status === 401 || answer.status === 403) showLogin(json.message);
  else login.hidden = true;
  // Requests rejected before GraphQL have the error format of the API.
  return json.success === false ? { errors: [{ message: json.message, extensions: { code: json.error } }] } : json;
}

const root = createRoot(document.getElementById('ide'));
const renderEditor = (key) =>
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
  // A new key, so that the editor loads the schema again.
  renderEditor(String(Date.now()));
});

if (!(await refresh().catch(() => false))) showLogin('');
renderEditor('first');
