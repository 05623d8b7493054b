import { parse } from 'cookie';
import type { CookieOptions } from 'express';
import type { Exchange } from './endpoint.ts';
import { ApiError } from '../domain/errors.ts';

type Connection = Pick<Exchange, 'req' | 'services'>;

/** Behind a proxy that the settings don't trust the request looks like http. */
const isHttps = ({ req, services }: Connection) =>
  req.secure || services.config.PUBLIC_URL?.startsWith('https:') === true;

/**
 * The refresh token of a page that keeps none itself: no script reads it, no other site sends it. With https no other host of the same site can set one
 * of its name (else a page would log in as who set it), for which its path must be `/`; without, it goes to /api/auth alone.
 */
const nameOf = (connection: Connection) => (isHttps(connection) ? '__Host-refresh_token' : 'refresh_token');

/** As long as the token. */
const milliseconds = 30 * 24 * 60 * 60 * 1000;

const options = (connection: Connection): CookieOptions => {
  const secure = isHttps(connection);
  return { httpOnly: true, sameSite: 'strict', path: secure ? '/' : '/api/auth', secure };
};

/** The refresh token in the cookie of a request, as it stands there: one of ours has nothing to decode. What is empty is none. */
export function tokenOfCookie(exchange: Exchange): string | undefined {
  const given = parse(exchange.req.headers.cookie ?? '', { decode: (value) => value })[nameOf(exchange)];
  return given === '' ? undefined : given;
}

/** Gives the page its next refresh token. */
export function setRefreshCookie(exchange: Exchange, token: string): void {
  exchange.res.cookie(nameOf(exchange), token, { ...options(exchange), maxAge: milliseconds });
}

/** Takes the refresh token from the page. */
export function clearRefreshCookie(exchange: Exchange): void {
  exchange.res.clearCookie(nameOf(exchange), options(exchange));
}

/**
 * A browser sends cookies by itself: whoever comes with one must be a page of this origin. SameSite keeps other sites out, this other hosts of the same
 * site too.
 * @throws ApiError forbidden for any other origin, and where nothing says which it is
 */
export function requireSameOrigin({ req, services }: Exchange): void {
  const site = req.get('sec-fetch-site');
  const origin = req.get('origin');
  const own = [
    `${req.protocol}://${req.host}`,
    services.config.PUBLIC_URL && new URL(services.config.PUBLIC_URL).origin,
  ];
  const isOwn = site === undefined ? origin !== undefined && own.includes(origin) : site === 'same-origin';
  if (!isOwn) throw new ApiError('forbidden', 'The refresh cookie is for pages of this origin.');
}
