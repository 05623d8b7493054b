import { AsyncContent, Card, EmptyState, PageHeader } from '../../parts/components.tsx';
import { formatNumber } from '../../parts/format.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { href } from '../../router.ts';
import type { Usage as UsageData } from '../../types.ts';
import { UsageCharts, UsageExports, useUsage } from '../../parts/usage.tsx';

const share = (used: number, limit: number) => (
  <>
    {formatNumber(used)} <span class="muted">of {formatNumber(limit)}</span>
  </>
);

const number = { isNumber: true, isNarrow: true };
const columns: Column<UsageData['near_limit'][number]>[] = [
  {
    label: 'School',
    cell: ({ tenant_id, name, plan }) => (
      <>
        <a href={href(`/schools/${tenant_id}/usage`)}>{name}</a>
        <small>{plan}</small>
      </>
    ),
  },
  { label: 'Students', ...number, cell: ({ students, max_students }) => share(students, max_students) },
  { label: 'Teachers', ...number, cell: ({ teachers, max_teachers }) => share(teachers, max_teachers) },
  { label: 'Used', ...number, cell: ({ used_share }) => `${Math.floor(used_share * 100)}%` },
];

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
                <Table
                  caption="Schools near a limit of their plan"
                  items={data.near_limit}
                  keyOf={({ tenant_id }) => tenant_id}
                  columns={columns}
                  isLinked
                />
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
