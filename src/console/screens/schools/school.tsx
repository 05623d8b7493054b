import { useState } from 'preact/hooks';
import { AuditEntries } from '../../parts/audit-entries.tsx';
import { showToast } from '../../parts/dialogs.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { request } from '../../data/api.ts';
import { useLoad } from '../../data/load.ts';
import { AsyncContent, Badge, Card, EmptyState, PageHeader, Tabs } from '../../parts/components.tsx';
import { usePlans } from '../../data/plans.ts';
import { href } from '../../router.ts';
import type { TenantDetail } from '../../types.ts';
import { UsageContent, UsageExports, useUsage } from '../../parts/usage.tsx';
import { Impersonate } from './impersonation.tsx';
import { activateSchool, deleteSchool, forbidImpersonation, restoreSchool, suspendSchool } from './school-actions.tsx';
import { SchoolForm, type SchoolResponse } from './school-form.tsx';
import { SchoolSummary } from './school-summary.tsx';
import { SubscriptionTab } from './subscription-tab.tsx';
import { Button } from '../../parts/button.tsx';

interface ButtonsProps {
  school: TenantDetail;
  reload: () => Promise<void>;
  onLogIn: () => void;
}

/** The buttons for the actions that the status of the school allows. */
function SchoolButtons({ school, reload, onLogIn }: ButtonsProps) {
  const { status, is_impersonation_allowed } = school;
  return (
    <>
      {status === 'active' && is_impersonation_allowed && <Button label="Log in as admin" onClick={onLogIn} />}
      {status === 'active' && <Button label="Suspend" onClick={() => void suspendSchool(school, reload)} />}
      {status === 'suspended' && (
        <Button label="Activate" kind="primary" onClick={() => void activateSchool(school, reload)} />
      )}
      {status === 'deleted' ? (
        <Button label="Restore" kind="primary" onClick={() => void restoreSchool(school, reload)} />
      ) : (
        <Button label="Delete" kind="warning" onClick={() => void deleteSchool(school, reload)} />
      )}
    </>
  );
}

/** Explains why the users of a suspended or deleted school have no access. */
function StatusNotice({ school: { status, deleted_at } }: { school: TenantDetail }) {
  if (status === 'suspended')
    return (
      <div class="callout">
        <div>Suspended. Users have no access until you activate the school.</div>
      </div>
    );
  if (status === 'deleted' && deleted_at)
    return (
      <div class="callout">
        <div>
          Deleted <Timestamp at={deleted_at} format="relative" />. Users have no access. Restore the school to edit it.
        </div>
      </div>
    );
  return null;
}

/** Explains why the figures are old and changes are refused. */
function ServerNotice({ since }: { since: string | null }) {
  if (since === null) return null;
  return (
    <div class="problem" role="status">
      The server of this school has not answered since <Timestamp at={since} format="time" />. Its users get an error,
      and you cannot change it. This page shows what was known before.
    </div>
  );
}

interface DetailsProps {
  response: SchoolResponse;
  reload: () => Promise<void>;
  onSaved: (response: SchoolResponse) => void;
}

function SchoolDetails({ response, reload, onSaved }: DetailsProps) {
  const school = response.data;
  const plans = usePlans();
  return (
    <>
      <div class="columns">
        <AsyncContent state={plans} lines={8}>
          {(all) => <SchoolForm key={school.id} response={response} plans={all} onSaved={onSaved} />}
        </AsyncContent>
        <div>
          <SchoolSummary
            school={school}
            plan={plans.data?.find((plan) => plan.id === school.plan.id)}
            onForbidImpersonation={() => void forbidImpersonation(school, reload)}
          />
          <Card title="Recent activity" actions={<a href={href(`/audit?tenant_id=${school.id}`)}>View all</a>}>
            {school.recent_audit_logs.length > 0 ? (
              <AuditEntries entries={school.recent_audit_logs} withSchool={false} />
            ) : (
              <EmptyState title="No activity yet" />
            )}
          </Card>
        </div>
      </div>
    </>
  );
}

function SchoolSubscription(props: Omit<Parameters<typeof SubscriptionTab>[0], 'plan'>) {
  const plans = usePlans();
  const { plan } = props.response.data;
  return <SubscriptionTab {...props} plan={plans.data?.find(({ id }) => id === plan.id)} />;
}

function SchoolUsage({ school }: { school: TenantDetail }) {
  const id = String(school.id);
  const usage = useUsage(id);
  return (
    <>
      <div class="actions tab-actions">
        <UsageExports tenantId={id} />
      </div>
      <UsageContent state={usage} />
    </>
  );
}

/** The parts of the screen, by the end of the address. */
const tabs = [
  ['', 'Details'],
  ['subscription', 'Subscription'],
  ['usage', 'Usage'],
] as const;

const NotFound = () => (
  <EmptyState title="School not found">
    <a href={href('/schools')}>Go to the list of schools</a>
  </EmptyState>
);

export function School({ id = '', part = '' }: Record<string, string>) {
  const state = useLoad<SchoolResponse>(`school ${id}`, (signal) =>
    request<TenantDetail>('GET', `/api/platform/tenants/${encodeURIComponent(id)}`, { signal }),
  );
  const [isLoggingIn, setLoggingIn] = useState(false);
  const school = state.data?.data;
  const isNotFound = !school && (state.failure?.status === 404 || state.failure?.status === 400);
  return (
    <>
      <PageHeader
        title={school?.name ?? 'School'}
        back={<a href={href('/schools')}>Schools</a>}
        badge={school && <Badge value={school.status} />}
        lead={
          school && (
            <>
              <span class="code">{school.subdomain}</span> · ID {school.id}
            </>
          )
        }
        actions={school && <SchoolButtons school={school} reload={state.reload} onLogIn={() => setLoggingIn(true)} />}
      />
      {isNotFound ? (
        <NotFound />
      ) : (
        <>
          <Tabs label="School" base={`/schools/${id}`} tabs={tabs} current={part} />
          <AsyncContent state={state} lines={8}>
            {(response) => (
              <>
                <ServerNotice since={response.data.unreachable_since} />
                <StatusNotice school={response.data} />
                {part === 'usage' ? (
                  <SchoolUsage school={response.data} />
                ) : part === 'subscription' ? (
                  <SchoolSubscription response={response} reload={state.reload} setSchool={state.set} />
                ) : (
                  <SchoolDetails
                    response={response}
                    reload={state.reload}
                    onSaved={(saved) => {
                      showToast('School saved.');
                      state.set(saved);
                    }}
                  />
                )}
              </>
            )}
          </AsyncContent>
        </>
      )}
      {school && isLoggingIn && (
        <Impersonate school={school} onClose={() => setLoggingIn(false)} onLoggedIn={() => void state.reload()} />
      )}
    </>
  );
}
