import type { z } from 'zod';

/**
 * The answer of an endpoint, by the schema in src/endpoints that its documentation comes from: `OutputOf<typeof
 * Student>`.
 */
export type OutputOf<Schema extends z.ZodType> = z.output<Schema>;
