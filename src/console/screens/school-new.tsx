import { useState } from 'preact/hooks';
import { say } from '../dialogs.tsx';
import { amount, featureName, fromLocal, number } from '../format.tsx';
import { FormProblem, Text, useForm } from '../forms.tsx';
import { ask, idempotencyKeys } from '../http.ts';
import { Card, Head, Show } from '../parts.tsx';
import { go, href } from '../router.ts';
import { FeatureFields, usePlans, ZoneField } from '../school-fields.tsx';
import type { Plan, TenantDetail } from '../types.ts';

/** A subdomain that a name suggests. */
const suggested = (name: string) =>
  name
    .normalize('NFD')
    .replace(/\p{M}/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 63);

const fields = [
  'name',
  'subdomain',
  'contact_email',
  'time_zone',
  'plan_id',
  'trial_ends_at',
  'admin_email',
  'admin_first_name',
  'admin_last_name',
  'admin_password',
];

function NewSchool({ plans }: { plans: Plan[] }) {
  const [key] = useState(idempotencyKeys);
  const [isOwnSubdomain, setOwnSubdomain] = useState(false);
  const form = useForm(
    {
      name: '',
      subdomain: '',
      contact_email: '',
      time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      plan_id: '',
      trial_ends_at: '',
      feature_flags: {},
      admin_email: '',
      admin_first_name: '',
      admin_last_name: '',
      admin_password: '',
    },
    async (value) => {
      const { plan_id, trial_ends_at, ...rest } = value;
      // What was left empty is not sent: it has a value by default, or the service says that it is required.
      const given = Object.fromEntries(Object.entries(rest).filter(([, one]) => one !== ''));
      const body = {
        ...given,
        ...(plan_id ? { plan_id: Number(plan_id) } : {}),
        trial_ends_at: fromLocal(trial_ends_at),
      };
      const { data } = await ask<TenantDetail>('POST', '/api/platform/tenants', { body, idempotencyKey: key(body) });
      say(
        <>
          <bdi>{data.name}</bdi> was created.
        </>,
      );
      await go(`/schools/${data.id}`, { force: true });
    },
  );
  const { value, set, error } = form;
  const text = (name: Exclude<keyof typeof value, 'feature_flags'>) => ({
    name,
    value: value[name],
    error: error(name),
    onChange: (to: string) => set({ [name]: to }),
  });
  const plan = plans.find(({ id }) => String(id) === value.plan_id);

  return (
    <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
      <FormProblem form={form} fields={fields} />
      <Card title="School">
        <div class="form">
          <Text
            {...text('name')}
            label="Name"
            isRequired
            input={{ autocomplete: 'off' }}
            onChange={(name) => set({ name, ...(isOwnSubdomain ? {} : { subdomain: suggested(name) }) })}
          />
          <div class="pair">
            <Text
              {...text('subdomain')}
              label="Subdomain"
              isRequired
              hint="Letters, digits and hyphens. Its users log in by it."
              input={{ autocomplete: 'off', autocapitalize: 'none', spellcheck: false }}
              onChange={(subdomain) => {
                setOwnSubdomain(subdomain !== '');
                set({ subdomain });
              }}
            />
            <Text
              {...text('contact_email')}
              label="Contact e-mail"
              isRequired
              input={{ type: 'email', autocomplete: 'off' }}
            />
          </div>
          <div class="pair">
            <ZoneField {...text('time_zone')} />
            <Text
              {...text('trial_ends_at')}
              label="Trial ends"
              hint="In your time zone. Without it the subscription is active at once."
              input={{ type: 'datetime-local' }}
            />
          </div>
        </div>
      </Card>
      <Card title="Plan">
        <fieldset class="choices" aria-describedby={error('plan_id') ? 'plan-error' : undefined}>
          <legend class="hidden">Plan</legend>
          {plans.map(({ id, name, price_monthly, max_students, max_teachers, features_json }) => (
            <label key={id} class="choice">
              <input
                type="radio"
                name="plan_id"
                checked={value.plan_id === String(id)}
                aria-invalid={error('plan_id') ? 'true' : undefined}
                onChange={() => set({ plan_id: String(id) })}
              />
              <strong>
                {name} <span class="number">{amount(price_monthly)}</span>
              </strong>
              <small>
                {number(max_students)} students, {number(max_teachers)} teachers
              </small>
              <small>{features_json.features.map(featureName).join(', ') || 'No features'}</small>
            </label>
          ))}
        </fieldset>
        {error('plan_id') && (
          <p class="error" id="plan-error">
            Plan {error('plan_id')}
          </p>
        )}
        {plan && (
          <details class="more">
            <summary>Features of this school alone</summary>
            <FeatureFields
              flags={value.feature_flags}
              plan={plan}
              onChange={(feature_flags) => set({ feature_flags })}
            />
          </details>
        )}
      </Card>
      <Card title="First admin">
        <div class="form">
          <Text
            {...text('admin_email')}
            label="E-mail"
            hint="The contact e-mail, where none is given."
            input={{ type: 'email', autocomplete: 'off' }}
          />
          <div class="pair">
            <Text {...text('admin_first_name')} label="First name" input={{ autocomplete: 'off' }} />
            <Text {...text('admin_last_name')} label="Last name" input={{ autocomplete: 'off' }} />
          </div>
          <Text
            {...text('admin_password')}
            label="Password"
            hint="Leave it empty to send an invitation, so that only they know their password."
            input={{ type: 'password', autocomplete: 'new-password' }}
          />
        </div>
      </Card>
      <div class="form-foot">
        <a class="button" href={href('/schools')}>
          Cancel
        </a>
        <button class="button primary" disabled={form.isBusy}>
          {form.isBusy ? 'Creating…' : 'Create school'}
        </button>
      </div>
    </form>
  );
}

export function SchoolNew() {
  const plans = usePlans();
  return (
    <>
      <Head
        title="Create school"
        back={<a href={href('/schools')}>Schools</a>}
        lead="With its roles, its first admin and its subscription, at once."
      />
      <div class="narrow">
        <Show what={plans}>{(data) => <NewSchool plans={data} />}</Show>
      </div>
    </>
  );
}
