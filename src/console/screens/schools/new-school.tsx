import { useState } from 'preact/hooks';
import { showToast } from '../../parts/dialogs.tsx';
import { formatNumber, formatPrice, fromLocalInput } from '../../parts/format.tsx';
import { TextField } from '../../parts/fields.tsx';
import { type Form, FormError, useCreateForm } from '../../parts/forms.tsx';
import { Card, PageHeader, AsyncContent } from '../../parts/components.tsx';
import { planFeatures, usePlans } from '../../data/plans.ts';
import { navigate, href } from '../../router.ts';
import type { Plan, TenantDetail } from '../../types.ts';
import { FeatureFields, ZoneField } from './school-fields.tsx';

/** Suggests a subdomain for a school name. */
const suggestSubdomain = (name: string) =>
  name
    .normalize('NFD')
    .replace(/\p{M}/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 63);

const emptySchool = () => ({
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
});
type NewSchoolFields = ReturnType<typeof emptySchool>;

/** Empty fields are not sent: the service uses a default, or reports that the field is required. */
const toBody = ({ plan_id, trial_ends_at, ...rest }: NewSchoolFields) => ({
  ...Object.fromEntries(Object.entries(rest).filter(([, field]) => field !== '')),
  ...(plan_id ? { plan_id: Number(plan_id) } : {}),
  trial_ends_at: fromLocalInput(trial_ends_at),
});

const useNewSchoolForm = () =>
  useCreateForm<TenantDetail, NewSchoolFields>('/api/platform/tenants', emptySchool(), toBody, async ({ id, name }) => {
    showToast(
      <>
        <bdi>{name}</bdi> created.
      </>,
    );
    await navigate(`/schools/${id}`, { force: true });
  });

function SchoolCard({ form }: { form: Form<NewSchoolFields> }) {
  const { set, field } = form;
  const [isSubdomainEdited, setSubdomainEdited] = useState(false);
  return (
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
  );
}

interface PlanChoiceProps {
  plan: Plan;
  isChosen: boolean;
  isInvalid: boolean;
  onChoose: () => void;
}

function PlanChoice({ plan, isChosen, isInvalid, onChoose }: PlanChoiceProps) {
  const { name, max_students, max_teachers } = plan;
  return (
    <label class="choice">
      <input
        type="radio"
        name="plan_id"
        checked={isChosen}
        aria-invalid={isInvalid ? 'true' : undefined}
        onChange={onChoose}
      />
      <strong>
        {name} <span class="number">{formatPrice(plan)}</span>
      </strong>
      <small>
        {formatNumber(max_students)} students, {formatNumber(max_teachers)} teachers
      </small>
      <small>{planFeatures(plan)}</small>
    </label>
  );
}

function PlanCard({ form, plans }: { form: Form<NewSchoolFields>; plans: Plan[] }) {
  const { value, set } = form;
  const error = form.error('plan_id');
  const chosen = plans.find(({ id }) => String(id) === value.plan_id);
  return (
    <Card title="Plan">
      <fieldset class="choices" aria-describedby={error ? 'plan-error' : undefined}>
        <legend class="hidden">Plan</legend>
        {plans.map((plan) => (
          <PlanChoice
            key={plan.id}
            plan={plan}
            isChosen={plan === chosen}
            isInvalid={error !== undefined}
            onChoose={() => set({ plan_id: String(plan.id) })}
          />
        ))}
      </fieldset>
      {error && (
        <p class="error" id="plan-error">
          Plan {error}
        </p>
      )}
      {chosen && (
        <details class="more">
          <summary>Override features for this school</summary>
          <FeatureFields
            flags={value.feature_flags}
            plan={chosen}
            onChange={(feature_flags) => set({ feature_flags })}
          />
        </details>
      )}
    </Card>
  );
}

function FirstAdminCard({ form: { field } }: { form: Form<NewSchoolFields> }) {
  return (
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
  );
}

function NewSchoolForm({ plans }: { plans: Plan[] }) {
  const form = useNewSchoolForm();
  return (
    <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
      <FormError form={form} fields={Object.keys(form.value).filter((name) => name !== 'feature_flags')} />
      <SchoolCard form={form} />
      <PlanCard form={form} plans={plans} />
      <FirstAdminCard form={form} />
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
