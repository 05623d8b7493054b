import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { AuditEntries } from '../audit-entries.tsx';
import { confirm, type ConfirmOptions, showToast } from '../dialogs.tsx';
import { featureName, fromLocalInput, Timestamp, formatNumber, toLocalInput } from '../format.tsx';
import { Conflicts, FormError, SaveBar, TextField, useRecordForm } from '../forms.tsx';
import { type ApiResponse, request } from '../api.ts';
import { Impersonate } from '../impersonation.tsx';
import { type Loaded, useLoad } from '../load.ts';
import { Badge, Card, EmptyState, PageHeader, AsyncContent } from '../components.tsx';
import { href } from '../router.ts';
import { FeatureFields, PlanField, usePlans, ZoneField } from '../school-fields.tsx';
import type { Plan, TenantDetail } from '../types.ts';

type Read = Pick<ApiResponse<TenantDetail>, 'data' | 'etag'>;

const toForm = ({ name, subdomain, contact_email, time_zone, trial_ends_at, plan, feature_flags }: TenantDetail) => ({
  name,
  subdomain,
  contact_email,
  time_zone,
  trial_ends_at: toLocalInput(trial_ends_at),
  plan_id: String(plan.id),
  feature_flags,
});
type Fields = ReturnType<typeof toForm>;

const labels: Record<keyof Fields, string> = {
  name: 'Name',
  subdomain: 'Subdomain',
  contact_email: 'Contact email',
  time_zone: 'Time zone',
  trial_ends_at: 'Trial end',
  plan_id: 'Plan',
  feature_flags: 'Features',
};

const toBody = ({ plan_id, trial_ends_at, ...changes }: Partial<Fields>) => ({
  ...changes,
  ...(plan_id === undefined ? {} : { plan_id: Number(plan_id) }),
  ...(trial_ends_at === undefined ? {} : { trial_ends_at: fromLocalInput(trial_ends_at) }),
});

function SchoolForm({
  response,
  plans,
  onSaved,
}: {
  response: Read;
  plans: Plan[];
  onSaved: (response: Read) => void;
}) {
  const form = useRecordForm({
    path: `/api/platform/tenants/${response.data.id}`,
    response,
    toForm,
    toBody,
    labels,
    onSaved,
  });
  const { value, set, error, conflicts } = form;
  const isDeleted = response.data.status === 'deleted';
  const field = (name: Exclude<keyof Fields, 'feature_flags'>) => ({
    label: labels[name],
    name,
    value: value[name],
    error: error(name),
    onChange: (to: string) => set({ [name]: to }),
  });
  return (
    <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
      <FormError form={form} fields={Object.keys(labels)} />
      <Conflicts conflicts={conflicts} />
      <fieldset class="stack" disabled={isDeleted}>
        <Card title="School">
          <div class="form">
            <TextField {...field('name')} isRequired input={{ autocomplete: 'off' }} />
            <div class="pair">
              <TextField
                {...field('subdomain')}
                isRequired
                hint="Users log in at this address. If you change it, the old address stops working."
                input={{ autocomplete: 'off', autocapitalize: 'none', spellcheck: false }}
              />
              <TextField {...field('contact_email')} isRequired input={{ type: 'email', autocomplete: 'off' }} />
            </div>
            <ZoneField {...field('time_zone')} />
          </div>
        </Card>
        <Card title="Plan and features">
          <div class="form">
            <div class="pair">
              <PlanField {...field('plan_id')} plans={plans} />
              <TextField {...field('trial_ends_at')} hint="In your time zone." input={{ type: 'datetime-local' }} />
            </div>
            <div>
              <h3>Features</h3>
              <FeatureFields
                flags={value.feature_flags}
                plan={plans.find(({ id }) => String(id) === value.plan_id)}
                onChange={(feature_flags) => set({ feature_flags })}
                isDisabled={isDeleted}
              />
            </div>
          </div>
        </Card>
      </fieldset>
      <SaveBar form={form} />
    </form>
  );
}

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

