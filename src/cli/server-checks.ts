import { access, constants, stat, statfs } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname } from 'node:path';
import { createTransport } from 'nodemailer';
import type pg from 'pg';
import { requireSessions } from '../database/pool/pooler-checks.ts';
import { reasonOf } from '../domain/reason.ts';
import type { Config } from '../process/config.ts';
import { checkReachable } from '../process/database-access.ts';

/** A problem of the server. db/core/server-checks.sql has those that the database can find. */
export interface Problem {
  check_name: string;
  level: 'error' | 'warning';
  what: string;
  why: string;
  /** The statement or command that fixes it. */
  remedy: string;
  /** Whether the remedy is a statement that `--fix` may run. */
  is_harmless: boolean;
}

const timeoutMs = 5_000;

/** Clocks that differ by this much make tokens and links invalid too early or too late. */
const maxSkewMs = 2_000;

/** @param now  the time of this process, in milliseconds */
export async function checkClock(client: pg.ClientBase, now: () => number = Date.now): Promise<Problem[]> {
  const before = now();
  const { rows } = await client.query<{ ms: number }>(
    'select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms',
  );
  const after = now();
  const theirs = rows[0]?.ms ?? before;
  // The database read its clock at some moment of the query.
  const skewMs = theirs < before ? before - theirs : theirs > after ? theirs - after : 0;
  if (skewMs < maxSkewMs) return [];
  return [
    {
      check_name: 'clock',
      level: skewMs > 30_000 ? 'error' : 'warning',
      what: `The clocks of this machine and of the database differ by ${(skewMs / 1000).toFixed(1)} s.`,
      why: 'Tokens, links and reminders expire or start at the wrong time.',
      remedy: 'timedatectl set-ntp true  # on both machines',
      is_harmless: false,
    },
  ];
}

/** The folder itself, or the one above it in which the service would create it. @throws if it cannot be written */
async function writableFolder(path: string): Promise<string> {
  try {
    // The slash makes a file an error.
    await stat(`${path}/`);
    await access(path, constants.W_OK | constants.X_OK);
    return path;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || dirname(path) === path) throw error;
    return writableFolder(dirname(path));
  }
}

/** @param minFreeMb  less free space than this is a problem */
export async function checkDisk(dataDir: string, minFreeMb: number): Promise<Problem[]> {
  let folder: string;
  try {
    folder = await writableFolder(dataDir);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return [
      {
        check_name: 'disk',
        // The service may run as another user.
        level: 'warning',
        what: `The folder ${dataDir} (DATA_DIR) cannot be written by this user (${code ?? message}).`,
        why: 'Exports of deleted schools, and emails without SMTP_URL, are written there.',
        remedy: `Run the doctor as the user of the service. If it says the same: chown <user> ${dataDir}`,
        is_harmless: false,
      },
    ];
  }
  const disk = await statfs(folder);
  const freeMb = Math.floor((disk.bavail * disk.bsize) / 1024 / 1024);
  if (freeMb >= minFreeMb) return [];
  return [
    {
      check_name: 'disk',
      level: 'error',
      what: `The disk of ${dataDir} has ${String(freeMb)} MB left, less than ${String(minFreeMb)} MB.`,
      why: 'Exports of schools and the embedded database are written there. A full disk stops both.',
      remedy: `du -sh ${dataDir}/*  # then delete or move what is not needed`,
      is_harmless: false,
    },
  ];
}

