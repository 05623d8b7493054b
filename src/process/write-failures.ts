/** The database cannot write: a full disk, no memory, an error of the disk, or it takes only reads. */
const cannotWrite = /^(53[124]00|58030|25006)$/;

/** How long a failure counts if no write follows it. */
const rememberedMs = 60_000;

/** Whether the writes of this process reach the database. */
export interface WriteFailures {
  /** @param sqlstate  of the failure; undefined if the write succeeded */
  record: (sqlstate: string | undefined) => void;
  /** Whether the last write failed, at most a minute ago. */
  areFailing: () => boolean;
}

export function writeFailures(now: () => number = () => performance.now()): WriteFailures {
  let failedAt: number | undefined;
  return {
    record(sqlstate) {
      if (sqlstate === undefined) failedAt = undefined;
      else if (cannotWrite.test(sqlstate)) failedAt = now();
    },
    areFailing: () => failedAt !== undefined && now() - failedAt < rememberedMs,
  };
}