/** The actions on a school. Each asks for confirmation and explains its effect. */
function schoolActions(school: Loaded<Read>) {
  const run = async (
    options: ConfirmOptions,
    path: string,
    method: 'POST' | 'DELETE' | 'PUT',
    successMessage: ComponentChildren,
    body?: object,
  ) => {
    const action = async () => {
      await request(method, path, body ? { body } : {});
      await school.reload();
    };
    if (await confirm({ ...options, action })) showToast(successMessage);
  };
  return (data: TenantDetail) => {
    const path = `/api/platform/tenants/${data.id}`;
    const name = <bdi>{data.name}</bdi>;
    return {
      suspend: () =>
        run(
          {
            title: <>Suspend {name}?</>,
            text: (
              <ul>
                <li>Its users lose access immediately.</li>
                <li>No data is deleted. You can activate the school again at any time.</li>
              </ul>
            ),
            confirmLabel: 'Suspend',
            isDangerous: true,
          },
          `${path}/suspend`,
          'POST',
          <>{name} suspended.</>,
        ),
      activate: () =>
        run(
          {
            title: <>Activate {name}?</>,
            text: <p>Its users can log in again immediately.</p>,
            confirmLabel: 'Activate',
          },
          `${path}/activate`,
          'POST',
          <>{name} activated.</>,
        ),
      remove: () =>
        run(
          {
            title: <>Delete {name}?</>,
            text: (
              <ul>
                <li>Its users lose access immediately, and the school is removed from the list of schools.</li>
                <li>
                  You can restore it during the retention period. After that, its data is exported to a file and removed
                  from the database.
                </li>
                <li>Its subdomain stays reserved.</li>
              </ul>
            ),
            requiredText: data.subdomain,
            confirmLabel: 'Delete school',
            isDangerous: true,
          },
          path,
          'DELETE',
          <>{name} deleted.</>,
        ),
      restore: () =>
        run(
          {
            title: <>Restore {name}?</>,
            text: (
              <p>
                The school returns with all its data and its previous status. A school that was suspended stays
                suspended.
              </p>
            ),
            confirmLabel: 'Restore',
          },
          `${path}/restore`,
          'POST',
          <>{name} restored.</>,
        ),
      forbidImpersonation: () =>
        run(
          {
            title: 'Turn off operator login?',
            text: (
              <ul>
                <li>Operators can no longer log in as an admin of {name}. Current sessions end immediately.</li>
                <li>Only an admin of the school can turn it on again.</li>
              </ul>
            ),
            confirmLabel: 'Turn off',
            isDangerous: true,
          },
          path,
          'PUT',
          <>Operator login turned off for {name}.</>,
          { is_impersonation_allowed: false },
        ),
    };
  };
}

