/** Measured with 3 to 50 operations of 250 schools; see docs/decisions/0027-connections-per-school.md. */
const mbPerSchool = 0.85;
const mbPerStatement = 0.03;
const mbPerPlan = 0.33;
/** The default of core.max_prepared_statements(). */
export const maxPreparedStatements = 250;

/** The schools and statements that the backend of a connection has in its caches. */
export interface Backend {
  openedAt: number;
  schools: Set<string>;
  /** Pairs of a school and a statement. */
  statements: Set<string>;
  /** Requests that do not name their school: each counts as a school of its own. */
  unknownSchoolRequests: number;
}

export const newBackend = (): Backend => ({
  openedAt: Date.now(),
  schools: new Set(),
  statements: new Set(),
  unknownSchoolRequests: 0,
});

/** Notes that the backend has run a statement. */
export function remember(backend: Backend, school: number | string | undefined, statement: string): void {
  if (school === undefined) backend.unknownSchoolRequests++;
  else {
    backend.schools.add(String(school));
    backend.statements.add(`${String(school)} ${statement}`);
  }
}

/** The estimated memory of a backend, in megabytes. */
export const estimatedMb = ({ schools, statements, unknownSchoolRequests }: Backend): number =>
  (schools.size + unknownSchoolRequests) * mbPerSchool +
  (statements.size + unknownSchoolRequests) * mbPerStatement +
  Math.min(statements.size + unknownSchoolRequests, maxPreparedStatements) * mbPerPlan;
