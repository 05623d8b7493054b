import { cases } from './cases.ts';
import type { School } from './database.ts';
import { type Rig, sample, serviceRequests } from './measure.ts';
import { type Measured, median, pick, summarize } from './statistics.ts';
import { sendSteadily, timedRequest } from './steady.ts';

/** What other schools notice when one school sends ten times its share. */
export interface Fairness {
  /** Responses per second that the service can give to these schools. */
  capacity: number;
  /** The rate that is each school's share. */
  share: number;
  /** The other schools in each round, without and with the busy school. */
  without: Measured[];
  with: Measured[];
}

/**
 * Ten schools together send half of what the service can answer, each the same share, at a steady rate. Then one of them
 * sends ten times its share, so that the service is nearly saturated. Measures the other nine. Half of the requests get
 * a student, half list a class.
 */
export async function measureFairness(rig: Rig, seconds: number, rounds: number): Promise<Fairness> {
  const schools = rig.database.schools.slice(0, 10);
  const [busy, ...others] = schools;
  if (!busy || others.length < 9) throw new Error('Fairness needs at least 10 schools.');
  const mixed = cases.filter(({ name }) => name === 'get' || name === 'list');
  const requestsOf = (...of: School[]) =>
    mixed.flatMap((bench) =>
      serviceRequests(
        rig,
        sample(rig, bench, 500, () => pick(...of)),
      ),
    );
  const get = (request: ReturnType<typeof serviceRequests>[number]) => {
    const token = String(request.headers?.['authorization']).replace('Bearer ', '');
    return timedRequest(rig.service.url, request.path ?? '', token);
  };
  // With the same client as below, because it uses the same processors.
  const closedLoop = async () => {
    const requests = requestsOf(...schools);
    const end = performance.now() + seconds * 1000;
    let count = 0;
    const loop = async () => {
      for (; performance.now() < end; count++) await get(pick(...requests));
    };
    await Promise.all(Array.from({ length: rig.connections }, loop));
    return count / seconds;
  };
  await closedLoop();
  const capacity = await closedLoop();
  const share = capacity / 2 / schools.length;

  const send = async (rate: number, ...of: School[]) => {
    const requests = requestsOf(...of);
    const latencies = await sendSteadily(rate, seconds, async () => (await get(pick(...requests))).milliseconds);
    return summarize(latencies, seconds * 1000);
  };
  const result: Fairness = { capacity, share, without: [], with: [] };
  for (let round = 0; round < rounds; round++) {
    const [quiet] = await Promise.all([send(share * others.length, ...others), send(share, busy)]);
    const [crowded] = await Promise.all([send(share * others.length, ...others), send(share * 10, busy)]);
    result.without.push(quiet);
    result.with.push(crowded);
  }
  return result;
}

/** How many times as long the others' slowest responses take with the busy school. */
export const slowdown = (fairness: Fairness): number =>
  median(fairness.with.map(({ p99 }) => p99)) / median(fairness.without.map(({ p99 }) => p99));
