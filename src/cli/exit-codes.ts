/** The exit codes of every command; docs/operations/running.md, "The command line", explains them. */
export const exitCodes = {
  done: 0,
  /** Not done, or done only in part, or an error was found. Also for an invalid command line. */
  failed: 1,
  /** Nothing failed, but something needs attention: `migrate status` and `doctor` only. */
  attention: 2,
  /** A canary failed before the other schools were changed: `migrate up --canary` only. */
  stopped: 3,
  /** The reader of the output has ended. A shell reports the same for a program that SIGPIPE ends. */
  closedPipe: 141,
} as const;

/** For the help of the program. */
export const exitCodeHelp = `
Exit codes:
  0  done; nothing was found
  1  failed, done only in part, or an error was found; invalid arguments
  2  nothing failed, but something needs attention: a migration is to be applied
     or a school is skipped (migrate status), or there are warnings (doctor)
  3  a canary failed (migrate up --canary)`;
