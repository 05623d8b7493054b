/**
 * Measured with 1 to 50 operations of 50 to 300 schools; see docs/decisions/0027-connections-per-school.md. The first
 * statements of a school load its tables, later ones find most of them loaded.
 */
const mbPerSchool = { perStatement: 0.2, atMost: 0.85 };
const mbPerStatement = 0.03;
const mbPerPlan = 0.33;
/**
 * An operation that writes prepares several statements, a payment eight. They and the tables take 1.6 MB for a new student,
 * 1.8 for a payment and 3.1 for marks of absences. With this number the estimate, 2.7 MB, is near the largest.
 */
const statementsPerWrite = 6;
/** The default of core.max_prepared_statements(). */
export const maxPreparedStatements = 500;

/** The schools and statements that the backend of a connection has in its caches. */
export interface Backend {
  /** The operations of each school, and how many statements they have. */
  schools: Map<string, { names: Set<string>; statementCount: number }>;
  /** The sum of the statements of all schools, and of the memory of their tables. */
  statementCount: number;
  tablesMb: number;
  /** Requests that do not name their school: each counts as a school of its own. */
  unknownSchoolRequests: number;
  /** The difference that the last measurement has shown; see `correctEstimate`. */
  correctionMb: number;
}

export const newBackend = (): Backend => ({
  schools: new Map(),
  statementCount: 0,
  tablesMb: 0,
  unknownSchoolRequests: 0,
  correctionMb: 0,
});

/** Notes that the backend has run an operation. */
export function remember(
  backend: Backend,
  { school, planKey, isRead }: { school?: number | string | undefined; planKey: string; isRead?: boolean },
): void {
  if (school === undefined) {
    backend.unknownSchoolRequests++;
    return;
  }
  const name = String(school);
  let known = backend.schools.get(name);
  if (!known) backend.schools.set(name, (known = { names: new Set(), statementCount: 0 }));
  if (known.names.has(planKey)) return;
  known.names.add(planKey);
  // Only operations say whether they read. The other statements of the service are small.
  const added = isRead === false ? statementsPerWrite : 1;
  backend.tablesMb += tablesMb(known.statementCount + added) - tablesMb(known.statementCount);
  known.statementCount += added;
  backend.statementCount += added;
}

/** The memory of the tables of a school after so many different statements. */
const tablesMb = (statements: number) => Math.min(mbPerSchool.atMost, statements * mbPerSchool.perStatement);

/** The estimated memory of a backend, in megabytes. */
export const estimatedMb = (backend: Backend): number => {
  const statements = backend.statementCount + backend.unknownSchoolRequests;
  return (
    backend.correctionMb +
    backend.tablesMb +
    backend.unknownSchoolRequests * mbPerSchool.atMost +
    statements * mbPerStatement +
    Math.min(statements, maxPreparedStatements) * mbPerPlan
  );
};

/** Replaces the estimate so far by what the backend has reported. */
export function correctEstimate(backend: Backend, reportedMb: number): void {
  backend.correctionMb += reportedMb - estimatedMb(backend);
}
