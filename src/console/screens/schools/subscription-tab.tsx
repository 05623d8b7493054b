import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { AuditEntries } from '../../parts/audit-entries.tsx';
import { request } from '../../data/api.ts';
import { Badge, Card, Fact } from '../../parts/components.tsx';
import { PagedList } from '../../parts/list.tsx';
import { formatNumber, formatPrice, Timestamp } from '../../parts/format.tsx';
import { useLoad } from '../../data/load.ts';
import type { AuditLog, Plan, TenantDetail } from '../../types.ts';
import { activateSubscription, cancelSubscription } from './school-actions.tsx';
import type { SchoolResponse } from './school-form.tsx';
import { SubscriptionDialog } from './subscription-dialog.tsx';
import { Button } from '../../parts/button.tsx';

/** The status of a subscription. Green would contradict a school whose users have no access. */
export function SubscriptionBadge({ school }: { school: TenantDetail }) {
  const { status } = school.subscription;
  if (!status) return <>none</>;
  return <Badge value={status} {...(school.status === 'active' ? {} : { tone: '' })} />;
}

const formatDays = (days: number) => (days === 1 ? '1 day' : `${formatNumber(days)} days`);

/** What each status means for the school. */
const meanings: Record<string, string> = {
  trialing: 'The school can use everything until the trial ends.',
  active: 'Paid until the period ends.',
  past_due: 'The period has ended. The school can use everything until the grace period ends.',
  cancelled: 'Users can log in and read, but not change anything.',
};

function SubscriptionFacts({ school, plan }: { school: TenantDetail; plan: Plan | undefined }) {
  const { status, started_at, current_period_end, grace_days, grace_ends_at, is_final } = school.subscription;
  return (
    <dl class="facts">
      <Fact label="Status">
        <SubscriptionBadge school={school} />{' '}
        {school.status === 'active' && status && <span class="muted">{meanings[status]}</span>}
        {school.status === 'suspended' && <span class="muted">Without effect while the school is suspended.</span>}
      </Fact>
      <Fact label="Plan">
        {school.plan.name}
        {plan && <span class="muted"> {formatPrice(plan)} per month</span>}
      </Fact>
      {started_at && (
        <Fact label="Start">
          <Timestamp at={started_at} />
        </Fact>
      )}
      {current_period_end && (
        <Fact label={status === 'trialing' ? 'Trial end' : status === 'cancelled' ? 'Ended' : 'Period end'}>
          <Timestamp at={current_period_end} format="time" />
        </Fact>
      )}
      {status === 'cancelled' && (
        <Fact label="New plan">
          {is_final ? 'The school cannot choose a plan again.' : 'Admins of the school can choose one.'}
        </Fact>
      )}
      {grace_days !== null && <Fact label="Grace period">{formatDays(grace_days)}</Fact>}
      {grace_ends_at && (
        <Fact label="Will be cancelled">
          <Timestamp at={grace_ends_at} format="time" />
        </Fact>
      )}
    </dl>
  );
}

/** A field of a subscription in an audit entry, which has it as a part of the school or by itself. */
function findChange({ changes }: AuditLog, name: string): { before: unknown; after: unknown } | undefined {
  const { before, after } = changes['subscription'] ?? {};
  const [old, now] = [before, after].map((part) => (part as Record<string, unknown> | null | undefined)?.[name]);
  return old === now ? changes[name] : { before: old, after: now };
}

/** The new status, plan, period and grace period of an entry, with the earlier ones, and whether it is final. */
function describeChange(entry: AuditLog): ComponentChildren {
  const status = findChange(entry, 'status');
  const plan = findChange(entry, 'plan');
  const end = findChange(entry, 'current_period_end')?.after;
  const grace = findChange(entry, 'grace_days')?.after;
  const nameOf = (value: unknown) => (value as { name?: string } | null)?.name;
  const words = (value: unknown) => (typeof value === 'string' ? value.replaceAll('_', ' ') : '');
  const fromTo = (before: unknown, after: unknown) => [words(before), words(after)].filter(Boolean).join(' → ');
  const parts: ComponentChildren[] = [
    status && fromTo(status.before, status.after),
    plan && <bdi>{fromTo(nameOf(plan.before), nameOf(plan.after))}</bdi>,
    typeof end === 'string' && (
      <>
        until <Timestamp at={end} />
      </>
    ),
    findChange(entry, 'is_final')?.after === true && 'no new plan by the school',
    typeof grace === 'number' && `grace period ${formatDays(grace)}`,
  ].filter(Boolean);
  return parts.map((part, n) => (
    <span key={n}>
      {n > 0 && ' · '}
      {part}
    </span>
  ));
}

/** The changes of the subscription, the plan and the trial, latest first. */
function History({ school }: { school: TenantDetail }) {
  const [page, setPage] = useState(1);
  const query = { tenant_id: school.id, about: 'subscription', page, pageSize: 10 };
  const entries = useLoad(
    // Loaded again after a change.
    `subscription history ${JSON.stringify([query, school.subscription, school.plan, school.updated_at])}`,
    (signal) => request<AuditLog[]>('GET', '/api/platform/audit-logs', { query, signal }),
    { keepPrevious: true },
  );
  return (
    <Card title="History" isFlush>
      <PagedList
        list={{ state: entries, onPage: (to = 1) => setPage(to) }}
        names={['entry', 'entries']}
        empty="No changes yet"
      >
        {(data) => <AuditEntries entries={data} withSchool={false} describe={describeChange} />}
      </PagedList>
    </Card>
  );
}

interface SubscriptionTabProps {
  response: SchoolResponse;
  /** The plan of the school, once it is loaded. */
  plan: Plan | undefined;
  reload: () => Promise<void>;
  setSchool: (response: SchoolResponse) => void;
}

/** The subscription of a school: its status and period, the actions that it allows, and its history. */
export function SubscriptionTab({ response, plan, reload, setSchool }: SubscriptionTabProps) {
  const school = response.data;
  const { status } = school.subscription;
  const [isChanging, setChanging] = useState(false);
  return (
    <div class="columns">
      <Card title="Subscription">
        <SubscriptionFacts school={school} plan={plan} />
        {status && school.status !== 'deleted' && (
          <div class="actions card-actions">
            <Button label="Change period" onClick={() => setChanging(true)} />
            {status !== 'active' && (
              <Button label="Activate for a month" onClick={() => void activateSubscription(school, reload)} />
            )}
            {status !== 'cancelled' && (
              <Button
                label="Cancel subscription"
                kind="warning"
                onClick={() => void cancelSubscription(school, reload)}
              />
            )}
          </div>
        )}
      </Card>
      <History school={school} />
      {isChanging && <SubscriptionDialog response={response} onClose={() => setChanging(false)} onSaved={setSchool} />}
    </div>
  );
}
