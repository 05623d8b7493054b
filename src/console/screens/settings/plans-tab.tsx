import { useState } from 'preact/hooks';
import { confirm, showToast } from '../../parts/dialogs.tsx';
import { formatNumber, formatPrice } from '../../parts/format.tsx';
import { request } from '../../data/api.ts';
import { AsyncContent, Card, EmptyState } from '../../parts/components.tsx';
import { planFeatures, usePlans } from '../../data/plans.ts';
import { type Column, Table } from '../../parts/table.tsx';
import { href } from '../../router.ts';
import type { Plan } from '../../types.ts';
import { PlanDialog } from './plan-dialog.tsx';
import { Button } from '../../parts/button.tsx';

const columns = (onOpen: (plan: Plan) => void): Column<Plan>[] => [
  {
    label: 'Plan',
    cell: (plan) => (
      <>
        <Button label={plan.name} kind="link" onClick={() => onOpen(plan)} />
        <small class="narrow-only">
          {formatNumber(plan.max_students)} students, {formatNumber(plan.max_teachers)} teachers,{' '}
          {formatNumber(plan.tenant_count)} {plan.tenant_count === 1 ? 'school' : 'schools'}
        </small>
        <small>{planFeatures(plan)}</small>
        {!plan.is_public && <small>Only operators can assign it</small>}
      </>
    ),
  },
  { label: 'Per month', isNumber: true, isNarrow: true, cell: formatPrice },
  { label: 'Students', isNumber: true, cell: ({ max_students }) => formatNumber(max_students) },
  { label: 'Teachers', isNumber: true, cell: ({ max_teachers }) => formatNumber(max_teachers) },
  {
    label: 'Schools',
    isNumber: true,
    cell: ({ id, tenant_count }) =>
      tenant_count > 0 ? (
        <a class="above" href={href(`/schools?plan_id=${id}`)}>
          {formatNumber(tenant_count)}
        </a>
      ) : (
        0
      ),
  },
];

const deletePlan = (plan: Plan, reload: () => Promise<void>) =>
  confirm({
    title: `Delete plan ${plan.name}?`,
    text: <p>The plan can no longer be assigned to schools.</p>,
    confirmLabel: 'Delete plan',
    isDangerous: true,
    action: () => request('DELETE', `/api/platform/plans/${plan.id}`),
    reload,
    done: `Plan ${plan.name} deleted.`,
  });

export function PlansTab() {
  const plans = usePlans();
  const [openPlan, setOpenPlan] = useState<Plan | 'new'>();
  return (
    <>
      <Card
        title="Plans"
        isFlush
        actions={<Button icon="plus" label="Create plan" isSmall onClick={() => setOpenPlan('new')} />}
      >
        <AsyncContent state={plans}>
          {(data) =>
            data.length === 0 ? (
              <EmptyState title="No plans yet" />
            ) : (
              <Table
                caption="Plans"
                items={data}
                keyOf={({ id }) => id}
                columns={columns(setOpenPlan)}
                actions={(plan) =>
                  plan.tenant_count > 0 ? (
                    <span class="muted small">in use</span>
                  ) : (
                    <Button
                      label="Delete"
                      kind="warning"
                      isSmall
                      name={`Delete plan ${plan.name}`}
                      onClick={() => void deletePlan(plan, plans.reload)}
                    />
                  )
                }
                isLinked
              />
            )
          }
        </AsyncContent>
      </Card>
      {openPlan && (
        <PlanDialog
          plan={openPlan}
          onClose={() => setOpenPlan(undefined)}
          onSaved={(text) => {
            showToast(text);
            setOpenPlan(undefined);
            void plans.reload();
          }}
        />
      )}
    </>
  );
}
