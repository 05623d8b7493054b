import { AuditEntries } from '../audit-entries.tsx';
import { monthName, formatNumber } from '../format.tsx';
import { request } from '../api.ts';
import { useLoad } from '../load.ts';
import { Card, EmptyState, PageHeader, AsyncContent } from '../components.tsx';
import { href } from '../router.ts';
import type { Overview as OverviewData } from '../types.ts';

/** The top of the y axis: the next round number. */
function axisMaximum(highest: number): number {
  if (highest <= 4) return 4;
  const magnitude = 10 ** Math.floor(Math.log10(highest));
  return ([1, 2, 4, 5, 10].find((step) => step * magnitude >= highest) ?? 10) * magnitude;
}

/**
 * Sign-ups per month as a bar chart, with the same numbers as a table for screen readers and for copying.
 * Plain SVG: the colors come from CSS and follow the theme, and the chart scales with its card.
 */
function SignupChart({ months }: { months: OverviewData['signups_by_month'] }) {
  const [width, height, left, bottom] = [500, 200, 30, 24];
  const maximum = axisMaximum(Math.max(...months.map(({ signups }) => signups)));
  const step = (width - left) / months.length;
  const y = (value: number) => 8 + (height - bottom - 8) * (1 - value / maximum);
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${width} ${height}`} aria-hidden="true" focusable="false">
        {[0, maximum / 2, maximum].map((value) => (
          <g key={value}>
            <line class="grid" x1={left} x2={width} y1={y(value)} y2={y(value)} />
            <text class="tick" x={left - 8} y={y(value) + 4} text-anchor="end">
              {formatNumber(value)}
            </text>
          </g>
        ))}
        {months.map(({ month, signups }, n) => (
          <g key={month} class={n === months.length - 1 ? 'bar current' : 'bar'}>
            <title>{`${monthName(month, true)}: ${formatNumber(signups)}`}</title>
            <rect class="hit-area" x={left + n * step} y={0} width={step} height={height} />
            <rect
              x={left + n * step + step * 0.2}
              y={signups > 0 ? y(signups) : y(0) - 2}
              width={step * 0.6}
              height={signups > 0 ? y(0) - y(signups) : 2}
              rx="3"
            />
            <text class="tick" x={left + (n + 0.5) * step} y={height - 6} text-anchor="middle">
              {monthName(month)}
            </text>
          </g>
        ))}
      </svg>
      <details>
        <summary>Show as table</summary>
        <table class="table compact">
          <thead>
            <tr>
              <th scope="col">Month</th>
              <th scope="col" class="number">
                Sign-ups
              </th>
            </tr>
          </thead>
          <tbody>
            {months.map(({ month, signups }) => (
              <tr key={month}>
                <th scope="row">{monthName(month, true)}</th>
                <td class="number">{formatNumber(signups)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </figure>
  );
}

function Statistic({ label, value, to, note }: { label: string; value: number; to?: string; note?: string }) {
  return (
    <div class="figure">
      <dt>{label}</dt>
      <dd>
        {to ? <a href={href(to)}>{formatNumber(value)}</a> : formatNumber(value)}
        {note && <small>{note}</small>}
      </dd>
    </div>
  );
}

const percentage = (part: number, total: number) =>
  total > 0 ? `${Math.round((part / total) * 100)}% of all schools` : '';

export function Overview() {
  const overview = useLoad(
    'overview',
    async (signal) => (await request<OverviewData>('GET', '/api/platform/overview', { signal })).data,
  );
  return (
    <>
      <PageHeader
        title="Overview"
        actions={
          <a class="button primary" href={href('/schools/new')}>
            Create school
          </a>
        }
      />
      <AsyncContent state={overview} lines={8}>
        {({
          total_tenants,
          active_tenants,
          suspended_tenants,
          signups_this_month,
          signups_by_month,
          recent_audit_logs,
        }) => (
          <>
            <dl class="figures">
              <Statistic label="Schools" value={total_tenants} to="/schools" />
              <Statistic
                label="Active"
                value={active_tenants}
                to="/schools?status=active"
                note={percentage(active_tenants, total_tenants)}
              />
              <Statistic
                label="Suspended"
                value={suspended_tenants}
                to="/schools?status=suspended"
                note={percentage(suspended_tenants, total_tenants)}
              />
              <Statistic
                label="Sign-ups this month"
                value={signups_this_month}
                to="/schools?sort=created_at&order=desc"
              />
            </dl>
            <div class="columns">
              <Card title="Sign-ups in the last 12 months">
                <SignupChart months={signups_by_month} />
              </Card>
              <Card title="Recent activity" actions={<a href={href('/audit')}>View all</a>}>
                {recent_audit_logs.length > 0 ? (
                  <AuditEntries entries={recent_audit_logs.slice(0, 6)} />
                ) : (
                  <EmptyState title="No activity yet" />
                )}
              </Card>
            </div>
          </>
        )}
      </AsyncContent>
    </>
  );
}
