import type { Request, RequestHandler } from 'express';
import type { Services } from '../services.ts';
import type { Claims } from './tokens.ts';

/**
 * Makes middleware that verifies the access token of a request, or reads its API key. The database checks the session,
 * or the key.
 * @returns `header` for the header `Authorization`; `stream` also takes the token of a stream from the URL, because
 *   `EventSource` cannot send a header
 */
export function authentication(
  { tokens, apiKeys }: Pick<Services, 'tokens' | 'apiKeys'>,
  limits: { refused: RequestHandler },
): { header: RequestHandler; stream: RequestHandler } {
  /** A request with a valid token is never refused because of others without one. */
  const verified =
    (verify: (req: Request) => Claims): RequestHandler =>
    (req, res, next) => {
      try {
        const key = apiKeys.read(req.headers.authorization);
        if (key) {
          req.apiKey = key;
          res.once('finish', () => {
            apiKeys.learn(key, res.statusCode);
          });
        } else req.claims = verify(req);
      } catch (refusal) {
        return limits.refused(req, res, (limit?: unknown) => next(limit ?? refusal));
      }
      next();
    };
  return {
    header: verified(({ headers }) => tokens.verify(headers.authorization)),
    stream: verified(({ headers, query: { token } }) =>
      headers.authorization !== undefined || typeof token !== 'string'
        ? tokens.verify(headers.authorization)
        : tokens.verifyStreamToken(token),
    ),
  };
}
