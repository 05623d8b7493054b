import { fromLocalInput, toLocalInput } from '../../parts/format.tsx';
import { TextField } from '../../parts/fields.tsx';
import { Conflicts, FormError, SaveBar, useRecordForm } from '../../parts/forms.tsx';
import type { ApiResponse } from '../../data/api.ts';
import { Card } from '../../parts/components.tsx';
import type { Plan, TenantDetail } from '../../types.ts';
import { FeatureFields, PlanField, ZoneField } from './school-fields.tsx';

export type SchoolResponse = Pick<ApiResponse<TenantDetail>, 'data' | 'etag'>;

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

interface SchoolFormProps {
  response: SchoolResponse;
  plans: Plan[];
  onSaved: (response: SchoolResponse) => void;
}

/** Edits a school. */
export function SchoolForm({ response, plans, onSaved }: SchoolFormProps) {
  const path = `/api/platform/tenants/${response.data.id}`;
  const form = useRecordForm({ path, response, toForm, toBody, labels, onSaved });
  const { value, set, conflicts } = form;
  const isDeleted = response.data.status === 'deleted';
  const field = (name: Exclude<keyof Fields, 'feature_flags'>) => ({ label: labels[name], ...form.field(name) });
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
