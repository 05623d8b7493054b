/** What the last query or request of a test returned, which `until` prints when it gives up. */
export const observed: { last: unknown } = { last: undefined };
