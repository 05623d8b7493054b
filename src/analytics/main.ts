import { readCatalog } from './catalog.ts';
import { analyticsSchema } from './schema.ts';
import { serveQueries } from './serve.ts';

// The process that runs analytics queries, if there is no program with a prebuilt schema: see `prebuilt.ts`.

serveQueries(async (pool) => analyticsSchema(await readCatalog(pool)));
