import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { Entries } from '../changes.tsx';
import { confirm, type Question, say } from '../dialogs.tsx';
import { featureName, fromLocal, Moment, number, toLocal } from '../format.tsx';
import { Conflicts, FormProblem, SaveBar, Text, useRecordForm } from '../forms.tsx';
import { type Answer, ask } from '../http.ts';
import { Impersonate } from '../impersonation.tsx';
import { type Loaded, useLoad } from '../load.ts';
import { Badge, Card, Empty, Head, Show } from '../parts.tsx';
import { href } from '../router.ts';
import { FeatureFields, PlanField, usePlans, ZoneField } from '../school-fields.tsx';
import type { Plan, TenantDetail } from '../types.ts';

type Read = Pick<Answer<TenantDetail>, 'data' | 'etag'>;

const toForm = ({ name, subdomain, contact_email, time_zone, trial_ends_at, plan, feature_flags }: TenantDetail) => ({
  name,
  subdomain,
  contact_email,
  time_zone,
  trial_ends_at: toLocal(trial_ends_at),
  plan_id: String(plan.id),
  feature_flags,
});
type Fields = ReturnType<typeof toForm>;

const labels: Record<keyof Fields, string> = {
  name: 'Name',
  subdomain: 'Subdomain',
  contact_email: 'Contact e-mail',
  time_zone: 'Time zone',
  trial_ends_at: 'Trial ends',
  plan_id: 'Plan',
  feature_flags: 'Features',
};

const toBody = ({ plan_id, trial_ends_at, ...changes }: Partial<Fields>) => ({
  ...changes,
  ...(plan_id === undefined ? {} : { plan_id: Number(plan_id) }),
  ...(trial_ends_at === undefined ? {} : { trial_ends_at: fromLocal(trial_ends_at) }),
});

