import { EmptyState } from './components.tsx';
import { formatCompact, formatNumber } from './format.tsx';
import { NumberTable } from './table.tsx';

/** The top of the y axis: the next round number whose half is a whole number. */
function axisMaximum(highest: number): number {
  if (highest <= 4) return 4;
  const magnitude = 10 ** Math.floor(Math.log10(highest));
  return ([1, 2, 4, 6, 8, 10].find((step) => step * magnitude >= highest) ?? 10) * magnitude;
}

/** A month or a day. */
export interface Bar {
  /** The label below the bar. */
  label: string;
  /** The label in the table and in the tooltip. */
  name: string;
  /** Null if nothing was recorded. */
  value: number | null;
}

interface BarChartProps {
  bars: Bar[];
  /** The headers of the table: what a row is, and what its number is. */
  columns: [row: string, value: string];
  /** The labels of the y axis and the numbers of the table. */
  formatTick?: (value: number) => string;
  format?: (value: number) => string;
  /** A line across the bars. Left out if it is so high that it would flatten them. */
  limit?: number | undefined;
}

/** How many labels fit below the bars. */
const maxLabels = 12;

/**
 * A bar chart, with the same numbers as a table for screen readers and for copying.
 * Plain SVG: the colors come from CSS and follow the theme, and the chart scales with its card.
 */
export function BarChart({
  bars,
  columns,
  formatTick = formatCompact,
  format = formatNumber,
  limit = Infinity,
}: BarChartProps) {
  if (bars.every(({ value }) => value === null)) return <EmptyState title="Nothing recorded yet" />;
  const highest = Math.max(0, ...bars.map(({ value }) => value ?? 0));
  const hasLimit = limit > 0 && limit <= highest * 2;
  const maximum = axisMaximum(hasLimit ? Math.max(limit, highest) : highest);
  const ticks = [0, maximum / 2, maximum].map((value) => ({ value, label: formatTick(value) }));
  const [width, height, bottom, top, right] = [500, 200, 28, 14, 6];
  // Room for the larger labels of phones.
  const left = 10 + 12 * Math.max(...ticks.map(({ label }) => label.length));
  const step = (width - left - right) / bars.length;
  const y = (value: number) => top + (height - bottom - top) * (1 - value / maximum);
  const labelEvery = bars.length > maxLabels ? 5 : 1;
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${width} ${height}`} aria-hidden="true" focusable="false">
        {ticks.map(({ value, label }) => (
          <g key={value}>
            <line class="grid" x1={left} x2={width} y1={y(value)} y2={y(value)} />
            <text class="tick" x={left - 8} y={y(value) + 4} text-anchor="end">
              {label}
            </text>
          </g>
        ))}
        {bars.map(({ label, name, value }, n) => {
          const fromEnd = bars.length - 1 - n;
          const x = left + n * step;
          return (
            <g key={name} class={`bar ${fromEnd === 0 ? 'current' : (fromEnd / labelEvery) % 2 === 1 ? 'even' : ''}`}>
              <title>{`${name}: ${value === null ? 'not recorded' : format(value)}`}</title>
              <rect class="hit-area" x={x} y={0} width={step} height={height} />
              {value !== null && (
                <rect
                  x={x + step * 0.2}
                  y={value > 0 ? y(value) : y(0) - 2}
                  width={step * 0.6}
                  height={value > 0 ? y(0) - y(value) : 2}
                  rx={Math.min(3, step * 0.2)}
                />
              )}
              {fromEnd % labelEvery === 0 && (
                <text class="tick" x={x + step / 2} y={height - 6} text-anchor="middle">
                  {label}
                </text>
              )}
            </g>
          );
        })}
        {hasLimit && <line class="limit" x1={left} x2={width} y1={y(limit)} y2={y(limit)} />}
      </svg>
      <details>
        <summary>Show as table</summary>
        <NumberTable
          columns={columns}
          rows={bars.map(({ name, value }) => [name, value === null ? '–' : format(value)])}
        />
      </details>
    </figure>
  );
}
