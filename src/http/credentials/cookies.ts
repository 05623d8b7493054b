import { parse } from 'cookie';
import type { CookieOptions } from 'express';
import type { Exchange } from '../endpoint.ts';
import { ApiError } from '../../domain/errors.ts';

type Connection = Pick<Exchange, 'req' | 'services'>;

/** PUBLIC_URL decides too, because the request looks like http behind a proxy that TRUST_PROXY does not cover. */
const isHttps = ({ req, services }: Connection) =>
  req.secure || services.config.PUBLIC_URL?.startsWith('https:') === true;

/**
 * A cookie that scripts cannot read and other sites cannot send. With https the `__Host-` prefix keeps other hosts of
 * the same site from setting it (which would log the user in as an attacker); that prefix requires the path `/`.
 * Without https the cookie is limited to /api/auth.
 */
function hostCookie(name: string, days: number) {
  const nameFor = (connection: Connection) => (isHttps(connection) ? `__Host-${name}` : name);
  const options = (connection: Connection): CookieOptions => {
    const secure = isHttps(connection);
    return { httpOnly: true, sameSite: 'strict', path: secure ? '/' : '/api/auth', secure };
  };
  return {
    /** Reads the value, without URL decoding; undefined when it is missing or empty. */
    read(connection: Connection): string | undefined {
      const value = parse(connection.req.headers.cookie ?? '', { decode: (text) => text })[nameFor(connection)];
      return value === '' ? undefined : value;
    },
    set(exchange: Exchange, value: string): void {
      const maxAge = days * 24 * 60 * 60 * 1000;
      exchange.res.cookie(nameFor(exchange), value, { ...options(exchange), maxAge });
    },
    clear(exchange: Exchange): void {
      exchange.res.clearCookie(nameFor(exchange), options(exchange));
    },
  };
}

/** The refresh token of a browser session. db/core/lifetimes.sql decides its lifetime of 30 days. */
export const refreshCookie = hostCookie('refresh_token', 30);

/** The token of a known device. The database decides how long it is known; browsers keep no cookie for longer. */
export const deviceCookie = hostCookie('known_device', 400);

/** The refresh token of a request: from the header or, without one, from the cookie. */
export function refreshTokenOf(connection: Connection): { token: string | undefined; isCookie: boolean } {
  const header = connection.req.get('x-refresh-token');
  return header ? { token: header, isCookie: false } : { token: refreshCookie.read(connection), isCookie: true };
}

/** The token of a known device: from the header or, without one, from the cookie. Undefined for a new device. */
export const deviceTokenOf = (connection: Connection): string | undefined =>
  connection.req.get('x-known-device') ?? deviceCookie.read(connection);

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
