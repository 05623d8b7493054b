import { AsyncContent, Card, EmptyState, PageHeader } from '../../parts/components.tsx';
import { formatNumber } from '../../parts/format.tsx';
import { href } from '../../router.ts';
import type { Usage as UsageData } from '../../types.ts';
import { UsageCharts, UsageExports, useUsage } from '../../parts/usage.tsx';

function NearLimitTable({ schools }: { schools: UsageData['near_limit'] }) {
  return (
    <table class="table">
      <caption class="hidden">Schools near a limit of their plan</caption>
      <thead>
        <tr>
          <th scope="col">School</th>
          <th scope="col" class="number">
            Students
          </th>
          <th scope="col" class="number">
            Teachers
          </th>
          <th scope="col" class="number">
            Used
          </th>
        </tr>
      </thead>
      <tbody>
        {schools.map(({ tenant_id, name, plan, students, max_students, teachers, max_teachers, used_share }) => (
          <tr key={tenant_id} class="row-link">
            <th scope="row">
              <a href={href(`/schools/${tenant_id}/usage`)}>{name}</a>
              <small>{plan}</small>
            </th>
            <td class="number">
              {formatNumber(students)} <span class="muted">of {formatNumber(max_students)}</span>
            </td>
            <td class="number">
              {formatNumber(teachers)} <span class="muted">of {formatNumber(max_teachers)}</span>
            </td>
            <td class="number">{Math.floor(used_share * 100)}%</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The usage of all schools together, and the schools that may need a larger plan. */
export function Usage() {
  const usage = useUsage();
  return (
    <>
      <PageHeader
        title="Usage"
        lead="All schools together. The usage of one school is on its page."
        actions={<UsageExports />}
      />
      <AsyncContent state={usage} lines={8}>
        {(data) => (
          <>
            <Card title="Schools near a limit" isFlush>
              {data.near_limit.length > 0 ? (
                <NearLimitTable schools={data.near_limit} />
              ) : (
                <EmptyState title="No school uses 80% of a limit of its plan" />
              )}
            </Card>
            <UsageCharts usage={data} />
          </>
        )}
      </AsyncContent>
    </>
  );
}