/** Tries the logins of the settings other than DATABASE_URL, as the processes of the service use them. */
export async function checkLogins(config: Config): Promise<Problem[]> {
  const jobs = 'No worker starts, and jobs are not processed.';
  const logins = [
    ['API_DATABASE_URL', 'school_api', 'No API process starts, and requests fail.'],
    ['WORKER_DATABASE_URL', 'school_worker', jobs],
    ['SESSION_DATABASE_URL', 'school_worker', jobs],
    ['ANALYTICS_DATABASE_URL', 'school_graphql', 'Analysts and saved questions get no answers.'],
  ] as const;
  const check = async ([setting, role, why]: (typeof logins)[number]): Promise<Problem[]> => {
    const url = config[setting];
    if (url === undefined) return [];
    const problem = (what: string): Problem[] => [
      {
        check_name: 'logins',
        level: 'error',
        what,
        why,
        remedy: `Correct ${setting} or what it leads to. Then restart the processes that use it.`,
        is_harmless: false,
      },
    ];
    try {
      let user = '';
      await checkReachable(url, setting, async (client) => {
        const { rows } = await client.query<{ user: string; may: boolean }>(
          `select current_user as user, current_user = $1
             or $1 = 'school_graphql' and pg_has_role('school_analyst', 'member') as may`,
          [role],
        );
        if (!rows[0]?.may) user = rows[0]?.user ?? '';
      });
      if (user !== '') return problem(`${setting} logs in as ${user}, and not as ${role}.`);
      if (setting === 'SESSION_DATABASE_URL') await requireSessions(setting, url);
      return [];
    } catch (error) {
      return problem(reasonOf(error));
    }
  };
  return (await Promise.all(logins.map(check))).flat();
}

/** @throws when nothing accepts a connection there */
const reach = (host: string, port: number): Promise<void> =>
  new Promise((done, fail) => {
    const socket = connect({ host, port, timeout: timeoutMs });
    socket.once('connect', () => {
      socket.destroy();
      done();
    });
    socket.once('timeout', () => socket.destroy(new Error('no answer')));
    socket.once('error', fail);
  });

async function attempt(
  name: string,
  what: string,
  why: string,
  remedy: string,
  work: () => Promise<unknown>,
): Promise<Problem[]> {
  try {
    await work();
    return [];
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return [
      { check_name: name, level: 'error', what: `${what} (${code ?? message}).`, why, remedy, is_harmless: false },
    ];
  }
}

/** Tries the email server and the push services that are configured. Nothing is sent. */
export async function checkServices(config: Config): Promise<Problem[]> {
  const { SMTP_URL, FCM_CREDENTIALS, FCM_URL, VAPID_PRIVATE_KEY, WEB_PUSH_HOSTS } = config;
  const port = (url: URL) => Number(url.port) || (url.protocol === 'http:' ? 80 : 443);
  const push = 'Push messages are delayed and then given up.';
  const firewall = (host: string) => `Allow connections from this machine to ${host}.`;
  const checks: Promise<Problem[]>[] = [];
  if (SMTP_URL) {
    const transport = createTransport({
      url: SMTP_URL,
      connectionTimeout: timeoutMs,
      greetingTimeout: timeoutMs,
      socketTimeout: timeoutMs,
    });
    checks.push(
      attempt(
        'smtp',
        `The email server ${new URL(SMTP_URL).host} cannot be used`,
        'Invitations, forgotten passwords and reminders do not arrive.',
        'Check SMTP_URL, its user and its password.',
        () => transport.verify(),
      ),
    );
  }
  if (FCM_CREDENTIALS) {
    for (const url of new Set([new URL(FCM_URL).origin, new URL(FCM_CREDENTIALS.token_uri).origin].map(String))) {
      const address = new URL(url);
      checks.push(
        attempt('fcm', `${url} cannot be reached`, push, firewall(address.host), () =>
          reach(address.hostname, port(address)),
        ),
      );
    }
  }
  if (VAPID_PRIVATE_KEY) {
    // A wildcard names no host that could be tried.
    for (const host of WEB_PUSH_HOSTS.filter((each) => !each.includes('*'))) {
      const address = new URL(host.includes('://') ? host : `https://${host}`);
      checks.push(
        attempt('web_push', `${address.origin} cannot be reached`, push, firewall(address.host), () =>
          reach(address.hostname, port(address)),
        ),
      );
    }
  }
  return (await Promise.all(checks)).flat();
}
