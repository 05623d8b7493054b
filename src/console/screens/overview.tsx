import { Entries } from '../changes.tsx';
import { monthName, number } from '../format.tsx';
import { ask } from '../http.ts';
import { useLoad } from '../load.ts';
import { Card, Empty, Head, Show } from '../parts.tsx';
import { href } from '../router.ts';
import type { Overview as Figures } from '../types.ts';

/** A round number that is not below the highest bar. */
function ceiling(highest: number): number {
  if (highest <= 4) return 4;
  const size = 10 ** Math.floor(Math.log10(highest));
  return ([1, 2, 4, 5, 10].find((step) => step * size >= highest) ?? 10) * size;
}

/** Sign-ups by month: bars to look at, and the same as a table. */
function Chart({ months }: { months: Figures['signups_by_month'] }) {
  const [width, height, left, bottom] = [500, 200, 30, 24];
  const top = ceiling(Math.max(...months.map(({ signups }) => signups)));
  const step = (width - left) / months.length;
  const y = (value: number) => 8 + (height - bottom - 8) * (1 - value / top);
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${width} ${height}`} aria-hidden="true" focusable="false">
        {[0, top / 2, top].map((value) => (
          <g key={value}>
            <line class="grid" x1={left} x2={width} y1={y(value)} y2={y(value)} />
            <text class="tick" x={left - 8} y={y(value) + 4} text-anchor="end">
              {number(value)}
            </text>
          </g>
        ))}
        {months.map(({ month, signups }, n) => (
          <g key={month} class={n === months.length - 1 ? 'bar now' : 'bar'}>
            <title>{`${monthName(month, true)}: ${number(signups)}`}</title>
            <rect class="touch" x={left + n * step} y={0} width={step} height={height} />
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
        <summary>As a table</summary>
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
                <td class="number">{number(signups)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </figure>
  );
}

function Figure({ label, value, to, part }: { label: string; value: number; to?: string; part?: string }) {
  return (
    <div class="figure">
      <dt>{label}</dt>
      <dd>
        {to ? <a href={href(to)}>{number(value)}</a> : number(value)}
        {part && <small>{part}</small>}
      </dd>
    </div>
  );
}

const share = (part: number, all: number) => (all > 0 ? `${Math.round((part / all) * 100)} % of all` : '');

export function Overview() {
  const figures = useLoad(
    'overview',
    async (signal) => (await ask<Figures>('GET', '/api/platform/overview', { signal })).data,
  );
  return (
    <>
      <Head
        title="Overview"
        actions={
          <a class="button primary" href={href('/schools/new')}>
            Create school
          </a>
        }
      />
      <Show what={figures} lines={8}>
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
              <Figure label="Schools" value={total_tenants} to="/schools" />
              <Figure
                label="Active"
                value={active_tenants}
                to="/schools?status=active"
                part={share(active_tenants, total_tenants)}
              />
              <Figure
                label="Suspended"
                value={suspended_tenants}
                to="/schools?status=suspended"
                part={share(suspended_tenants, total_tenants)}
              />
              <Figure label="Sign-ups this month" value={signups_this_month} to="/schools?sort=created_at&order=desc" />
            </dl>
            <div class="columns">
              <Card title="Sign-ups in twelve months">
                <Chart months={signups_by_month} />
              </Card>
              <Card title="Recent activity" actions={<a href={href('/audit')}>All entries</a>}>
                {recent_audit_logs.length > 0 ? (
                  <Entries entries={recent_audit_logs.slice(0, 6)} />
                ) : (
                  <Empty title="Nothing happened yet." />
                )}
              </Card>
            </div>
          </>
        )}
      </Show>
    </>
  );
}
