import type { Problem } from './server-checks.ts';

/** A problem of a school, with `<id>` instead of its id; or one that is about no school. */
export interface Found {
  problem: Problem;
  school?: string;
}

/** A problem as it is reported, for all the schools that have it. */
export interface ProblemGroup extends Problem {
  /** The ids of the schools; empty if it is about none. */
  schools: string[];
  /** The remedy of each school. */
  remedies: string[];
}

const shownSchools = 5;

const forSchool = (text: string, school: string) => text.replaceAll('<id>', school);

/** A problem that the database reports with the name of a schema, such as a table without statistics. */
export function asFound(problem: Problem): Found {
  const { what, remedy } = problem;
  const schools = new Set([...`${what} ${remedy}`.matchAll(/\btenant_(\d+)\b/g)].map(([, id]) => id));
  const [school] = schools;
  if (school === undefined || schools.size > 1) return { problem };
  const generic = (text: string) => text.replaceAll(new RegExp(`\\btenant_${school}\\b`, 'g'), 'tenant_<id>');
  return { problem: { ...problem, what: generic(what), remedy: generic(remedy) }, school };
}

/** Numbers of rows, sizes and dates differ between schools that have the same problem. */
const keyOf = ({ problem: { check_name, level, what, remedy } }: Found) =>
  JSON.stringify([check_name, level, what.replace(/\b\d+\b/g, '#'), remedy]);

/** The schools of a group but the first, as `21 more schools: 8 (north), 9 (south), …`. */
function describeOthers(schools: readonly string[], subdomains: ReadonlyMap<string, string>): string {
  const others = schools.slice(1);
  const names = others.slice(0, shownSchools).map((id) => `${id} (${subdomains.get(id) ?? '?'})`);
  const more = others.length > names.length ? ', …' : '';
  return `${String(others.length)} more ${others.length === 1 ? 'school' : 'schools'}: ${names.join(', ')}${more}`;
}

/** One remedy for all schools: psql runs what this query returns. Advice stays as it is. */
const remedyOfAll = (remedy: string, schools: readonly string[]): string =>
  remedy.includes('<id>')
    ? `select replace($fix$${remedy}$fix$, '<id>', id::text) from unnest(array[${schools.join(', ')}]) id \\gexec`
    : remedy;

/**
 * Reports the problems that differ only in their school as one, in the order of the first of each.
 * @param subdomains  of the schools, by id
 */
export function groupProblems(all: readonly Found[], subdomains: ReadonlyMap<string, string>): ProblemGroup[] {
  let alone = 0;
  const groups = Map.groupBy(all, (found) => (found.school === undefined ? String(alone++) : keyOf(found)));
  return [...groups.values()].flatMap((members) => {
    const [first] = members;
    if (!first) return [];
    const { problem, school } = first;
    if (school === undefined) return [{ ...problem, schools: [], remedies: [problem.remedy] }];
    const schools = [...new Set(members.flatMap((member) => member.school ?? []))];
    const what = forSchool(problem.what, school);
    const isAlone = schools.length === 1;
    return [
      {
        ...problem,
        what: isAlone ? what : `${what} The same in ${describeOthers(schools, subdomains)}.`,
        remedy: isAlone ? forSchool(problem.remedy, school) : remedyOfAll(problem.remedy, schools),
        schools,
        remedies: schools.map((id) => forSchool(problem.remedy, id)),
      },
    ];
  });
}
