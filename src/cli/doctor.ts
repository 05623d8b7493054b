import type pg from 'pg';
import type { Config } from '../process/config.ts';
import { findTenant, type NamedTenant } from '../database/find-tenant.ts';
import { withOwner } from '../database/pool/pool.ts';
import { withMigratedDatabase } from '../process/database-access.ts';
import { exitCodes } from './exit-codes.ts';
import { counted, type Format, print } from './output.ts';
import { type Progress, progress } from './progress.ts';
import { reasonOf } from '../domain/reason.ts';
import { homeName, onEachServer, serversOfCommand, serverOfSchool } from '../servers/servers.ts';
import { checkClock, checkDisk, checkServices, type Problem } from './server-checks.ts';

interface Violation {
  invariant: string;
  rule: string;
  violations: string;
  examples: object[];
}

/** What was found in one school; a line of the JSON output. */
interface Finding {
  tenant_id: number;
  subdomain: string;
  violations: Violation[];
  problems: Problem[];
  error?: string;
}

export interface DoctorOptions extends Format {
  /** Check only this school. */
  tenant?: string;
  /** Check only the server and the definitions, not the data of schools. */
  server?: boolean;
  /** Check only the data of schools. */
  data?: boolean;
  /** Do not connect to email and push services. */
  offline?: boolean;
  /** Run the harmless remedies. */
  fix?: boolean;
  /** Free space of DATA_DIR that is a problem if less is left. */
  minFree: number;
}

const describeViolation = ({ rule, violations, examples }: Violation) =>
  `  ${rule} Violations: ${violations}.\n${examples.map((example) => `    ${JSON.stringify(example)}\n`).join('')}`;

/** Runs the remedy if `--fix` may. @returns a note for the report */
async function fix(client: pg.Client, { is_harmless, remedy }: Problem): Promise<string> {
  if (!is_harmless) return '';
  try {
    await client.query(remedy);
    return ' (fixed)';
  } catch (error) {
    return ` (could not be fixed: ${reasonOf(error)})`;
  }
}

/** The number of problems by level. One that was fixed does not count. */
type Summary = Record<Problem['level'], number>;

/** Prints problems, and fixes those that may be fixed. */
async function report(
  ownerUrl: string,
  problems: Problem[],
  options: DoctorOptions,
  summary: Summary,
  printLine: (line: string) => void,
): Promise<void> {
  for (const problem of problems) {
    const note = options.fix ? await withOwner(ownerUrl, (client) => fix(client, problem)) : '';
    if (note !== ' (fixed)') summary[problem.level]++;
    if (options.json) printLine(JSON.stringify({ ...problem, is_fixed: note === ' (fixed)' }));
    else
      printLine(
        `${problem.level}: ${problem.what}${note}\n  Why: ${problem.why}\n  Fix: ${problem.remedy.replaceAll('\n', '\n       ')}`,
      );
  }
}

/** The problems of the server, of its functions and of the machine of this process. */
async function findServerProblems(config: Config, ownerUrl: string, options: DoctorOptions): Promise<Problem[]> {
  const [ofDatabase, ofServices, ofDisk] = await Promise.all([
    withOwner(ownerUrl, async (client) => [
      ...(await client.query<Problem>('select * from core.find_server_problems()')).rows,
      ...(await checkClock(client)),
    ]),
    options.offline ? [] : checkServices(config),
    checkDisk(config.DATA_DIR, options.minFree),
  ]);
  return [...ofDatabase, ...ofDisk, ...ofServices];
}

/** The definitions of a new school as JSON, or why no school can be created. The school is rolled back. */
const readReference = (ownerUrl: string): Promise<{ objects: string } | { problem: Problem }> =>
  withOwner(ownerUrl, async (client) => {
    await client.query('begin');
    try {
      const { rows } = await client.query<{ objects: string }>('select core.reference_objects()::text as objects');
      return rows[0] ?? { objects: '[]' };
    } catch (error) {
      return {
        problem: {
          check_name: 'school',
          level: 'error',
          what: `A new school cannot be created: ${reasonOf(error)}.`,
          why: 'The schools are compared with a new school, so their definitions were not checked.',
          remedy: "update platform.installation set fingerprint = ''; -- then: npm run migrate",
          is_harmless: false,
        },
      };
    } finally {
      await client.query('rollback');
    }
  });

/** Compares the definitions of a school with those of a new one. */
async function findSchoolProblems(ownerUrl: string, id: string, reference: string): Promise<Problem[]> {
  return withOwner(ownerUrl, async (client) => {
    const { rows } = await client.query<Omit<Problem, 'check_name' | 'why'> & { why: string }>(
      `select f.level, f.what, f.remedy, f.is_harmless,
         obj_description('core.check_school(bigint, jsonb)'::regprocedure, 'pg_proc') as why
       from core.check_school($1, $2) f`,
      [id, reference],
    );
    return rows.map((row) => ({ check_name: 'school', ...row }));
  });
}

/** Where the results of a server go. */
interface Output {
  bar: Progress;
  /** Precedes each line of text if there are several servers; the server is in each line of JSON then. */
  server: string | undefined;
}

