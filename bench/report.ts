import { cpus } from 'node:os';
import type { BenchCase } from './cases.ts';
import { type Fairness, slowdown } from './fairness.ts';
import type { CaseResult, Rounds, System } from './measure.ts';
import { type Measured, median } from './statistics.ts';

/** A single figure with its aim. */
export interface Figure {
  label: string;
  measured: number;
  unit: string;
  /** The baseline, if it was measured. */
  baseline?: number;
  /** The aim, if there is one: less than this. */
  below?: number;
}

/** The results of a run. */
export interface Report {
  postgres: string;
  commit: string;
  schools: number;
  students: number;
  connections: number;
  seconds: number;
  rounds: number;
  /** Runnable processes of the machine at the start of the run: its load average of one minute. */
  loadBefore: number;
  cases: { bench: BenchCase; result: CaseResult }[];
  fairness?: Fairness;
  figures: Figure[];
}

/** The aim for the p99 of the first request of a connection to a school. */
const firstRequestAimMs = 25;
/** The most that a busy school may slow down other schools, as a factor. */
const slowdownAim = 2;

export const whole = (value: number | undefined) =>
  value === undefined || Number.isNaN(value) ? '–' : Math.round(value).toLocaleString('en');
/** Small rates and times get one decimal. */
export const precise = (value: number | undefined) =>
  value !== undefined && value < 100 ? value.toFixed(1) : whole(value);
// Rounded down, so that 69.9 % is not reported as 70 %.
export const percent = (value: number) => `${String(Math.floor(value * 100 + 1e-9))} %`;
const times = (value: number) => `${(Math.floor(value * 100 + 1e-9) / 100).toFixed(2)} ×`;
export const verdict = (isMet: boolean) => (isMet ? 'met' : 'missed');

/** A markdown table; the first row is its head. */
export function table(rows: string[][]): string {
  const [head = [], ...rest] = rows;
  const rule = head.map((_, n) => (n === 0 ? '---' : '--:'));
  return [head, rule, ...rest].map((row) => `| ${row.join(' | ')} |`).join('\n');
}

/** Processors, and versions of Node and the commit. */
export const machine = (commit: string): string =>
  `${cpus().length} cores (${cpus()[0]?.model.trim() ?? ''}), Node ${process.version.slice(1)}, commit ${commit}`;

const figureOf = (rounds: Rounds | undefined, system: System, field: keyof Measured) => {
  const measured = rounds?.[system];
  return measured && median(measured.map((one) => one[field]));
};

/** The ratio of the printed rates, so that a reader can check it. */
function ratio(over: Measured[] | undefined, under: Measured[] | undefined): number | undefined {
  if (!over || !under) return undefined;
  const value = median(over.map(({ perSecond }) => perSecond)) / median(under.map(({ perSecond }) => perSecond));
  // On a very busy machine, a short measurement can end before the first response.
  return Number.isFinite(value) ? value : undefined;
}

export const withAim = (value: number | undefined, aim: number | undefined, format: (value: number) => string) => {
  if (value === undefined) return '–';
  return aim === undefined ? format(value) : `${format(value)} (aim ${format(aim)}: ${verdict(value >= aim)})`;
};

function cpuColumns({ service, postgraphile }: CaseResult['cpuMicroseconds']): string[] {
  const ratio = median(postgraphile) / median(service);
  return [whole(median(service)), whole(median(postgraphile)), Number.isFinite(ratio) ? times(ratio) : '–'];
}

const oneSchoolTable = (cases: Report['cases']) =>
  table([
    [
      'one school',
      'service, req/s',
      'p50 ms',
      'p99 ms',
      'core.call, /s',
      'bare statement, /s',
      'bare statement over HTTP, req/s',
      'PostGraphile, req/s',
      'core.call / bare',
      'service / PostGraphile',
      'CPU of the service, µs',
      'CPU of PostGraphile, µs',
      'ratio',
    ],
    ...cases.map(({ bench, result: { one, cpuMicroseconds } }) => [
      bench.title,
      precise(figureOf(one, 'service', 'perSecond')),
      precise(figureOf(one, 'service', 'p50')),
      precise(figureOf(one, 'service', 'p99')),
      precise(figureOf(one, 'call', 'perSecond')),
      precise(figureOf(one, 'bare', 'perSecond')),
      precise(figureOf(one, 'http', 'perSecond')),
      precise(figureOf(one, 'postgraphile', 'perSecond')),
      withAim(ratio(one.call, one.bare), bench.aims?.callToBare, percent),
      withAim(ratio(one.service, one.postgraphile), bench.aims?.serviceToPostgraphile, times),
      ...cpuColumns(cpuMicroseconds),
    ]),
  ]);

