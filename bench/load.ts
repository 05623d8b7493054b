import autocannon from 'autocannon';
import { answerParent } from './child.ts';
import { type Measured, summarize } from './statistics.ts';

/** How long requests are sent: for some seconds, or until an `amount` of them is sent. */
export type Length = { seconds: number } | { amount: number };

/** A load test of one server. */
export type Load = {
  url: string;
  requests: autocannon.Request[];
  connections: number;
} & Length;

// The load generator runs in its own process, so that its work does not delay the process that waits for it.
answerParent(async ({ url, requests, connections, ...length }: Load): Promise<Measured> => {
  let client = 0;
  // autocannon reports whole milliseconds only.
  const latencies: number[] = [];
  const options: autocannon.Options = {
    url,
    connections,
    ...('amount' in length ? { amount: Math.max(length.amount, connections) } : { duration: length.seconds }),
    // Replaces `[<id>]` in bodies with a different text for each request. It takes time, so only where it is needed.
    idReplacement: requests[0]?.body?.includes('[<id>]') ?? false,
    // Each connection starts at a different request. Otherwise all would send the same request at the same time.
    setupClient(connection) {
      const start = Math.floor((requests.length / connections) * client++);
      connection.setRequests([...requests.slice(start), ...requests.slice(0, start)]);
    },
  };
  const result = await new Promise<autocannon.Result>((done, fail) => {
    autocannon(options, (error, finished) => {
      if (error instanceof Error) fail(error);
      else done(finished);
    }).on('response', (_client, _status, _bytes, latency) => latencies.push(latency));
  });
  const bad = result.non2xx + result.errors + result.timeouts;
  if (bad > 0)
    throw new Error(
      `${bad} of ${result.requests.total} requests to ${url}${requests[0]?.path ?? ''} failed: ${JSON.stringify(result.statusCodeStats)}`,
    );
  return summarize(latencies, result.duration * 1000);
});
