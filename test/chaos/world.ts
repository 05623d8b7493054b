import type { Acknowledged } from './acknowledged.ts';
import type { SendRequest } from './client.ts';
import type { Random } from './random.ts';

/** The state of the school as far as the clients know it from responses. */
export interface World {
  request: SendRequest;
  /** The number of this client, from 0. Some steps change only records of their own client. */
  client: number;
  students: number[];
  /** Students who are never removed or moved. */
  residents: { id: number; classId: number }[];
  fees: number[];
  invoices: number[];
  payments: number[];
  structures: { id: number; yearId: number }[];
  years: { id: number; start: Date; classes: number[] }[];
  subjects: number[];
  teachers: number[];
  users: number[];
  routes: { id: number; stopId: number }[];
  slots: number[];
  rides: number[];
  acknowledged: Acknowledged;
  /** A value that is unique in the run. */
  unique(prefix: string): string;
}

/** One step of a client, with random numbers. */
export type Step = (world: World, n: Random) => Promise<void>;
