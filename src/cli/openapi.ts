import { resources } from '../endpoints/index.ts';
import { openapiDocument } from '../http/openapi/document.ts';
import type { Operation } from '../http/operation.ts';
import { withScratchServer } from '../process/database-access.ts';
import { ensureDatabase } from '../database/embedded.ts';
import { migrate } from '../database/migrate/migrate.ts';
import { withOwner } from '../database/pool/pool.ts';

/** The document that this version serves at /api/openapi.json. Reads the operations from a temporary database. */
export async function openapi(publicUrl: string | undefined): Promise<string> {
  const operations = await withScratchServer(async (server) => {
    await ensureDatabase(server, 'school');
    await migrate({ ownerUrl: server.url('school') });
    return withOwner(
      server.url('school'),
      async (client) => (await client.query<Operation>('select * from core.operation')).rows,
    );
  });
  return JSON.stringify(
    openapiDocument(resources, new Map(operations.map((operation) => [operation.name, operation])), publicUrl),
    null,
    2,
  );
}

/**
 * The specification has /teachers/<id>/leaves and /teachers/leaves/<id>, which are not ambiguous as ids are numbers.
 */
export const lintRules = { extends: ['recommended-strict'], rules: { 'no-ambiguous-paths': 'off' as const } };

/** Lints the document. @returns one line per problem */
export async function lintOpenapi(text: string): Promise<string[]> {
  const { createConfig, lintFromString } = await import('@redocly/openapi-core');
  const config = await createConfig(lintRules);
  const problems = await lintFromString({ source: text, config });
  return problems.map(({ ruleId, message, location }) => `${ruleId} ${location[0]?.pointer ?? ''}: ${message}`);
}
