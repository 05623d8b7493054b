import { AuditEntries } from '../parts/audit-entries.tsx';
import { BarChart } from '../parts/charts.tsx';
import { monthName, formatNumber } from '../parts/format.tsx';
import { useData } from '../data/load.ts';
import { Card, EmptyState, PageHeader, AsyncContent, Statistic } from '../parts/components.tsx';
import { href } from '../router.ts';
import type { Overview as OverviewData } from '../types.ts';

const percentage = (part: number, total: number) =>
  total > 0 ? `${Math.round((part / total) * 100)}% of all schools` : '';

export function Overview() {
  const overview = useData<OverviewData>('/api/platform/overview');
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
              <Statistic label="Schools" value={formatNumber(total_tenants)} to="/schools" />
              <Statistic
                label="Active"
                value={formatNumber(active_tenants)}
                to="/schools?status=active"
                note={percentage(active_tenants, total_tenants)}
              />
              <Statistic
                label="Suspended"
                value={formatNumber(suspended_tenants)}
                to="/schools?status=suspended"
                note={percentage(suspended_tenants, total_tenants)}
              />
              <Statistic
                label="Sign-ups this month"
                value={formatNumber(signups_this_month)}
                to="/schools?sort=created_at&order=desc"
              />
            </dl>
            <div class="columns">
              <Card title="Sign-ups in the last 12 months">
                <BarChart
                  bars={signups_by_month.map(({ month, signups }) => ({
                    label: monthName(month),
                    name: monthName(month, true),
                    value: signups,
                  }))}
                  columns={['Month', 'Sign-ups']}
                />
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
