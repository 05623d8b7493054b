import { cpus } from 'node:os';
import type { BenchCase } from './cases.ts';
import type { CaseResult } from './measure.ts';

/** One case, measured for one school and for random schools. */
export interface CaseReport {
  bench: BenchCase;
  one: CaseResult;
  /** Undefined if it was not measured for random schools. */
  random: CaseResult | undefined;
}

/** A single figure with its goal. */
export interface Figure {
  what: string;
  measured: number;
  unit: string;
  /** The baseline, if it was measured. */
  baseline?: number;
  /** The goal, if there is one. */
  below?: number;
}

/** The results of a run. */
export interface Report {
  postgres: string;
  schools: number;
  students: number;
  connections: number;
  seconds: number;
  rounds: number;
  cases: CaseReport[];
  figures: Figure[];
}

const whole = (value: number | undefined) => (value === undefined ? '–' : Math.round(value).toLocaleString('en'));
/** Small rates get one decimal. */
const perSecond = (value: number) => (value < 100 ? value.toFixed(1) : whole(value));
// Rounded down, so that 69.9 % is not reported as 70 %.
const percent = (value: number) => `${String(Math.floor(value * 100 + 1e-9))} %`;
const table = (rows: string[][]) => rows.map((row) => `| ${row.join(' | ')} |`).join('\n');
const rule = (row: string[]) => row.map((_, n) => (n === 0 ? '---' : '--:'));

/** The report as markdown. */
export function markdown(report: Report): string {
  const columns = (of: string) => [`${of}: req/s`, 'p50 ms', 'p99 ms', 'baseline', 'ratio'];
  const head = ['case', ...columns('one school'), ...columns('random schools'), 'goal'];
  const cells = (result: CaseResult | undefined) => {
    if (!result) return Array<string>(5).fill('');
    const { service, baseline, ratio } = result;
    return [perSecond(service.perSecond), whole(service.p50), whole(service.p99), perSecond(baseline), percent(ratio)];
  };
  const verdict = ({ bench, one, random }: CaseReport) =>
    bench.goal === undefined
      ? ''
      : `${percent(bench.goal)}: ${one.ratio >= bench.goal && (random?.ratio ?? 1) >= bench.goal ? 'met' : 'missed'}`;
  const boundsHead = [
    'upper bounds, responses/s',
    'node:http, constant',
    'pg alone, one school',
    'pg alone, random schools',
    'CPU time of the API, µs per request',
    'CPU time of the baseline',
  ];
  const figuresHead = ['measurement', 'result', 'baseline', 'goal'];
  const parts = [
    `${cpus().length} cores (${cpus()[0]?.model.trim() ?? ''}), Node ${process.version.slice(1)}, Postgres ${report.postgres}, shared by API, database and load generator. ` +
      `${whole(report.schools)} schools of ${whole(report.students)} students, ${report.connections} connections, pool of ${report.connections}; ` +
      `medians of ${report.rounds} × ${report.seconds} s, service and baseline alternating.`,
  ];
  if (report.cases.length > 0) {
    parts.push(
      table([
        head,
        rule(head),
        ...report.cases.map((c) => [c.bench.title, ...cells(c.one), ...cells(c.random), verdict(c)]),
      ]),
      'Baseline: the same `core.call` through a bare `node:http` server and `pg`; for a login, argon2 alone; for a PDF, writing it, two at a time.',
      table([
        boundsHead,
        rule(boundsHead),
        ...report.cases.map((c) => [
          c.bench.title,
          whole(c.one.constant),
          whole(c.one.loop),
          c.random ? whole(c.random.loop) : '',
          whole(c.one.cpu.service),
          whole(c.one.cpu.baseline),
        ]),
      ]),
    );
  }
  if (report.figures.length > 0) {
    const figures = report.figures.map(({ what, measured, unit, baseline, below }) => [
      what,
      `${String(Number(measured.toPrecision(3)))} ${unit}`,
      baseline === undefined ? '' : `${String(Number(baseline.toPrecision(3)))} ${unit}`,
      below === undefined ? '' : `< ${below} ${unit}: ${measured < below ? 'met' : 'missed'}`,
    ]);
    parts.push(table([figuresHead, rule(figuresHead), ...figures]));
  }
  return `${parts.join('\n\n')}\n`;
}
