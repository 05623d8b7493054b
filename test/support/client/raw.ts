import { type IncomingHttpHeaders, request } from 'node:http';

// Each request has its own connection, and the response body stays binary. wire.ts reuses connections and parses JSON.

/** A response. */
export interface RawAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
}

/** Sends a request that fetch would not: any Host header, no cache headers, no default Accept. */
export function raw(
  url: string,
  options: { method?: string; path: string; headers?: Record<string, string>; body?: string | Buffer; token?: string },
): Promise<RawAnswer> {
  const { method = 'GET', path, headers = {}, body, token } = options;
  return new Promise((done, fail) => {
    const sent = request(`${url}${path}`, {
      method,
      agent: false,
      headers: {
        ...(token ? { Authorization: `Bearer ${token}` } : {}),
        ...(typeof body === 'string' ? { 'Content-Type': 'application/json' } : {}),
        ...(body === undefined ? {} : { 'Content-Length': String(Buffer.byteLength(body)) }),
        ...headers,
      },
    });
    sent.on('error', fail);
    sent.on('response', (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', fail);
      response.on('end', () =>
        done({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks).toString('utf8'),
        }),
      );
    });
    sent.end(body);
  });
}
