import { signal } from '@preact/signals';
import { failureOf, send } from './http.ts';
import type { Profile } from './types.ts';

/**
 * Who is logged in. The access token is in memory only, in every tab the same; the refresh token is in a cookie that no script can read.
 * `ended`: the session is over while somebody works; they log in again over what they see, and nothing that they typed is lost.
 */
export const status = signal<'starting' | 'out' | 'in' | 'ended'>('starting');
export const operator = signal<Profile | undefined>(undefined);
/** Why the first refresh failed, where that was no refusal. */
export const startFailure = signal<unknown>(undefined);

interface Access {
  token: string;
  userId: number;
  /** By this machine’s clock, whatever the service’s says. */
  endsAt: number;
}

let access: Access | undefined;
/** Those who wait for a session that has ended to begin again. */
const waiting: { resume: (token: string) => void; giveUp: (reason: unknown) => void }[] = [];

/** Renew a little before the end, so that a request is not under way when it comes. */
const margin = 30_000;

type Message = { kind: 'in' | 'token'; token: string } | { kind: 'out' };
const tabs = new BroadcastChannel('console');
const tell = (message: Message) => tabs.postMessage(message);

/** Not a secret: says only that a refresh is worth trying, so that a stranger’s first visit asks for nothing. */
const remembered = 'console.has-session';
const remember = (has: boolean) => {
  if (has) localStorage.setItem(remembered, 'yes');
  else localStorage.removeItem(remembered);
};

function read(token: string): Access {
  const [, payload = ''] = token.split('.');
  const claims = JSON.parse(atob(payload.replaceAll('-', '+').replaceAll('_', '/'))) as {
    user_id: number;
    iat: number;
    exp: number;
  };
  return { token, userId: claims.user_id, endsAt: Date.now() + (claims.exp - claims.iat) * 1000 };
}

async function adopt(token: string): Promise<void> {
  const next = read(token);
  const before = operator.value;
  if (before && before.id !== next.userId) {
    // Somebody else: nothing of the one before stays, and nothing that the one before sent is done in their name.
    location.reload();
    throw new DOMException('Somebody else logged in.', 'AbortError');
  }
  access = next;
  if (!before) {
    const response = await send('/api/auth/profile', { headers: { Authorization: `Bearer ${token}` } });
    if (!response.ok) throw await failureOf(response);
    operator.value = ((await response.json()) as { data: Profile }).data;
  }
  remember(true);
  status.value = 'in';
  for (const { resume } of waiting.splice(0)) resume(token);
}

function leave(): void {
  access = undefined;
  operator.value = undefined;
  remember(false);
  status.value = 'out';
  for (const { giveUp } of waiting.splice(0)) giveUp(new DOMException('Logged out.', 'AbortError'));
}

tabs.addEventListener('message', ({ data }: MessageEvent<Message>) => {
  if (data.kind === 'out') {
    if (status.value !== 'out') leave();
    // A token that was renewed is no reason to leave the log-in page of a tab that has not started: it tries for itself.
  } else if (status.value !== 'starting') void adopt(data.token).catch(() => undefined);
});

const turn = 'console.refresh';

/** Waits for what another tab tells, a second at most. */
const heard = () =>
  new Promise<void>((done) => {
    const timer = setTimeout(done, 1_000);
    const end = () => {
      clearTimeout(timer);
      done();
    };
    tabs.addEventListener('message', end, { once: true });
  });

/** One tab after the other, where the browser can (it can not over plain http). What the tab before has told may come later than the turn. */
async function inTurn<T>(stale: string | undefined, work: () => Promise<T>): Promise<T> {
  if (!('locks' in navigator)) return work();
  const own = await navigator.locks.request(turn, { ifAvailable: true }, async (lock) =>
    lock ? { result: await work() } : undefined,
  );
  if (own) return own.result;
  return navigator.locks.request(turn, async () => {
    if (access?.token === stale) await heard();
    return work();
  });
}

/** Trades the cookie for the next access token. @returns undefined when there is no session any more */
async function refresh(stale: string | undefined): Promise<string | undefined> {
  return inTurn(stale, async () => {
    // Another tab was first, and has told.
    if (access && access.token !== stale && access.endsAt - margin > Date.now()) return access.token;
    for (let attempt = 0; ; attempt++) {
      // Kept alive: the answer carries the next cookie, which must arrive also when the page is left meanwhile.
      const response = await send('/api/auth/refresh', { method: 'POST', keepalive: true });
      if (response.ok) {
        const { data } = (await response.json()) as { data: { access_token: string } };
        tell({ kind: 'token', token: data.access_token });
        return data.access_token;
      }
      const failure = await failureOf(response);
      if (failure.status !== 401) throw failure;
      // A tab that had no turn may have used the same one a moment ago; the next is in the cookie by now.
      if (failure.code !== 'invalid_token' || attempt > 0) return undefined;
      await new Promise((done) => setTimeout(done, 300));
    }
  });
}

let renewing: Promise<string | undefined> | undefined;

/** The next access token after one that was refused; waits for a new log-in where the session is over. @throws Failure, or AbortError at log-out */
export async function renewed(stale: string | undefined): Promise<string> {
  if (access && access.token !== stale && access.endsAt > Date.now()) return access.token;
  if (status.value === 'in') {
    renewing ??= refresh(stale).finally(() => {
      renewing = undefined;
    });
    const next = await renewing;
    if (next !== undefined) {
      if (access?.token !== next) await adopt(next);
      return next;
    }
    if (operator.value) status.value = 'ended';
  }
  if (!operator.value) throw new DOMException('Logged out.', 'AbortError');
  return new Promise((resume, giveUp) => waiting.push({ resume, giveUp }));
}

/** An access token that is good for a while yet. */
export async function token(): Promise<string> {
  return status.value === 'in' && access && access.endsAt - margin > Date.now() ? access.token : renewed(access?.token);
}

/** Looks whether somebody is logged in already. */
export async function start(): Promise<void> {
  startFailure.value = undefined;
  status.value = 'starting';
  try {
    const found = localStorage.getItem(remembered) ? await refresh(undefined) : undefined;
    if (found === undefined) leave();
    else await adopt(found);
  } catch (thrown) {
    startFailure.value = thrown;
  }
}

/** @throws Failure invalid_credentials, rate_limited */
export async function logIn(email: string, password: string): Promise<void> {
  const response = await send('/api/auth/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ email, password, is_platform: true, refresh_cookie: true }),
  });
  if (!response.ok) throw await failureOf(response);
  const { data } = (await response.json()) as { data: { access_token: string } };
  await adopt(data.access_token);
  tell({ kind: 'in', token: data.access_token });
}

/** Ends the session, here and in every tab. @throws Failure when the service could not be told, and then it goes on */
export async function logOut(): Promise<void> {
  // A session that is over already has nothing to end.
  if (status.value === 'in') {
    const response = await send('/api/auth/logout', {
      method: 'POST',
      headers: { Authorization: `Bearer ${await token()}` },
    });
    if (!response.ok && response.status !== 401) throw await failureOf(response);
  }
  tell({ kind: 'out' });
  leave();
}

/** Shows a change of the own profile everywhere. */
export const setOperator = (profile: Profile): void => {
  operator.value = profile;
};