function SchoolForm({ answer, plans, onSaved }: { answer: Read; plans: Plan[]; onSaved: (answer: Read) => void }) {
  const form = useRecordForm({
    path: `/api/platform/tenants/${answer.data.id}`,
    answer,
    toForm,
    toBody,
    labels,
    onSaved,
  });
  const { value, set, error, conflicts } = form;
  const isDeleted = answer.data.status === 'deleted';
  const text = (name: Exclude<keyof Fields, 'feature_flags'>) => ({
    label: labels[name],
    name,
    value: value[name],
    error: error(name),
    onChange: (to: string) => set({ [name]: to }),
  });
  return (
    <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
      <FormProblem form={form} fields={Object.keys(labels)} />
      <Conflicts conflicts={conflicts} />
      <fieldset class="stack" disabled={isDeleted}>
        <Card title="School">
          <div class="form">
            <Text {...text('name')} isRequired input={{ autocomplete: 'off' }} />
            <div class="pair">
              <Text
                {...text('subdomain')}
                isRequired
                hint="Its users log in by it: a change takes the old address away."
                input={{ autocomplete: 'off', autocapitalize: 'none', spellcheck: false }}
              />
              <Text {...text('contact_email')} isRequired input={{ type: 'email', autocomplete: 'off' }} />
            </div>
            <ZoneField {...text('time_zone')} />
          </div>
        </Card>
        <Card title="Plan and features">
          <div class="form">
            <div class="pair">
              <PlanField {...text('plan_id')} plans={plans} />
              <Text {...text('trial_ends_at')} hint="In your time zone." input={{ type: 'datetime-local' }} />
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

function Count({ label, value, most }: { label: string; value: number; most?: number | undefined }) {
  return (
    <>
      <dt>{label}</dt>
      <dd class="count">
        {number(value)}
        {most !== undefined && <span class="muted"> of {number(most)}</span>}
        {most !== undefined && most > 0 && (
          <progress max={most} value={Math.min(value, most)} aria-label={`${label}: ${value} of ${most}`} />
        )}
      </dd>
    </>
  );
}

/** What an operator can do to a school, each with what it does said before. */
function useSteps(school: Loaded<Read>) {
  const step = async (
    question: Question,
    path: string,
    method: 'POST' | 'DELETE' | 'PUT',
    done: ComponentChildren,
    body?: object,
  ) => {
    const work = async () => {
      await ask(method, path, body ? { body } : {});
      await school.reload();
    };
    if (await confirm({ ...question, work })) say(done);
  };
  return (data: TenantDetail) => {
    const path = `/api/platform/tenants/${data.id}`;
    const name = <bdi>{data.name}</bdi>;
    return {
      suspend: () =>
        step(
          {
            title: <>Suspend {name}?</>,
            text: (
              <ul>
                <li>Its users are refused from their next request on; open pages stop.</li>
                <li>Nothing is deleted. You can activate the school again at any time.</li>
              </ul>
            ),
            action: 'Suspend',
            isDangerous: true,
          },
          `${path}/suspend`,
          'POST',
          <>{name} is suspended.</>,
        ),
      activate: () =>
        step(
          {
            title: <>Activate {name}?</>,
            text: <p>Its users can log in and work again at once.</p>,
            action: 'Activate',
          },
          `${path}/activate`,
          'POST',
          <>{name} is active.</>,
        ),
      remove: () =>
        step(
          {
            title: <>Delete {name}?</>,
            text: (
              <ul>
                <li>Its users are refused at once, and it leaves the list of schools.</li>
                <li>
                  Its data is kept for a while: until then you can restore it. After that it is exported to a file and
                  dropped.
                </li>
                <li>Its subdomain stays taken.</li>
              </ul>
            ),
            typed: data.subdomain,
            action: 'Delete school',
            isDangerous: true,
          },
          path,
          'DELETE',
          <>{name} is deleted.</>,
        ),
      restore: () =>
        step(
          {
            title: <>Restore {name}?</>,
            text: (
              <p>
                It comes back with all its data, in the state that it had: a school that was suspended stays suspended.
              </p>
            ),
            action: 'Restore',
          },
          `${path}/restore`,
          'POST',
          <>{name} is restored.</>,
        ),
      forbidImpersonation: () =>
        step(
          {
            title: 'Switch log-ins by operators off?',
            text: (
              <ul>
                <li>No operator can log in as an admin of {name} any more; log-ins under way end at once.</li>
                <li>Only an admin of the school can allow it again.</li>
              </ul>
            ),
            action: 'Switch off',
            isDangerous: true,
          },
          path,
          'PUT',
          <>Operators can no longer log in to {name}.</>,
          { is_impersonation_allowed: false },
        ),
    };
  };
}

export function School({ id = '' }: Record<string, string>) {
  const school = useLoad<Read>(`school ${id}`, (signal) =>
    ask<TenantDetail>('GET', `/api/platform/tenants/${encodeURIComponent(id)}`, { signal }),
  );
  const plans = usePlans();
  const [isLoggingIn, setLoggingIn] = useState(false);
  const steps = useSteps(school);
  const back = <a href={href('/schools')}>Schools</a>;

  if (!school.data) {
    return (
      <>
        <Head title="School" back={back} />
        {school.failure?.status === 404 || school.failure?.status === 400 ? (
          <Empty title="There is no such school.">
            <a href={href('/schools')}>To the list</a>
          </Empty>
        ) : (
          <Show what={school} lines={8}>
            {() => null}
          </Show>
        )}
      </>
    );
  }
  const { data } = school.data;
  const { name, status, subdomain, subscription, stats, trial_ends_at, enabled_features, is_impersonation_allowed } =
    data;
  const plan = plans.data?.find((one) => one.id === data.plan.id);
  const { suspend, activate, remove, restore, forbidImpersonation } = steps(data);

  return (
    <>
      <Head
        title={name}
        back={back}
        badge={<Badge value={status} />}
        lead={
          <>
            <span class="code">{subdomain}</span> · school {data.id}
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
      {school.failure && <Show what={school}>{() => null}</Show>}
      {status === 'deleted' && data.deleted_at && (
        <div class="callout">
          <div>
            Deleted <Moment at={data.deleted_at} form="ago" />. Its users are refused. Restore it to change anything
            here.
          </div>
        </div>
      )}
      {status === 'suspended' && (
        <div class="callout">
          <div>Suspended: its users are refused until you activate it.</div>
        </div>
      )}
      <div class="columns">
        <Show what={plans} lines={8}>
          {(all) => (
            <SchoolForm
              key={data.id}
              answer={school.data ?? { data, etag: undefined }}
              plans={all}
              onSaved={(saved) => {
                say('Saved.');
                school.set(saved);
              }}
            />
          )}
        </Show>
        <div>
          <Card title="At a glance">
            <dl class="facts">
              <Count label="Students" value={stats.total_students} most={plan?.max_students} />
              <Count label="Teachers" value={stats.total_teachers} most={plan?.max_teachers} />
              <Count label="Classes" value={stats.total_classes} />
              <dt>Subscription</dt>
              <dd>{subscription.status ? <Badge value={subscription.status} /> : 'none'}</dd>
              {subscription.current_period_end && (
                <>
                  <dt>Period ends</dt>
                  <dd>
                    <Moment at={subscription.current_period_end} />
                  </dd>
                </>
              )}
              {trial_ends_at && (
                <>
                  <dt>Trial ends</dt>
                  <dd>
                    <Moment at={trial_ends_at} form="time" />
                  </dd>
                </>
              )}
              <dt>Features</dt>
              <dd>{enabled_features.map(featureName).join(', ') || 'none'}</dd>
              <dt>Setup</dt>
              <dd>{data.is_setup_complete ? 'complete' : 'not complete yet'}</dd>
              <dt>Created</dt>
              <dd>
                <Moment at={data.created_at} />
              </dd>
              <dt>Log-in by operators</dt>
              <dd>
                {is_impersonation_allowed ? 'allowed' : 'switched off; only the school can allow it'}
                {is_impersonation_allowed && status !== 'deleted' && (
                  <>
                    {' '}
                    <button type="button" class="link small" onClick={() => void forbidImpersonation()}>
                      Switch off
                    </button>
                  </>
                )}
              </dd>
            </dl>
          </Card>
          <Card title="Recent activity" actions={<a href={href(`/audit?tenant_id=${data.id}`)}>All entries</a>}>
            {data.recent_audit_logs.length > 0 ? (
              <Entries entries={data.recent_audit_logs} withSchool={false} />
            ) : (
              <Empty title="Nothing happened yet." />
            )}
          </Card>
        </div>
      </div>
      {isLoggingIn && (
        <Impersonate school={data} onClose={() => setLoggingIn(false)} onDone={() => void school.reload()} />
      )}
    </>
  );
}
