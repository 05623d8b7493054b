import type pg from 'pg';
import type { Config } from '../process/config.ts';
import { findTenant, type NamedTenant } from '../database/find-tenant.ts';
import { withOwner } from '../database/pool/pool.ts';
import { withMigratedDatabase } from '../process/database-access.ts';
import { exitCodes } from './exit-codes.ts';
import { counted, type Format, print } from './output.ts';
import { type Progress, progress } from './progress.ts';
import { asFound, type Found, groupProblems, type ProblemGroup } from './group-problems.ts';
import { reasonOf } from '../domain/reason.ts';
import { homeName, onEachServer, serversOfCommand, serverOfSchool } from '../servers/servers.ts';
import { checkClock, checkDisk, checkLogins, checkServices, type Problem } from './server-checks.ts';

interface Violation {
  invariant: string;
  rule: string;
  violations: string;
  examples: object[];
}

/** What was found in the data of one school; a line of the JSON output. */
interface Finding {
  tenant_id: number;
  subdomain: string;
  violations: Violation[];
  /** The number of definitions that differ from the release. Those of all schools are reported together. */
  differences: number;
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

/** Runs the remedy of each school if `--fix` may. @returns a note for the report */
async function fix(client: pg.Client, { is_harmless, remedies }: ProblemGroup): Promise<string> {
  if (!is_harmless) return '';
  const failures: string[] = [];
  for (const remedy of remedies) await client.query(remedy).catch((error: unknown) => failures.push(reasonOf(error)));
  if (failures.length === 0) return ' (fixed)';
  const ofAll = remedies.length > 1 ? ` in ${String(failures.length)} of ${counted(remedies.length, 'school')}` : '';
  return ` (could not be fixed${ofAll}: ${failures[0] ?? ''})`;
}

/** How a server is checked. */
interface ServerOptions extends DoctorOptions {
  /** The settings and the disk of this machine are checked once, with the home. */
  isNode: boolean;
}

/** The number of problems by level. One that was fixed does not count. */
type Summary = Record<Problem['level'], number>;

/** Prints problems, those of several schools together, and fixes those that may be fixed. */
async function report(
  ownerUrl: string,
  found: readonly Found[],
  subdomains: ReadonlyMap<string, string>,
  options: DoctorOptions,
  summary: Summary,
  printLine: (line: string) => void,
): Promise<void> {
  for (const group of groupProblems(found, subdomains)) {
    const note = options.fix ? await withOwner(ownerUrl, (client) => fix(client, group)) : '';
    const isFixed = note === ' (fixed)';
    if (!isFixed) summary[group.level]++;
    const { schools, check_name, level, what, why, remedy, is_harmless } = group;
    const problem: Problem = { check_name, level, what, why, remedy, is_harmless };
    const ofSchools = schools.length > 0 ? { schools: schools.length, tenant_ids: schools.map(Number) } : {};
    if (options.json) printLine(JSON.stringify({ ...problem, is_fixed: isFixed, ...ofSchools }));
    else
      printLine(
        `${problem.level}: ${problem.what}${note}\n  Why: ${problem.why}\n  Fix: ${problem.remedy.replaceAll('\n', '\n       ')}`,
      );
  }
}

/** The problems of the server, of its functions and of the machine of this process. */
async function findServerProblems(config: Config, ownerUrl: string, options: ServerOptions): Promise<Problem[]> {
  const [ofDatabase, ...ofMachine] = await Promise.all([
    withOwner(ownerUrl, async (client) => [
      ...(await client.query<Problem>('select * from core.find_server_problems()')).rows,
      ...(await checkClock(client)),
    ]),
    ...(options.isNode ? [] : [checkDisk(config.DATA_DIR, options.minFree), checkLogins(config)]),
    ...(options.isNode || options.offline ? [] : [checkServices(config)]),
  ]);
  return [...ofDatabase, ...ofMachine.flat()];
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

/** Compares the definitions of a school with those of a new one. The problems have `<id>` instead of its id. */
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
): Promise<{ finding: Finding; problems: Problem[]; outcome: string }> {
  const finding: Finding = { tenant_id: Number(id), subdomain, violations: [], differences: 0 };
  let problems: Problem[] = [];
  try {
    if (reference !== undefined && isCurrent) problems = await findSchoolProblems(url, id, reference);
    // One connection per school: a backend keeps the catalog of every school it has touched in memory.
    if (!options.server)
      finding.violations = await withOwner(url, async (client) => {
        await client.query('begin read only');
        return (await client.query<Violation>('select * from core.find_violations($1)', [id])).rows;
      });
  } catch (error) {
    finding.error = reasonOf(error);
  }
  const { violations } = finding;
  finding.differences = problems.length;
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
  return { finding, problems, outcome };
}

/** Checks a server and its schools, or one school. @returns the number of schools, and of problems */
async function checkServer(
  config: Config,
  url: string,
  tenantId: string | undefined,
  options: ServerOptions,
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
  const subdomains = new Map(rows.map(({ id, subdomain }) => [id, subdomain]));
  const reportAll = (found: readonly Found[]) => report(url, found, subdomains, options, summary, say);
  if (tenantId === undefined && !options.data)
    await reportAll((await findServerProblems(config, url, options)).map(asFound));
  const reference = options.data ? undefined : await readReference(url);
  if (reference && 'problem' in reference) await reportAll([{ problem: reference.problem }]);
  const objects = reference && 'objects' in reference ? reference.objects : undefined;
  const found: Found[] = [];
  for (const [index, row] of rows.entries()) {
    bar.update(Math.floor((100 * index) / rows.length), `school ${row.id} (${row.subdomain})`);
    const { finding, problems, outcome } = await checkSchool(url, row, objects, options);
    const { violations } = finding;
    if (violations.length > 0 || finding.error !== undefined) summary.error++;
    found.push(...problems.map((problem) => ({ problem, school: row.id })));
    say(
      json
        ? JSON.stringify(finding)
        : `school ${row.id} (${row.subdomain}): ${outcome}\n${violations.map(describeViolation).join('')}`.trimEnd(),
    );
  }
  await reportAll(found);
  return { schools: rows.length, summary };
}

/**
 * `school doctor`: checks the server (db/core/server-checks.sql), the functions and tables against the release
 * (checks.sql, school-checks.sql), and the invariants of the data of every school (invariants.sql), on all servers at
 * the same time. Prints each problem with the reason and the remedy.
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
      checkServer(
        config,
        url,
        id,
        { ...options, isNode: name !== homeName },
        { bar, server: servers.length > 1 ? name : undefined },
      ),
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
