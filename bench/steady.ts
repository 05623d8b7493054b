import { Agent, request } from 'node:http';

const agent = new Agent({ keepAlive: true, maxSockets: 64 });

/** Sends one request and measures its milliseconds. @throws unless it succeeds */
export function timedRequest(
  url: string,
  path: string,
  token: string,
  body?: object,
): Promise<{ milliseconds: number; text: string }> {
  const start = performance.now();
  return new Promise((done, fail) => {
    const sent = request(
      new URL(path, url),
      {
        agent,
        method: body ? 'POST' : 'GET',
        headers: { authorization: `Bearer ${token}`, ...(body ? { 'content-type': 'application/json' } : {}) },
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (part: string) => (text += part));
        response.on('end', () => {
          if (response.statusCode === 200 || response.statusCode === 201)
            done({ milliseconds: performance.now() - start, text });
          else fail(new Error(`${path} answered ${String(response.statusCode)}: ${text.slice(0, 300)}`));
        });
      },
    );
    sent.on('error', fail);
    sent.end(body ? JSON.stringify(body) : undefined);
  });
}

/**
 * Sends requests at a steady rate, whether or not earlier ones have been answered.
 * @param rate  requests per second
 * @param send  sends one request and returns its latency
 * @returns the latencies
 */
export async function sendSteadily(rate: number, seconds: number, send: () => Promise<number>): Promise<number[]> {
  const start = performance.now();
  const pending: Promise<number>[] = [];
  for (let n = 0; n < rate * seconds; n++) {
    const early = start + (n * 1000) / rate - performance.now();
    if (early > 0) await new Promise((done) => setTimeout(done, early));
    pending.push(send());
  }
  return Promise.all(pending);
}