export function School({ id = '' }: Record<string, string>) {
  const school = useLoad<Read>(`school ${id}`, (signal) =>
    request<TenantDetail>('GET', `/api/platform/tenants/${encodeURIComponent(id)}`, { signal }),
  );
  const plans = usePlans();
  const [isLoggingIn, setLoggingIn] = useState(false);
  const actions = schoolActions(school);
  const back = <a href={href('/schools')}>Schools</a>;

  if (!school.data) {
    return (
      <>
        <PageHeader title="School" back={back} />
        {school.failure?.status === 404 || school.failure?.status === 400 ? (
          <EmptyState title="School not found">
            <a href={href('/schools')}>Go to the list of schools</a>
          </EmptyState>
        ) : (
          <AsyncContent state={school} lines={8}>
            {() => null}
          </AsyncContent>
        )}
      </>
    );
  }
  const { data } = school.data;
  const { name, status, subdomain, subscription, stats, trial_ends_at, enabled_features, is_impersonation_allowed } =
    data;
  const plan = plans.data?.find((one) => one.id === data.plan.id);
  const { suspend, activate, remove, restore, forbidImpersonation } = actions(data);

  return (
    <>
      <PageHeader
        title={name}
        back={back}
        badge={<Badge value={status} />}
        lead={
          <>
            <span class="code">{subdomain}</span> · ID {data.id}
          </>
        }
        actions={
          <>
            {status === 'active' && is_impersonation_allowed && (
              <button type="button" class="button" onClick={() => setLoggingIn(true)}>
                Log in as admin
              </button>
            )}
            {status === 'active' && (
              <button type="button" class="button" onClick={() => void suspend()}>
                Suspend
              </button>
            )}
            {status === 'suspended' && (
              <button type="button" class="button primary" onClick={() => void activate()}>
                Activate
              </button>
            )}
            {status === 'deleted' ? (
              <button type="button" class="button primary" onClick={() => void restore()}>
                Restore
              </button>
            ) : (
              <button type="button" class="button warning" onClick={() => void remove()}>
                Delete
              </button>
            )}
          </>
        }
      />
      {school.failure && <AsyncContent state={school}>{() => null}</AsyncContent>}
      {status === 'deleted' && data.deleted_at && (
        <div class="callout">
          <div>
            Deleted <Timestamp at={data.deleted_at} format="relative" />. Users have no access. Restore the school to
            edit it.
          </div>
        </div>
      )}
      {status === 'suspended' && (
        <div class="callout">
          <div>Suspended. Users have no access until you activate the school.</div>
        </div>
      )}
      <div class="columns">
        <AsyncContent state={plans} lines={8}>
          {(all) => (
            <SchoolForm
              key={data.id}
              response={school.data ?? { data, etag: undefined }}
              plans={all}
              onSaved={(saved) => {
                showToast('School saved.');
                school.set(saved);
              }}
            />
          )}
        </AsyncContent>
        <div>
          <Card title="Summary">
            <dl class="facts">
              <Count label="Students" value={stats.total_students} max={plan?.max_students} />
              <Count label="Teachers" value={stats.total_teachers} max={plan?.max_teachers} />
              <Count label="Classes" value={stats.total_classes} />
              <dt>Subscription</dt>
              <dd>{subscription.status ? <Badge value={subscription.status} /> : 'none'}</dd>
              {subscription.current_period_end && (
                <>
                  <dt>Period end</dt>
                  <dd>
                    <Timestamp at={subscription.current_period_end} />
                  </dd>
                </>
              )}
              {trial_ends_at && (
                <>
                  <dt>Trial end</dt>
                  <dd>
                    <Timestamp at={trial_ends_at} format="time" />
                  </dd>
                </>
              )}
              <dt>Features</dt>
              <dd>{enabled_features.map(featureName).join(', ') || 'none'}</dd>
              <dt>Setup</dt>
              <dd>{data.is_setup_complete ? 'complete' : 'incomplete'}</dd>
              <dt>Created</dt>
              <dd>
                <Timestamp at={data.created_at} />
              </dd>
              <dt>Operator login</dt>
              <dd>
                {is_impersonation_allowed ? 'allowed' : 'off (only the school can turn it on)'}
                {is_impersonation_allowed && status !== 'deleted' && (
                  <>
                    {' '}
                    <button type="button" class="link small" onClick={() => void forbidImpersonation()}>
                      Turn off
                    </button>
                  </>
                )}
              </dd>
            </dl>
          </Card>
          <Card title="Recent activity" actions={<a href={href(`/audit?tenant_id=${data.id}`)}>View all</a>}>
            {data.recent_audit_logs.length > 0 ? (
              <AuditEntries entries={data.recent_audit_logs} withSchool={false} />
            ) : (
              <EmptyState title="No activity yet" />
            )}
          </Card>
        </div>
      </div>
      {isLoggingIn && (
        <Impersonate school={data} onClose={() => setLoggingIn(false)} onLoggedIn={() => void school.reload()} />
      )}
    </>
  );
}
