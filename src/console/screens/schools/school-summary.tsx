import { featureName, formatNumber, Timestamp } from '../../parts/format.tsx';
import { Card, Fact } from '../../parts/components.tsx';
import { href } from '../../router.ts';
import { SubscriptionBadge } from './subscription-tab.tsx';
import type { Plan, TenantDetail } from '../../types.ts';

function Count({ label, value, max }: { label: string; value: number; max?: number | undefined }) {
  return (
    <>
      <dt>{label}</dt>
      <dd class="count">
        {formatNumber(value)}
        {max !== undefined && <span class="muted"> of {formatNumber(max)}</span>}
        {max !== undefined && max > 0 && (
          <progress max={max} value={Math.min(value, max)} aria-label={`${label}: ${value} of ${max}`} />
        )}
      </dd>
    </>
  );
}

function OperatorLogin({ school, onForbid }: { school: TenantDetail; onForbid: () => void }) {
  if (!school.is_impersonation_allowed) return <>off (only the school can turn it on)</>;
  return (
    <>
      allowed
      {school.status !== 'deleted' && (
        <>
          {' '}
          <button type="button" class="link small" onClick={onForbid}>
            Turn off
          </button>
        </>
      )}
    </>
  );
}

interface SummaryProps {
  school: TenantDetail;
  /** The plan of the school, once it is loaded. */
  plan: Plan | undefined;
  onForbidImpersonation: () => void;
}

/** The facts about a school that the form does not edit. */
export function SchoolSummary({ school, plan, onForbidImpersonation }: SummaryProps) {
  const { stats, subscription, trial_ends_at, enabled_features, is_setup_complete, created_at } = school;
  return (
    <Card title="Summary">
      <dl class="facts">
        <Count label="Students" value={stats.total_students} max={plan?.max_students} />
        <Count label="Teachers" value={stats.total_teachers} max={plan?.max_teachers} />
        <Count label="Classes" value={stats.total_classes} />
        <Fact label="Subscription">
          <SubscriptionBadge school={school} />{' '}
          <a class="small" href={href(`/schools/${school.id}/subscription`)}>
            Manage
          </a>
        </Fact>
        {subscription.current_period_end && (
          <Fact label="Period end">
            <Timestamp at={subscription.current_period_end} />
          </Fact>
        )}
        {subscription.grace_ends_at && (
          <Fact label="Will be cancelled">
            <Timestamp at={subscription.grace_ends_at} format="time" />
          </Fact>
        )}
        {trial_ends_at && (
          <Fact label="Trial end">
            <Timestamp at={trial_ends_at} format="time" />
          </Fact>
        )}
        <Fact label="Features">{enabled_features.map(featureName).join(', ') || 'none'}</Fact>
        <Fact label="Setup">{is_setup_complete ? 'complete' : 'incomplete'}</Fact>
        <Fact label="Created">
          <Timestamp at={created_at} />
        </Fact>
        <Fact label="Operator login">
          <OperatorLogin school={school} onForbid={onForbidImpersonation} />
        </Fact>
      </dl>
    </Card>
  );
}
