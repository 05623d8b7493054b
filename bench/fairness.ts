import { cases } from './cases.ts';
import type { School } from './database.ts';
import { type Rig, sample, serviceRequests } from './measure.ts';
import { type Measured, median, pick, summarize } from './statistics.ts';
import { sendSteadily, timedRequest } from './steady.ts';

/** What nine schools notice when a tenth sends ten times its share. */
export interface Fairness {
  /** Responses per second that the service can give to these schools, with as many requests at once as connections. */
  capacity: number;
  loads: FairnessAtLoad[];
}

export interface FairnessAtLoad {
  /** The part of the capacity that the ten schools use together, before one sends more. */
  part: number;
  /** The nine in each round, without and with the busy school. */
  without: Measured[];
  with: Measured[];
  /** The nine while all ten together send as much as with the busy school: the effect of the load alone. */
  equal: Measured[];
}

/**
 * Ten schools send at a steady rate, each the same share: together a quarter, and half of the capacity of the service. At
 * each of these loads, one of them then sends ten times its share, so that the load is twice as high. Half of the requests
 * get a student, half list a class.
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
        sample(rig, bench, 500, () => pick(of)),
      ),
    );
  const get = (request: ReturnType<typeof serviceRequests>[number]) => {
    const token = String(request.headers?.['authorization']).replace('Bearer ', '');
    return timedRequest(rig.service.url, request.path ?? '', token);
  };
  // With the same client as below, because it uses the same processors.
  const closedLoop = async (isDone: (count: number) => boolean) => {
    const requests = requestsOf(...schools);
    let count = 0;
    const loop = async () => {
      while (!isDone(count++)) await get(pick(requests));
    };
    await Promise.all(Array.from({ length: rig.connections }, loop));
    return count - rig.connections;
  };
  // Warms up each connection for each school, ten times each kind of request.
  await closedLoop((count) => count >= 10 * mixed.length * schools.length * rig.connections);
  const end = performance.now() + seconds * 1000;
  const capacity = (await closedLoop(() => performance.now() >= end)) / seconds;

  const send = async (rate: number, ...of: School[]) => {
    const requests = requestsOf(...of);
    const latencies = await sendSteadily(rate, seconds, async () => (await get(pick(requests))).milliseconds);
    return summarize(latencies, seconds * 1000);
  };
  const measureAt = async (part: number): Promise<FairnessAtLoad> => {
    const share = (capacity * part) / schools.length;
    const sendShares = async (ofOthers: number, ofBusy: number) => {
      const [nine] = await Promise.all([send(share * ofOthers * others.length, ...others), send(share * ofBusy, busy)]);
      return nine;
    };
    const result: FairnessAtLoad = { part, without: [], with: [], equal: [] };
    for (let round = 0; round < rounds; round++) {
      result.without.push(await sendShares(1, 1));
      result.with.push(await sendShares(1, 10));
      result.equal.push(await sendShares(1.9, 1.9));
    }
    return result;
  };
  return { capacity, loads: [await measureAt(0.25), await measureAt(0.5)] };
}

/** How many times as long the slowest responses of the nine take with the busy school. */
export const slowdown = (fairness: FairnessAtLoad): number =>
  median(fairness.with.map(({ p99 }) => p99)) / median(fairness.without.map(({ p99 }) => p99));
