import createFetchClient, { type MaybeOptionalInit } from 'openapi-fetch';
import type { HttpMethod, PathsWithMethod, RequiredKeysOf, SuccessResponse } from 'openapi-typescript-helpers';
import { errorOf } from './errors.ts';
import type { components, paths } from './schema.ts';
import { createSession, type Session, type Tokens } from './session.ts';
import { type StreamedNotification, streamMessages, type StreamOptions } from './streams.ts';

export { ApiError, type ErrorDetail, type ErrorName, isApiError } from './errors.ts';
export type { components, paths } from './schema.ts';
export type { Credentials, LoginAnswer, LoginChallenge, LoginResult, SecondFactor, Tokens } from './session.ts';
export type { StreamedNotification, StreamOptions } from './streams.ts';

/** The schemas of the service by name, for example `Schemas['Student']`. */
export type Schemas = components['schemas'];

type Method = 'get' | 'post' | 'put' | 'delete';
type Path<M extends Method> = PathsWithMethod<paths, M>;
type Operation<P extends keyof paths, M extends HttpMethod> = M extends keyof paths[P] ? paths[P][M] : never;
/** The JSON body of a successful response. */
type Envelope<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { responses: infer R extends Record<string | number, unknown> }
    ? SuccessResponse<R, 'application/json'>
    : never;
/** The field `data` of a successful response; a file is a Blob. */
type Data<P extends keyof paths, M extends Method> = Envelope<P, M> extends { data: infer D } ? D : Blob;
/** The parameters and the body of a request. They can be left out if none is required. */
type Init<P extends keyof paths, M extends Method> = M extends keyof paths[P]
  ? NonNullable<MaybeOptionalInit<paths[P], M>>
  : never;
type Arguments<I> = RequiredKeysOf<I> extends never ? [init?: I] : [init: I];

/** The paths of lists with pages. */
export type ListPath = {
  [P in Path<'get'>]: Envelope<P, 'get'> extends { data: unknown[]; pagination: unknown } ? P : never;
}[Path<'get'>];
/** One entry of a list. */
export type Entry<P extends ListPath> = Data<P, 'get'> extends (infer E)[] ? E : never;

export interface SchoolClientOptions {
  /** The address of the service, for example `https://school.example`. */
  url: string;
  /** An API key, instead of a login. */
  apiKey?: string;
  /** The tokens of an earlier login. */
  tokens?: Tokens;
  /** Called with the tokens after each login, refresh and logout. */
  onTokens?: (tokens: Tokens) => void;
  /** By default the global `fetch`. */
  fetch?: (request: Request) => Promise<Response>;
}

type Call<M extends Method> = <P extends Path<M>>(path: P, ...init: Arguments<Init<P, M>>) => Promise<Data<P, M>>;

/** A client of the service. Every method throws an ApiError if the service refuses the request. */
export interface SchoolClient extends Pick<Session, 'login' | 'logout' | 'refresh'> {
  readonly tokens: Tokens;
  /** Each returns the field `data` of the response. */
  get: Call<'get'>;
  post: Call<'post'>;
  put: Call<'put'>;
  delete: Call<'delete'>;
  /** All entries of a list. Requests the next page when the entries of the last one are used up. */
  list: <P extends ListPath>(path: P, ...init: Arguments<Init<P, 'get'>>) => AsyncGenerator<Entry<P>, void, undefined>;
  /** Today, `YYYY-MM-DD`, in the time zone of the school. The day of `toISOString()` is that of UTC. */
  today: () => Promise<string>;
  /** New notifications, until the signal aborts. Reconnects and misses none. */
  notifications: (options?: StreamOptions) => AsyncGenerator<StreamedNotification, void, undefined>;
  /** For operators: the state of the installation, now and whenever it changes, until the signal aborts. Reconnects. */
  system: (options?: Pick<StreamOptions, 'signal'>) => AsyncGenerator<Schemas['System'], void, undefined>;
}

/** The options of a request, as far as the client itself reads them. */
interface AnyInit {
  params?: { query?: Record<string, unknown> };
}
/** What openapi-fetch returns for any request. */
interface AnyResult {
  data?: unknown;
  response: Response;
}

/** Creates a client. */
export function createSchoolClient({
  url: given,
  apiKey,
  tokens = {},
  onTokens,
  fetch = (request) => globalThis.fetch(request),
}: SchoolClientOptions): SchoolClient {
  const url = given.replace(/\/+$/, '');
  const session = createSession({ url, fetch, apiKey, tokens, onTokens });
  const client = createFetchClient<paths>({
    baseUrl: url,
    fetch: async (request) => {
      const response = await session.send(request);
      if (!response.ok) throw await errorOf(response);
      return response;
    },
  });
  // The types of the paths are those of the methods below. TypeScript cannot follow them through both libraries.
  const send = client.request as unknown as (method: string, path: string, init?: object) => Promise<AnyResult>;

  /** The body of a response: JSON, or a file. */
  async function request(method: string, path: string, init: AnyInit = {}): Promise<unknown> {
    const { response } = await send(method, path, { ...init, parseAs: 'stream' });
    return response.headers.get('Content-Type')?.includes('json') ? response.json() : response.blob();
  }
  const call =
    <M extends Method>(method: M): Call<M> =>
    async (path, ...[init]) => {
      const body = await request(method, path, init);
      return (body instanceof Blob ? body : (body as { data: unknown }).data) as Data<typeof path, M>;
    };

  async function* list<P extends ListPath>(
    path: P,
    ...[init]: Arguments<Init<P, 'get'>>
  ): AsyncGenerator<Entry<P>, void, undefined> {
    const given: AnyInit = init ?? {};
    for (let page = Number(given.params?.query?.['page'] ?? 1), total = page; page <= total; page++) {
      const query = { pageSize: 100, ...given.params?.query, page };
      const answer = await request('get', path, { ...given, params: { ...given.params, query } });
      const { data, pagination } = answer as { data: Entry<P>[]; pagination: Schemas['Pagination'] };
      yield* data;
      total = pagination.totalPages;
    }
  }

  const get = call('get');
  const post = call('post');
  return {
    get tokens() {
      return session.tokens;
    },
    login: session.login,
    logout: session.logout,
    refresh: session.refresh,
    get,
    post,
    put: call('put'),
    delete: call('delete'),
    list,
    today: async () => (await get('/api/school-setup/status')).today,
    notifications: (options = {}) =>
      streamMessages(
        {
          url: `${url}/api/notifications/stream`,
          send: session.send,
          firstId: async () => (await post('/api/notifications/stream-token')).last_event_id,
        },
        options,
      ),
    system: (options = {}) =>
      streamMessages(
        { url: `${url}/api/platform/system/stream`, send: session.send, firstId: () => Promise.resolve(0) },
        options,
      ),
  };
}