/** Checks a school. @returns what was found, and the outcome in words */
async function checkSchool(
  url: string,
  { id, subdomain, is_current: isCurrent }: NamedTenant & { is_current: boolean },
  reference: string | undefined,
  options: DoctorOptions,
): Promise<{ finding: Finding; outcome: string }> {
  const finding: Finding = { tenant_id: Number(id), subdomain, violations: [], problems: [] };
  try {
    if (reference !== undefined && isCurrent) finding.problems = await findSchoolProblems(url, id, reference);
    // One connection per school: a backend keeps the catalog of every schema it has touched in memory.
    if (!options.server)
      finding.violations = await withOwner(url, async (client) => {
        await client.query('begin read only');
        return (await client.query<Violation>('select * from core.find_violations($1)', [id])).rows;
      });
  } catch (error) {
    finding.error = reasonOf(error);
  }
  const { violations, problems } = finding;
  const outcome = finding.error
    ? `could not be checked: ${finding.error}`
    : violations.length > 0
      ? `violates ${counted(violations.length, 'rule')}`
      : !options.server
        ? 'consistent'
        : reference === undefined || !isCurrent
          ? `not compared with this release${isCurrent ? '' : ', because it has another schema version'}`
          : problems.length === 0
            ? 'as in this release'
            : `differs from this release in ${counted(problems.length, 'object')}`;
  return { finding, outcome };
}

/** Checks a server and its schools, or one school. @returns the number of schools, and of problems */
async function checkServer(
  config: Config,
  url: string,
  tenantId: string | undefined,
  options: DoctorOptions,
  { bar, server }: Output,
): Promise<{ schools: number; summary: Summary }> {
  const { json = false } = options;
  const say = (line: string) => {
    if (server === undefined) bar.print(line);
    else
      bar.print(
        json ? JSON.stringify({ server, ...(JSON.parse(line) as object) }) : line.replace(/^/gm, `${server}: `),
      );
  };
  const { rows } = await withOwner(url, (client) =>
    client.query<NamedTenant & { is_current: boolean }>(
      `select id, subdomain, schema_version = (select max(version) from platform.tenant_migration) as is_current
       from platform.tenant
       where schema_version > 0 and ($1::bigint is null or id = $1)
       order by id`,
      [tenantId ?? null],
    ),
  );
  if (tenantId !== undefined && rows.length === 0)
    throw new Error(`The school ${tenantId} has no data: it is new or was purged.`);
  const summary: Summary = { error: 0, warning: 0 };
  if (tenantId === undefined && !options.data)
    await report(url, await findServerProblems(config, url, options), options, summary, say);
  const reference = options.data ? undefined : await readReference(url);
  if (reference && 'problem' in reference) await report(url, [reference.problem], options, summary, say);
  const objects = reference && 'objects' in reference ? reference.objects : undefined;
  for (const [index, row] of rows.entries()) {
    bar.update(Math.floor((100 * index) / rows.length), `school ${row.id} (${row.subdomain})`);
    const { finding, outcome } = await checkSchool(url, row, objects, options);
    const { violations, problems } = finding;
    if (violations.length > 0 || finding.error !== undefined) summary.error++;
    if (json) say(JSON.stringify(finding));
    await report(url, problems, { ...options, json: false }, summary, json ? () => undefined : say);
    if (!json)
      say(`school ${row.id} (${row.subdomain}): ${outcome}\n${violations.map(describeViolation).join('')}`.trimEnd());
  }
  return { schools: rows.length, summary };
}

/**
 * `school doctor`: checks the server, the functions and tables against the release (db/core/checks.sql), and the
 * invariants of the data of every school (db/core/invariants.sql), on all servers at the same time. Prints each problem
 * with the reason and the remedy.
 * @returns the exit code: failed for an error or a node that does not answer, attention for warnings only
 */
export async function doctor(config: Config, options: DoctorOptions): Promise<number> {
  const { tenant, json = false } = options;
  if (options.server && options.data) throw new Error('Give either --server or --data.');
  return withMigratedDatabase(config, async (ownerUrl) => {
    const id =
      tenant === undefined ? undefined : (await withOwner(ownerUrl, (client) => findTenant(client, tenant))).id;
    const servers = id === undefined ? await serversOfCommand(ownerUrl) : [await serverOfSchool(ownerUrl, id)];
    const bar = progress(100);
    const results = await onEachServer(servers, ({ name, url }) =>
      // The email and push services, and the disk of this machine, are checked once.
      checkServer(config, url, id, name === homeName ? options : { ...options, offline: true, minFree: 0 }, {
        bar,
        server: servers.length > 1 ? name : undefined,
      }),
    ).finally(bar.stop);
    const total = { schools: 0, error: 0, warning: 0 };
    for (const { server, error, result } of results) {
      if (error !== undefined && servers.length === 1) throw new Error(error);
      if (error !== undefined) {
        total.error++;
        print(json ? JSON.stringify({ server: server.name, error }) : `${server.name}: could not be checked: ${error}`);
      } else {
        total.schools += result.schools;
        total.error += result.summary.error;
        total.warning += result.summary.warning;
      }
    }
    if (!json && tenant === undefined)
      print(
        `${counted(total.schools, 'school')} checked: ${counted(total.error, 'error')}, ${counted(total.warning, 'warning')}`,
      );
    if (total.error > 0) return exitCodes.failed;
    return total.warning > 0 ? exitCodes.attention : exitCodes.done;
  });
}
