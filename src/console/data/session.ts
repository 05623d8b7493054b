import { signal } from '@preact/signals';
import { readFailure, send } from './http.ts';
import type { Profile, TotpSetup } from '../types.ts';

/**
 * The operator's session. All tabs share one access token, which is only kept in memory. The refresh token is in a
 * cookie that scripts cannot read. `expired`: the session ended while the page was in use. The operator logs in again
 * in a dialog over the page, so nothing typed is lost.
 */
export const status = signal<'starting' | 'loggedOut' | 'loggedIn' | 'expired'>('starting');
export const operator = signal<Profile | undefined>(undefined);
/** Why the first refresh failed, unless the service rejected the cookie. */
export const startFailure = signal<unknown>(undefined);

interface Access {
  token: string;
  userId: number;
  /** By the clock of this machine, which may differ from the service's. */
  expiresAtMs: number;
}

let access: Access | undefined;
/** Requests that wait until the operator logs in again. */
const waiters: { resolve: (token: string) => void; reject: (reason: unknown) => void }[] = [];

/** Renew before the token expires, so that it does not expire during a request. */
const renewalMarginMs = 30_000;

type Message = { kind: 'in' | 'token'; token: string } | { kind: 'out' };
const tabs = new BroadcastChannel('console');
const broadcast = (message: Message) => tabs.postMessage(message);

/** Not a secret: without this flag a first visit sends no refresh request that would fail anyway. */
const hasSessionKey = 'console.has-session';
const setHasSession = (hasSession: boolean) => {
  if (hasSession) localStorage.setItem(hasSessionKey, 'yes');
  else localStorage.removeItem(hasSessionKey);
};

function decode(token: string): Access {
  const [, payload = ''] = token.split('.');
  const claims = JSON.parse(atob(payload.replaceAll('-', '+').replaceAll('_', '/'))) as {
    user_id: number;
    iat: number;
    exp: number;
  };
  return { token, userId: claims.user_id, expiresAtMs: Date.now() + (claims.exp - claims.iat) * 1000 };
}

/** Starts using an access token and resumes the requests that wait for one. */
async function adoptToken(token: string): Promise<void> {
  const next = decode(token);
  const before = operator.value;
  if (before && before.id !== next.userId) {
    // Another operator logged in. Reload, so that no data is shown to them and no pending request runs in their name.
    location.reload();
    throw new DOMException('Another operator logged in.', 'AbortError');
  }
  access = next;
  if (!before) {
    const response = await send('/api/auth/profile', { headers: { Authorization: `Bearer ${token}` } });
    if (!response.ok) throw await readFailure(response);
    operator.value = ((await response.json()) as { data: Profile }).data;
  }
  setHasSession(true);
  status.value = 'loggedIn';
  for (const { resolve } of waiters.splice(0)) resolve(token);
}

function clearSession(): void {
  access = undefined;
  operator.value = undefined;
  setHasSession(false);
  status.value = 'loggedOut';
  for (const { reject } of waiters.splice(0)) reject(new DOMException('Logged out.', 'AbortError'));
}

tabs.addEventListener('message', ({ data }: MessageEvent<Message>) => {
  if (data.kind === 'out') {
    if (status.value !== 'loggedOut') clearSession();
    // A tab that is still starting ignores tokens: it refreshes by itself.
  } else if (status.value !== 'starting') void adoptToken(data.token).catch(() => undefined);
});

/** All pages of this folder use the same lock. */
const refreshLock = 'console.refresh';

/** Waits up to a second for a message from another tab. */
const nextMessage = () =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, 1_000);
    tabs.addEventListener(
      'message',
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });

/**
 * Lets one tab at a time refresh: a late request with a cookie that was replaced meanwhile would end the session.
 * Browsers offer locks only over https; over http all tabs refresh by themselves.
 * The broadcast of the tab that held the lock before can arrive after the lock.
 */
async function withRefreshLock<T>(stale: string | undefined, work: () => Promise<T>): Promise<T> {
  if (!('locks' in navigator)) return work();
  const immediate = await navigator.locks.request(refreshLock, { ifAvailable: true }, async (lock) =>
    lock ? { result: await work() } : undefined,
  );
  if (immediate) return immediate.result;
  return navigator.locks.request(refreshLock, async () => {
    if (access?.token === stale) await nextMessage();
    return work();
  });
}

