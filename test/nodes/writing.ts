import type { OutputOf } from '../support/client/output.ts';
import type { Student as StudentSchema } from '../../src/endpoints/students.ts';
import type { Client } from '../support/client/client.ts';
import { walk } from '../support/client/pages.ts';
import { unique } from '../support/server/service.ts';

/* Clients that write to a school while something happens to its server. */

export type Student = OutputOf<typeof StudentSchema>;

/** A school with a client that is logged in to it. */
interface WrittenSchool {
  admin: Client;
}

/** Clients that write to a school. */
export interface Writing extends WrittenSchool {
  /** The names of the students that were acknowledged so far. */
  acknowledged: string[];
  /** How often each status was returned; 0 if no response arrived. */
  statuses: Map<number, number>;
  /** @returns the names of all students that were acknowledged */
  stop(): Promise<string[]>;
}

/** Creates students one after the other until `stop` is called. Only those with the response 201 are acknowledged. */
export function keepWriting({ admin }: WrittenSchool): Writing {
  const acknowledged: string[] = [];
  const statuses = new Map<number, number>();
  const stopped = new AbortController();
  const written = (async () => {
    while (!stopped.signal.aborted) {
      const last_name = unique('Moved');
      const { status } = await admin
        .send('POST', '/api/students', { body: { first_name: 'Ada', last_name } })
        .catch((error: unknown) => {
          if (Error.isError(error) && error.message.endsWith('the connection was closed')) return { status: 0 };
          throw error;
        });
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      if (status === 201) acknowledged.push(last_name);
    }
  })();
  // `stop` reports it.
  written.catch(() => undefined);
  return {
    admin,
    acknowledged,
    statuses,
    async stop() {
      stopped.abort();
      await written;
      return acknowledged;
    },
  };
}

/** The names of the students that these clients have created. */
export const students = async ({ admin }: WrittenSchool) =>
  (await walk<Student>(admin, '/api/students?search=Moved', 100)).map(({ last_name }) => last_name);
