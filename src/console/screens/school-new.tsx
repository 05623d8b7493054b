import { useState } from 'preact/hooks';
import { showToast } from '../dialogs.tsx';
import { formatAmount, featureName, fromLocalInput, formatNumber } from '../format.tsx';
import { FormError, TextField, useForm } from '../forms.tsx';
import { request, idempotencyKeys } from '../api.ts';
import { Card, PageHeader, AsyncContent } from '../components.tsx';
import { navigate, href } from '../router.ts';
import { FeatureFields, usePlans, ZoneField } from '../school-fields.tsx';
import type { Plan, TenantDetail } from '../types.ts';

/** Suggests a subdomain for a school name. */
const suggestSubdomain = (name: string) =>
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

function NewSchoolForm({ plans }: { plans: Plan[] }) {
  const [key] = useState(idempotencyKeys);
  const [isSubdomainEdited, setSubdomainEdited] = useState(false);
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
      // Empty fields are not sent: the service uses a default, or reports that the field is required.
      const nonEmpty = Object.fromEntries(Object.entries(rest).filter(([, field]) => field !== ''));
      const body = {
        ...nonEmpty,
        ...(plan_id ? { plan_id: Number(plan_id) } : {}),
        trial_ends_at: fromLocalInput(trial_ends_at),
      };
      const { data } = await request<TenantDetail>('POST', '/api/platform/tenants', {
        body,
        idempotencyKey: key(body),
      });
      showToast(
        <>
          <bdi>{data.name}</bdi> created.
        </>,
      );
      await navigate(`/schools/${data.id}`, { force: true });
    },
  );
  const { value, set, error } = form;
  const field = (name: Exclude<keyof typeof value, 'feature_flags'>) => ({
    name,
    value: value[name],
    error: error(name),
    onChange: (to: string) => set({ [name]: to }),
  });
  const plan = plans.find(({ id }) => String(id) === value.plan_id);

  return (
    <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
      <FormError form={form} fields={fields} />
      <Card title="School">
        <div class="form">
          <TextField
            {...field('name')}
            label="Name"
            isRequired
            input={{ autocomplete: 'off' }}
            onChange={(name) => set({ name, ...(isSubdomainEdited ? {} : { subdomain: suggestSubdomain(name) }) })}
          />
          <div class="pair">
            <TextField
              {...field('subdomain')}
              label="Subdomain"
              isRequired
              hint="Letters, digits and hyphens. Users log in at this address."
              input={{ autocomplete: 'off', autocapitalize: 'none', spellcheck: false }}
              onChange={(subdomain) => {
                setSubdomainEdited(subdomain !== '');
                set({ subdomain });
              }}
            />
            <TextField
              {...field('contact_email')}
              label="Contact email"
              isRequired
              input={{ type: 'email', autocomplete: 'off' }}
            />
          </div>
          <div class="pair">
            <ZoneField {...field('time_zone')} />
            <TextField
              {...field('trial_ends_at')}
              label="Trial end"
              hint="In your time zone. Leave empty to start without a trial."
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
                {name} <span class="number">{formatAmount(price_monthly)}</span>
              </strong>
              <small>
                {formatNumber(max_students)} students, {formatNumber(max_teachers)} teachers
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
            <summary>Override features for this school</summary>
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
          <TextField
            {...field('admin_email')}
            label="Email"
            hint="Defaults to the contact email."
            input={{ type: 'email', autocomplete: 'off' }}
          />
          <div class="pair">
            <TextField {...field('admin_first_name')} label="First name" input={{ autocomplete: 'off' }} />
            <TextField {...field('admin_last_name')} label="Last name" input={{ autocomplete: 'off' }} />
          </div>
          <TextField
            {...field('admin_password')}
            label="Password"
            hint="Leave empty to send an invitation, so that the admin chooses the password."
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

export function NewSchool() {
  const plans = usePlans();
  return (
    <>
      <PageHeader
        title="Create school"
        back={<a href={href('/schools')}>Schools</a>}
        lead="Creates the school with its default roles, first admin and subscription."
      />
      <div class="narrow">
        <AsyncContent state={plans}>{(data) => <NewSchoolForm plans={data} />}</AsyncContent>
      </div>
    </>
  );
}
