import autocannon from 'autocannon';
import { answerParent } from './child.ts';

/** A load test of one server. */
export interface Load {
  url: string;
  requests: autocannon.Request[];
  connections: number;
  seconds: number;
}

/** The result: responses per second, and latency in milliseconds. autocannon reports whole milliseconds. */
export interface Measured {
  answers: number;
  perSecond: number;
  p50: number;
  p99: number;
}

// The load generator runs in its own process, so that its work does not delay the process that waits for it.
answerParent(async ({ url, requests, connections, seconds }: Load): Promise<Measured> => {
  let client = 0;
  const result = await autocannon({
    url,
    connections,
    duration: seconds,
    // Each connection starts at a different request. Otherwise all would send the same request at the same time.
    setupClient(connection) {
      const start = Math.floor((requests.length / connections) * client++);
      connection.setRequests([...requests.slice(start), ...requests.slice(0, start)]);
    },
  });
  const bad = result.non2xx + result.errors + result.timeouts;
  if (bad > 0)
    throw new Error(
      `${bad} of ${result.requests.total} requests to ${url}${requests[0]?.path ?? ''} failed: ${JSON.stringify(result.statusCodeStats)}`,
    );
  return {
    answers: result['2xx'],
    perSecond: result['2xx'] / result.duration,
    p50: result.latency.p50,
    p99: result.latency.p99,
  };
});