/** Exchanges the refresh cookie for a new access token. @returns undefined when the session has ended */
async function refresh(stale: string | undefined): Promise<string | undefined> {
  return withRefreshLock(stale, async () => {
    // Another tab has already renewed the token.
    if (access && access.token !== stale && access.expiresAtMs - renewalMarginMs > Date.now()) return access.token;
    // keepalive: the response sets the next cookie, which must arrive even if the page is closed meanwhile.
    const response = await send('/api/auth/refresh', { method: 'POST', keepalive: true });
    if (response.ok) {
      const { data } = (await response.json()) as { data: { access_token: string } };
      broadcast({ kind: 'token', token: data.access_token });
      return data.access_token;
    }
    const failure = await readFailure(response);
    if (failure.status !== 401) throw failure;
    return undefined;
  });
}

let renewal: Promise<string | undefined> | undefined;

/**
 * Returns a new access token after `stale` was rejected or expired. If the session has ended, waits until the operator
 * logs in again.
 * @throws Failure, or an AbortError at logout
 */
export async function renewAccessToken(stale: string | undefined): Promise<string> {
  if (access && access.token !== stale && access.expiresAtMs > Date.now()) return access.token;
  if (status.value === 'loggedIn') {
    renewal ??= refresh(stale).finally(() => {
      renewal = undefined;
    });
    const next = await renewal;
    if (next !== undefined) {
      if (access?.token !== next) await adoptToken(next);
      return next;
    }
    if (operator.value) status.value = 'expired';
  }
  if (!operator.value) throw new DOMException('Logged out.', 'AbortError');
  return new Promise((resolve, reject) => waiters.push({ resolve, reject }));
}

/** Returns an access token that stays valid for at least half a minute. */
export async function accessToken(): Promise<string> {
  return status.value === 'loggedIn' && access && access.expiresAtMs - renewalMarginMs > Date.now()
    ? access.token
    : renewAccessToken(access?.token);
}

/** Resumes the session of an earlier visit, if there is one. */
export async function restoreSession(): Promise<void> {
  startFailure.value = undefined;
  status.value = 'starting';
  try {
    const token = localStorage.getItem(hasSessionKey) ? await refresh(undefined) : undefined;
    if (token === undefined) clearSession();
    else await adoptToken(token);
  } catch (thrown) {
    startFailure.value = thrown;
  }
}

/** Sends a request without a session. @throws Failure */
async function post<T>(path: string, body: object): Promise<T> {
  const response = await send(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw await readFailure(response);
  return ((await response.json()) as { data: T }).data;
}

/** Starts the session of a login in all tabs. */
export async function enter(token: string): Promise<void> {
  await adoptToken(token);
  broadcast({ kind: 'in', token });
}

/** @throws Failure invalid_credentials, rate_limited, and second_factor_required with the challenge */
export async function logIn(email: string, password: string): Promise<void> {
  const { access_token } = await post<{ access_token: string }>('/api/auth/login', {
    email,
    password,
    is_platform: true,
    refresh_cookie: true,
  });
  await enter(access_token);
}

/**
 * Completes a login with the second factor. `enter` then starts the session.
 * @throws Failure invalid_code, rate_limited; invalid_token if the login has expired
 */
export const verifyLogin = (challenge: string, fields: object) =>
  post<{ access_token: string; recovery_codes: string[] | null }>('/api/auth/login/verify', {
    challenge,
    refresh_cookie: true,
    ...fields,
  });

/** Begins to set up the authenticator app that a login requires. */
export const enroll = (challenge: string) => post<TotpSetup>('/api/auth/login/enroll', { challenge });

/** Sends an email with a link, if the operator exists. */
export const forgotPassword = (email: string) =>
  post<{ message: string }>('/api/auth/password/forgot', { email, is_platform: true });

/** Ends the session in every tab. @throws Failure when the service cannot be reached; the session then continues */
export async function logOut(): Promise<void> {
  // An expired session has nothing to end.
  if (status.value === 'loggedIn') {
    const response = await send('/api/auth/logout', {
      method: 'POST',
      headers: { Authorization: `Bearer ${await accessToken()}` },
    });
    if (!response.ok && response.status !== 401) throw await readFailure(response);
  }
  broadcast({ kind: 'out' });
  clearSession();
}

/** Shows the changed profile everywhere on the page. */
export const setOperator = (profile: Profile): void => {
  operator.value = profile;
};
