import { useState } from 'preact/hooks';
import { confirm, showToast } from '../../parts/dialogs.tsx';
import { formatNumber, formatPrice } from '../../parts/format.tsx';
import { request } from '../../data/api.ts';
import { Icon } from '../../parts/icons.tsx';
import { AsyncContent, Card, EmptyState } from '../../parts/components.tsx';
import { planFeatures, usePlans } from '../../data/plans.ts';
import { href } from '../../router.ts';
import type { Plan } from '../../types.ts';
import { PlanDialog } from './plan-dialog.tsx';

interface PlanActions {
  onOpen: (plan: Plan) => void;
  onDelete: (plan: Plan) => void;
}

function PlanRow({ plan, onOpen, onDelete }: PlanActions & { plan: Plan }) {
  const isInUse = plan.tenant_count > 0;
  return (
    <tr class="row-link">
      <th scope="row">
        <button type="button" class="link" onClick={() => onOpen(plan)}>
          {plan.name}
        </button>
        <small class="narrow-only">
          {formatNumber(plan.max_students)} students, {formatNumber(plan.max_teachers)} teachers,{' '}
          {formatNumber(plan.tenant_count)} {plan.tenant_count === 1 ? 'school' : 'schools'}
        </small>
        <small>{planFeatures(plan)}</small>
      </th>
      <td class="number">{formatPrice(plan)}</td>
      <td class="number wide-only">{formatNumber(plan.max_students)}</td>
      <td class="number wide-only">{formatNumber(plan.max_teachers)}</td>
      <td class="number wide-only above">
        {isInUse ? <a href={href(`/schools?plan_id=${plan.id}`)}>{formatNumber(plan.tenant_count)}</a> : 0}
      </td>
      <td class="number">
        {isInUse ? (
          <span class="muted small">in use</span>
        ) : (
          <button
            type="button"
            class="button small-button warning"
            aria-label={`Delete plan ${plan.name}`}
            onClick={() => onDelete(plan)}
          >
            Delete
          </button>
        )}
      </td>
    </tr>
  );
}

function PlanTable({ plans, ...actions }: PlanActions & { plans: Plan[] }) {
  return (
    <table class="table">
      <caption class="hidden">Plans</caption>
      <thead>
        <tr>
          <th scope="col">Plan</th>
          <th scope="col" class="number">
            Per month
          </th>
          <th scope="col" class="number wide-only">
            Students
          </th>
          <th scope="col" class="number wide-only">
            Teachers
          </th>
          <th scope="col" class="number wide-only">
            Schools
          </th>
          <th scope="col">
            <span class="hidden">Actions</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {plans.map((plan) => (
          <PlanRow key={plan.id} plan={plan} {...actions} />
        ))}
      </tbody>
    </table>
  );
}

async function deletePlan(plan: Plan, reload: () => Promise<void>): Promise<void> {
  const isConfirmed = await confirm({
    title: `Delete plan ${plan.name}?`,
    text: <p>The plan can no longer be assigned to schools.</p>,
    confirmLabel: 'Delete plan',
    isDangerous: true,
    action: async () => {
      await request('DELETE', `/api/platform/plans/${plan.id}`);
      await reload();
    },
  });
  if (isConfirmed) showToast(`Plan ${plan.name} deleted.`);
}

export function PlansTab() {
  const plans = usePlans();
  const [openPlan, setOpenPlan] = useState<Plan | 'new'>();
  return (
    <>
      <Card
        title="Plans"
        isFlush
        actions={
          <button type="button" class="button small-button" onClick={() => setOpenPlan('new')}>
            <Icon name="plus" /> Create plan
          </button>
        }
      >
        <AsyncContent state={plans}>
          {(data) =>
            data.length === 0 ? (
              <EmptyState title="No plans yet" />
            ) : (
              <PlanTable plans={data} onOpen={setOpenPlan} onDelete={(plan) => void deletePlan(plan, plans.reload)} />
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
