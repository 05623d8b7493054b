import { ApiError, errorOf } from './errors.ts';
import type { components } from './schema.ts';

type Schemas = components['schemas'];
export type Credentials = Schemas['Login'];
export type LoginAnswer = Schemas['LoginAnswer'];
export type LoginChallenge = Schemas['LoginChallenge'];
/** What the user sends as the second factor. */
export type SecondFactor = Omit<Schemas['LoginVerify'], 'challenge'>;

/** The tokens of a login. Store them to continue the session later. */
export interface Tokens {
  accessToken?: string | undefined;
  refreshToken?: string | undefined;
  /** The token of a known device. Keep it after the session has ended, for the next login. */
  deviceToken?: string | undefined;
}

/** The result of a login: logged in, or a challenge for the second factor. */
export type LoginResult =
  | { kind: 'logged_in'; login: LoginAnswer }
  | {
      kind: 'second_factor_required';
      challenge: LoginChallenge;
      /** Completes the login. @throws ApiError `invalid_code` for a wrong code */
      verify: (factor: SecondFactor) => Promise<Schemas['LoginVerifyAnswer']>;
      /** Sets up the authenticator app, if `challenge.is_enrollment`; then call `verify` with its first code. */
      enroll: () => Promise<Schemas['TotpSetup']>;
    };

export interface Session {
  readonly tokens: Tokens;
  login: (credentials: Credentials) => Promise<LoginResult>;
  /** Ends the session, also if its access token has expired, and forgets its tokens. */
  logout: () => Promise<void>;
  /** Gets a new access token. Concurrent calls share one request. @returns whether the session continues */
  refresh: () => Promise<boolean>;
  /** Sends a request with the access token, and again with a new one if it has expired. */
  send: (request: Request) => Promise<Response>;
}

interface SessionOptions {
  url: string;
  fetch: (request: Request) => Promise<Response>;
  apiKey: string | undefined;
  tokens: Tokens;
  onTokens: ((tokens: Tokens) => void) | undefined;
}

export function createSession({ url, fetch, apiKey, tokens: stored, onTokens }: SessionOptions): Session {
  let tokens: Tokens = stored;
  let refreshing: Promise<boolean> | undefined;

  const setTokens = (changed: Tokens) => {
    tokens = { ...tokens, ...changed };
    onTokens?.(tokens);
  };

  /** Sends a request of the login itself. */
  async function post<T>(path: string, body?: object, headers: Record<string, string> = {}): Promise<T> {
    const response = await fetch(
      new Request(`${url}/api/auth/${path}`, {
        method: 'POST',
        headers: {
          Accept: 'application/json',
          ...(body ? { 'Content-Type': 'application/json' } : {}),
          ...(tokens.deviceToken ? { 'X-Known-Device': tokens.deviceToken } : {}),
          ...headers,
        },
        body: body ? JSON.stringify(body) : null,
      }),
    );
    if (!response.ok) throw await errorOf(response);
    const { data } = (await response.json()) as { data: T & { access_token?: string } };
    if (data.access_token !== undefined)
      setTokens({
        accessToken: data.access_token,
        refreshToken: response.headers.get('X-Refresh-Token') ?? tokens.refreshToken,
        deviceToken: response.headers.get('X-Known-Device') ?? tokens.deviceToken,
      });
    return data;
  }

  async function login(credentials: Credentials): Promise<LoginResult> {
    try {
      return { kind: 'logged_in', login: await post<LoginAnswer>('login', credentials) };
    } catch (error) {
      const challenge = error instanceof ApiError ? error.challenge : undefined;
      if (!challenge) throw error;
      return {
        kind: 'second_factor_required',
        challenge,
        verify: (factor) => post('login/verify', { challenge: challenge.token, ...factor }),
        enroll: () => post('login/enroll', { challenge: challenge.token }),
      };
    }
  }

  async function requestRefresh(): Promise<boolean> {
    const { refreshToken } = tokens;
    if (refreshToken === undefined) return false;
    try {
      await post('refresh', undefined, { 'X-Refresh-Token': refreshToken });
      return true;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
      setTokens({ accessToken: undefined, refreshToken: undefined });
      return false;
    }
  }

  function refresh(): Promise<boolean> {
    refreshing ??= requestRefresh().finally(() => {
      refreshing = undefined;
    });
    return refreshing;
  }

  async function send(request: Request): Promise<Response> {
    const sendWith = (token: string | undefined) => {
      const copy = request.clone();
      if (token !== undefined) copy.headers.set('Authorization', `Bearer ${token}`);
      return fetch(copy);
    };
    const used = tokens.accessToken;
    const response = await sendWith(apiKey ?? used);
    if (response.status !== 401 || apiKey !== undefined || used === undefined) return response;
    const { error } = await errorOf(response.clone());
    if (error !== 'invalid_token') return response;
    // A request that started with the old token may end after the refresh of another.
    if (tokens.accessToken === used) await refresh();
    if (tokens.accessToken === undefined) return response;
    await response.body?.cancel();
    return sendWith(tokens.accessToken);
  }

  async function logout(): Promise<void> {
    if (tokens.accessToken === undefined) await refresh();
    const response = await send(
      new Request(`${url}/api/auth/logout`, { method: 'POST', headers: { Accept: 'application/json' } }),
    );
    // A session that has ended needs no logout.
    if (!response.ok && response.status !== 401) throw await errorOf(response);
    await response.body?.cancel();
    setTokens({ accessToken: undefined, refreshToken: undefined });
  }

  return {
    get tokens() {
      return tokens;
    },
    login,
    logout,
    refresh,
    send,
  };
}
