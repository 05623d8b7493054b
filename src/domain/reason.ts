/** The message of an error for people. Some errors of Node, such as AggregateError, have none, but a name. */
export const reasonOf = (error: unknown): string =>
  error instanceof Error ? error.message || String(error) : String(error);
