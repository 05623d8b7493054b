/** Times that no operator has to set. Tests shorten or lengthen them. */
export interface Timing {
  /** Between two renewals of the lease on generating a timetable, which expires after 20 s. */
  leaseRenewMs: number;
  /** How long a request for a timetable waits for its turn, in addition to its time limit. */
  timetableQueueWaitMs: number;
  /** Between two reads of the state of the installation, while operators have streams of it. */
  systemStreamIntervalMs: number;
  /** How often a process stores how many requests each school has sent. */
  usageIntervalMs: number;
  /** How often the metrics and the log get the calls of each school: what they report is per minute. */
  schoolLoadIntervalMs: number;
  /** After this time a push service that does not answer counts as down. */
  pushTimeoutMs: number;
}

export const defaultTiming: Timing = {
  leaseRenewMs: 5_000,
  timetableQueueWaitMs: 5_000,
  systemStreamIntervalMs: 2_000,
  usageIntervalMs: 60_000,
  schoolLoadIntervalMs: 60_000,
  pushTimeoutMs: 10_000,
};
