import type { ServerOf } from '../database/pool/request-source.ts';
import type { SchoolPool } from '../database/pool/school-pool.ts';

/** The time between two statements, and the age at which the server of a school is asked again. */
const askEveryMs = 500;
const keepMs = 30_000;
/** Schools in memory. Those whose server was asked first are forgotten first. */
const maxKnown = 20_000;
/** Names in one statement. Those that clients without a session may have invented leave room for the others. */
const maxAsked = { verified: 1_000, unverified: 500 };

/** The number of a school, and a subdomain as src/database/call.ts names it. Others are not asked. */
const idPattern = /^\d{1,15}$/;
const subdomainPattern = /^subdomain ([a-z0-9-]{1,63})$/;

interface Row {
  id: string;
  subdomain: string;
  server: string;
}

/** The local table of the forwarder, so a silent server does not keep the statement waiting. */
const statement = `
  select id::text as id, subdomain, core.server_of(id) as server
  from platform.tenant
  where id = any($1) or subdomain = any($2)`;

/**
 * Learns from the forwarder which server has a school when the school sends requests. A school that moves has its new
 * server after half a minute. Until the answer, and for names that no school has, the server is not known.
 * @param query  that of the pool whose requests the schools send
 */
export function schoolServers(query: SchoolPool['query']): ServerOf {
  const known = new Map<string, { server: string; askAgainAt: number }>();
  const wanted = new Set<string>();
  let isWaiting = false;

  async function ask(): Promise<void> {
    const names = [...wanted];
    wanted.clear();
    const subdomains = names.flatMap((name) => subdomainPattern.exec(name)?.[1] ?? []);
    const ids = names.filter((name) => idPattern.test(name));
    const { rows } = await query<Row>(
      { text: statement, values: [ids, subdomains] },
      { school: 'service', isVerified: true, server: 'forwarder', planKey: 'school_servers' },
    );
    for (const name of names) known.delete(name);
    const askAgainAt = performance.now() + keepMs;
    for (const { id, subdomain, server } of rows)
      for (const name of [id, `subdomain ${subdomain}`]) {
        // As the last one, so that the first is the oldest.
        known.delete(name);
        known.set(name, { server, askAgainAt });
      }
    for (const name of known.keys()) {
      if (known.size <= maxKnown) break;
      known.delete(name);
    }
  }

  /** Asks for the wanted names, now or when the pause after the last statement has ended. */
  function askSoon(): void {
    if (isWaiting || wanted.size === 0) return;
    isWaiting = true;
    // Not at once: the pool is asking for the server of a request, and has not yet chosen its connection.
    void Promise.resolve()
      .then(ask)
      // The requests of the schools report that the forwarder does not answer.
      .catch(() => undefined)
      .then(() => {
        setTimeout(() => {
          isWaiting = false;
          askSoon();
        }, askEveryMs).unref();
      });
  }

  return ({ school, isVerified, server }) => {
    if (server !== undefined) return server;
    // The forwarder sends what names no school to the home.
    if (school === undefined) return 'home';
    const name = String(school);
    const found = known.get(name);
    const isName = found !== undefined || idPattern.test(name) || subdomainPattern.test(name);
    if (isName && !(found && performance.now() < found.askAgainAt)) {
      if (wanted.size < (isVerified ? maxAsked.verified : maxAsked.unverified)) wanted.add(name);
      askSoon();
    }
    return found?.server;
  };
}
