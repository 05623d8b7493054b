import type { KeptSchool } from '../servers/claims.ts';

/** The schools whose tables a server has kept from before a move that is not confirmed. */
export const unconfirmed = (kept: readonly KeptSchool[], server: string) =>
  kept
    .filter((each) => each.server.name === server)
    .map(({ school, subdomain, current }) => ({ id: school, subdomain, server: current }));

/** A line for each move that is not confirmed. */
export const describeKept = (kept: readonly KeptSchool[]): string[] =>
  kept.map(
    ({ school, subdomain, server, current }) =>
      `School ${String(school)} (${subdomain}) was moved to ${current}, and ${server.name} has kept its tables. ` +
      `Later, delete them: school tenant move ${subdomain} --confirm`,
  );
