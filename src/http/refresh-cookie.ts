import { parse } from 'cookie';
import type { CookieOptions } from 'express';
import type { Exchange } from './endpoint.ts';
import { ApiError } from '../domain/errors.ts';

type Connection = Pick<Exchange, 'req' | 'services'>;

/** PUBLIC_URL decides too, because the request looks like http behind a proxy that TRUST_PROXY does not cover. */
const isHttps = ({ req, services }: Connection) =>
  req.secure || services.config.PUBLIC_URL?.startsWith('https:') === true;

/**
 * The cookie that holds the refresh token of a browser session. Scripts cannot read it and other sites cannot send it.
 * With https the `__Host-` prefix keeps other hosts of the same site from setting it (which would log the user in as an
 * attacker); that prefix requires the path `/`. Without https the cookie is limited to /api/auth.
 */
const cookieName = (connection: Connection) => (isHttps(connection) ? '__Host-refresh_token' : 'refresh_token');

/** The lifetime of a refresh token, which db/core/lifetimes.sql decides. */
const refreshTokenDays = 30;

const options = (connection: Connection): CookieOptions => {
  const secure = isHttps(connection);
  return { httpOnly: true, sameSite: 'strict', path: secure ? '/' : '/api/auth', secure };
};

/** Reads the refresh token from the cookie, without URL decoding; undefined when it is missing or empty. */
export function tokenOfCookie(exchange: Exchange): string | undefined {
  const token = parse(exchange.req.headers.cookie ?? '', { decode: (value) => value })[cookieName(exchange)];
  return token === '' ? undefined : token;
}

/** Sets the cookie to the next refresh token. */
export function setRefreshCookie(exchange: Exchange, token: string): void {
  exchange.res.cookie(cookieName(exchange), token, {
    ...options(exchange),
    maxAge: refreshTokenDays * 24 * 60 * 60 * 1000,
  });
}

/** Deletes the cookie. */
export function clearRefreshCookie(exchange: Exchange): void {
  exchange.res.clearCookie(cookieName(exchange), options(exchange));
}

/**
 * Protects against cross-site request forgery: a request with the cookie must come from a page of this origin. SameSite
 * excludes other sites, this check also other hosts of the same site.
 * @throws ApiError forbidden for another origin, or if the request has no header that tells the origin
 */
export function requireSameOrigin({ req, services }: Exchange): void {
  const site = req.get('sec-fetch-site');
  const origin = req.get('origin');
  const ownOrigins = [
    `${req.protocol}://${req.host}`,
    services.config.PUBLIC_URL && new URL(services.config.PUBLIC_URL).origin,
  ];
  const isOwn = site === undefined ? origin !== undefined && ownOrigins.includes(origin) : site === 'same-origin';
  if (!isOwn) throw new ApiError('forbidden', 'The refresh cookie can only be used by pages of this origin.');
}