const randomSchoolsTable = (cases: Report['cases']) =>
  table([
    [
      'random schools',
      'service, req/s',
      'p50 ms',
      'p99 ms',
      'core.call, /s',
      'bare statement, /s',
      'service / one school',
      'core.call / one school',
      'bare / one school',
    ],
    ...cases.map(({ bench, result: { one, random } }) => [
      bench.title,
      precise(figureOf(random, 'service', 'perSecond')),
      precise(figureOf(random, 'service', 'p50')),
      precise(figureOf(random, 'service', 'p99')),
      precise(figureOf(random, 'call', 'perSecond')),
      precise(figureOf(random, 'bare', 'perSecond')),
      withAim(ratio(random?.service, one.service), bench.aims?.randomToOne, percent),
      withAim(ratio(random?.call, one.call), undefined, percent),
      withAim(ratio(random?.bare, one.bare), undefined, percent),
    ]),
  ]);

const firstRequestTable = (cases: Report['cases']) =>
  table([
    ['first request of a connection to a school', 'core.call, p50 ms', 'p99 ms', 'aim', 'bare, p50 ms', 'p99 ms'],
    ...cases.map(({ bench, result: { first } }) => {
      const p99 = figureOf(first, 'call', 'p99') ?? NaN;
      return [
        bench.title,
        precise(figureOf(first, 'call', 'p50')),
        precise(p99),
        `${firstRequestAimMs} ms: ${verdict(p99 <= firstRequestAimMs)}`,
        precise(figureOf(first, 'bare', 'p50')),
        precise(figureOf(first, 'bare', 'p99')),
      ];
    }),
  ]);

function fairnessText({ capacity, loads }: Fairness): string {
  const percent = (part: number) => `${String(Math.round(part * 100))} %`;
  const rows = loads.flatMap((load) => {
    const row = (sent: number, from: string, rounds: Measured[]) => [
      percent(load.part * sent),
      from,
      ...(['perSecond', 'p50', 'p99'] as const).map((field) => precise(median(rounds.map((one) => one[field])))),
    ];
    const factor = slowdown(load);
    return [
      [...row(1, 'ten schools, each its share', load.without), ''],
      [
        ...row(1.9, 'ten schools, one of them ten times its share', load.with),
        `${factor.toFixed(2)} × (aim: at most ${slowdownAim}, ${verdict(factor <= slowdownAim)})`,
      ],
      [...row(1.9, 'ten schools, all the same', load.equal), `${slowdown({ ...load, with: load.equal }).toFixed(2)} ×`],
    ];
  });
  return (
    table([['load of the service', 'sent by', 'the nine: req/s', 'p50 ms', 'p99 ms', 'p99, compared'], ...rows]) +
    `\n\nThe load is the part of the ${whole(capacity)} requests/s that the service answers to as many requests at once ` +
    'as it has connections.'
  );
}

const figuresTable = (figures: Figure[]) =>
  table([
    ['measurement', 'result', 'baseline', 'aim'],
    ...figures.map(({ label, measured, unit, baseline, below }) => [
      label,
      `${String(Number(measured.toPrecision(3)))} ${unit}`,
      baseline === undefined ? '' : `${String(Number(baseline.toPrecision(3)))} ${unit}`,
      below === undefined ? '' : `< ${below} ${unit}: ${verdict(measured < below)}`,
    ]),
  ]);

/** The report as markdown. */
export function markdown(report: Report): string {
  const { cases, connections, rounds, seconds } = report;
  const random = cases.filter(({ result }) => result.random);
  const first = cases.filter(({ bench }) => bench.hasBaselines);
  return [
    `${machine(report.commit)}, Postgres ${report.postgres}, shared by API, database and load generator; ` +
      `load average before the run ${report.loadBefore.toFixed(1)}. ` +
      `${whole(report.schools)} schools of ${whole(report.students)} students, ${connections} connections, pools of ` +
      `${connections}; medians of ${rounds} × ${seconds} s, all columns of both tables alternating.`,
    ...(cases.length > 0 ? [oneSchoolTable(cases)] : []),
    ...(random.length > 0 ? [randomSchoolsTable(random)] : []),
    ...(first.length > 0 ? [firstRequestTable(first)] : []),
    ...(report.fairness ? [fairnessText(report.fairness)] : []),
    ...(report.figures.length > 0 ? [figuresTable(report.figures)] : []),
  ]
    .join('\n\n')
    .concat('\n');
}
