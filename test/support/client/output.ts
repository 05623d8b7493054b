import type { z } from 'zod';

/**
 * What an endpoint answers, by the schema in src/endpoints that its documentation comes from: `OutputOf<typeof
 * Student>`.
 */
export type OutputOf<Schema extends z.ZodType> = z.output<Schema>;
