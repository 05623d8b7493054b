import { cpus } from 'node:os';
import type { BenchCase } from './cases.ts';
import type { CaseResult } from './measure.ts';

/** One case as measured for one school and for schools at random. */
export interface CaseReport {
  bench: BenchCase;
  one: CaseResult;
  /** Where it was measured for random schools too. */
  random: CaseResult | undefined;
}

/** One figure with its aim. */
export interface Figure {
  what: string;
  measured: number;
  unit: string;
  /** What bounds it, where that is measured. */
  floor?: number;
  /** The aim; none where the figure is only to be known. */
  below?: number;
}

/** Everything that a run found out. */
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
/** Of what there are few in a second, a tenth tells. */
const perSecond = (value: number) => (value < 100 ? value.toFixed(1) : whole(value));
// Rounded down, so that what reads 70 % is.
const percent = (value: number) => `${String(Math.floor(value * 100 + 1e-9))} %`;
const table = (rows: string[][]) => rows.map((row) => `| ${row.join(' | ')} |`).join('\n');
const rule = (row: string[]) => row.map((_, n) => (n === 0 ? '---' : '--:'));

/** The report as markdown. */
export function markdown(report: Report): string {
  const columns = (of: string) => [`${of}: req/s`, 'p50 ms', 'p99 ms', 'floor', 'ratio'];
  const head = ['case', ...columns('one school'), ...columns('random schools'), 'aim'];
  const cells = (result: CaseResult | undefined) => {
    if (!result) return Array<string>(5).fill('');
    const { service, floor, ratio } = result;
    return [perSecond(service.perSecond), whole(service.p50), whole(service.p99), perSecond(floor), percent(ratio)];
  };
  const verdict = ({ bench, one, random }: CaseReport) =>
    bench.aim === undefined
      ? ''
      : `${percent(bench.aim)}: ${one.ratio >= bench.aim && (random?.ratio ?? 1) >= bench.aim ? 'met' : 'missed'}`;
  const boundsHead = [
    'bounds, answers/s',
    'node:http, constant',
    'pg alone, one school',
    'pg alone, random schools',
    'CPU of the API, µs a request',
    'CPU of the floor',
  ];
  const figuresHead = ['what', 'measured', 'floor', 'aim'];
  const parts = [
    `${cpus().length} cores (${cpus()[0]?.model.trim() ?? ''}), Node ${process.version.slice(1)}, Postgres ${report.postgres}; API, database and load generator share them. ` +
      `${whole(report.schools)} schools of ${whole(report.students)} students, ${report.connections} connections, pool of ${report.connections}; ` +
      `medians of ${report.rounds} × ${report.seconds} s, service and floor in turns.`,
  ];
  if (report.cases.length > 0) {
    parts.push(
      table([
        head,
        rule(head),
        ...report.cases.map((c) => [c.bench.title, ...cells(c.one), ...cells(c.random), verdict(c)]),
      ]),
      'Floor: the same `core.call` through a bare `node:http` server and `pg`; for a log-in, argon2 alone, for a PDF its writing, two at a time.',
      table([
        boundsHead,
        rule(boundsHead),
        ...report.cases.map((c) => [
          c.bench.title,
          whole(c.one.constant),
          whole(c.one.loop),
          c.random ? whole(c.random.loop) : '',
          whole(c.one.cpu.service),
          whole(c.one.cpu.floor),
        ]),
      ]),
    );
  }
  if (report.figures.length > 0) {
    const figures = report.figures.map(({ what, measured, unit, floor, below }) => [
      what,
      `${String(Number(measured.toPrecision(3)))} ${unit}`,
      floor === undefined ? '' : `${String(Number(floor.toPrecision(3)))} ${unit}`,
      below === undefined ? '' : `< ${below} ${unit}: ${measured < below ? 'met' : 'missed'}`,
    ]);
    parts.push(table([figuresHead, rule(figuresHead), ...figures]));
  }
  return `${parts.join('\n\n')}\n`;
}
