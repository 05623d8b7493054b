import type { ServerResponse } from 'node:http';

/** The `tenantId` of operators. */
export const platform = 0;

/** The session that a stream belongs to. */
export interface StreamOwner {
  /** `platform` for an operator. */
  tenantId: number;
  userId: number;
  sessionId: number;
}

/** An open stream: of the notifications of a user, or of the state of the installation for an operator. */
export interface Stream extends StreamOwner {
  res: ServerResponse;
  /** The id of the last message that was written. */
  lastId: number;
  /** A read for this stream, or a write to it, is in progress. */
  isBusy: boolean;
  /** There may be new messages since it became busy. */
  isReadPending: boolean;
  isWriting: boolean;
  /** The current write started before the last heartbeat. */
  isLate: boolean;
  /** Streams of a process are numbered in the order in which they were opened. */
  number: number;
  /** Which of the heartbeat slots writes to this stream. */
  slot: number;
}

/** The open streams of this process, by session and by school and user. */
export class StreamRegistry {
  readonly #bySession = new Map<number, Set<Stream>>();
  readonly #byTenant = new Map<number, Map<number, Set<Stream>>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(stream: Stream): void {
    const { tenantId, userId, sessionId } = stream;
    const users = this.#byTenant.get(tenantId) ?? new Map<number, Set<Stream>>();
    this.#byTenant.set(tenantId, users.set(userId, (users.get(userId) ?? new Set()).add(stream)));
    this.#bySession.set(sessionId, (this.#bySession.get(sessionId) ?? new Set()).add(stream));
    this.#size++;
  }

  /** Answers whether the stream was registered. */
  remove(stream: Stream): boolean {
    const { tenantId, userId, sessionId } = stream;
    const ofSession = this.#bySession.get(sessionId);
    if (!ofSession?.delete(stream)) return false;
    this.#size--;
    if (ofSession.size === 0) this.#bySession.delete(sessionId);
    const users = this.#byTenant.get(tenantId);
    const ofUser = users?.get(userId);
    ofUser?.delete(stream);
    if (ofUser?.size === 0) users?.delete(userId);
    if (users?.size === 0) this.#byTenant.delete(tenantId);
    return true;
  }

  has(stream: Stream): boolean {
    return this.#bySession.get(stream.sessionId)?.has(stream) ?? false;
  }

  all(): Stream[] {
    return [...this.#bySession.values()].flatMap((streams) => [...streams]);
  }

  sessionIds(): number[] {
    return [...this.#bySession.keys()];
  }

  ofSession(sessionId: number): Stream[] {
    return [...(this.#bySession.get(sessionId) ?? [])];
  }

  ofTenant(tenantId: number): Stream[] {
    return [...(this.#byTenant.get(tenantId)?.values() ?? [])].flatMap((streams) => [...streams]);
  }

  countOfTenant(tenantId: number): number {
    return [...(this.#byTenant.get(tenantId)?.values() ?? [])].reduce((sum, streams) => sum + streams.size, 0);
  }

  /** The newest stream of the school with the most streams. */
  newestOfBusiestTenant(): Stream | undefined {
    const counts = [...this.#byTenant.keys()].map((id) => ({ id, count: this.countOfTenant(id) }));
    const busiest = counts.toSorted((a, b) => b.count - a.count)[0];
    return busiest && this.ofTenant(busiest.id).reduce((newest, each) => (each.number > newest.number ? each : newest));
  }

  ofUser(tenantId: number, userId: number): Stream[] {
    return [...(this.#byTenant.get(tenantId)?.get(userId) ?? [])];
  }
}
