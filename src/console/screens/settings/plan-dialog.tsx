import type { ApiResponse } from '../../data/api.ts';
import { usePriceCurrency } from '../../data/plans.ts';
import { Dialog } from '../../parts/dialogs.tsx';
import { CheckboxField, TextField } from '../../parts/fields.tsx';
import { featureName, featureNames, formatNumber } from '../../parts/format.tsx';
import {
  DialogForm,
  type Form,
  FormError,
  RecordDialog,
  toNumber,
  useCreateForm,
  useRecordForm,
} from '../../parts/forms.tsx';
import { closeUnlessDirty } from '../../router.ts';
import type { Plan } from '../../types.ts';

interface PlanFields {
  name: string;
  price_monthly: string;
  max_students: string;
  max_teachers: string;
  features: string[];
  is_public: boolean;
}

const labels: Record<keyof PlanFields, string> = {
  name: 'Name',
  price_monthly: 'Price per month',
  max_students: 'Maximum students',
  max_teachers: 'Maximum teachers',
  features: 'Features',
  is_public: 'Schools can choose this plan',
};
const emptyPlan: PlanFields = {
  name: '',
  price_monthly: '',
  max_students: '',
  max_teachers: '',
  features: [],
  is_public: true,
};
const toForm = ({ name, price_monthly, max_students, max_teachers, features_json, is_public }: Plan): PlanFields => ({
  name,
  price_monthly: String(price_monthly),
  max_students: String(max_students),
  max_teachers: String(max_teachers),
  features: [...features_json.features].sort(),
  is_public,
});
const toBody = ({ name, price_monthly, max_students, max_teachers, features, is_public }: Partial<PlanFields>) => ({
  name,
  price_monthly: price_monthly === undefined ? undefined : toNumber(price_monthly),
  max_students: max_students === undefined ? undefined : toNumber(max_students),
  max_teachers: max_teachers === undefined ? undefined : toNumber(max_teachers),
  features_json: features && { features },
  is_public,
});

interface PlanFormProps {
  form: Form<PlanFields>;
  onClose: () => void;
  label: string;
  note?: string;
}

function PlanForm({ form, onClose, label, note }: PlanFormProps) {
  const { value, set } = form;
  const settings = usePriceCurrency();
  const field = (name: Exclude<keyof PlanFields, 'features' | 'is_public'>) => ({
    label: labels[name],
    isRequired: true,
    ...form.field(name),
  });
  return (
    <DialogForm form={form} label={label} onCancel={onClose}>
      <FormError form={form} fields={['name', 'price_monthly', 'max_students', 'max_teachers']} />
      {note && <p class="muted">{note}</p>}
      <div class="pair">
        <TextField {...field('name')} input={{ autocomplete: 'off' }} />
        <TextField
          {...field('price_monthly')}
          hint={settings && `In ${settings.currency}.`}
          input={{
            type: 'number',
            min: '0',
            step: String(10 ** -(settings?.currency_decimals ?? 2)),
            inputMode: 'decimal',
          }}
        />
      </div>
      <div class="pair">
        <TextField
          {...field('max_students')}
          hint="Active only."
          input={{ type: 'number', min: '0', inputMode: 'numeric' }}
        />
        <TextField
          {...field('max_teachers')}
          hint="Active only."
          input={{ type: 'number', min: '0', inputMode: 'numeric' }}
        />
      </div>
      <CheckboxField
        label={labels.is_public}
        hint="Operators can assign every plan."
        isOn={value.is_public}
        onChange={(is_public) => set({ is_public })}
      />
      <fieldset class="form tight">
        <legend class="legend">Features</legend>
        {featureNames.map((name) => (
          <CheckboxField
            key={name}
            label={featureName(name)}
            isOn={value.features.includes(name)}
            onChange={(isOn) =>
              set({
                features: (isOn ? [...value.features, name] : value.features.filter((other) => other !== name)).sort(),
              })
            }
          />
        ))}
      </fieldset>
    </DialogForm>
  );
}

interface PlanDialogProps {
  onClose: () => void;
  onSaved: (text: string) => void;
}

function NewPlan({ onClose, onSaved }: PlanDialogProps) {
  const form = useCreateForm<Plan, PlanFields>('/api/platform/plans', emptyPlan, toBody, ({ name }) =>
    onSaved(`Plan ${name} created.`),
  );
  return <PlanForm form={form} onClose={onClose} label="Create plan" />;
}

function EditPlan({ response, onClose, onSaved }: PlanDialogProps & { response: ApiResponse<Plan> }) {
  const { id, name, tenant_count } = response.data;
  const form = useRecordForm<Plan, PlanFields>({
    path: `/api/platform/plans/${id}`,
    response,
    toForm,
    toBody,
    labels,
    onSaved: () => onSaved(`Plan ${name} saved.`),
  });
  const users = `${formatNumber(tenant_count)} ${tenant_count === 1 ? 'school uses' : 'schools use'} this plan.`;
  const note = tenant_count === 0 ? {} : { note: `${users} Changes apply immediately.` };
  return <PlanForm form={form} onClose={onClose} label="Save changes" {...note} />;
}

function NewPlanDialog(props: PlanDialogProps) {
  const close = closeUnlessDirty(props.onClose);
  return (
    <Dialog title="Create plan" isWide onClose={close}>
      <NewPlan {...props} onClose={close} />
    </Dialog>
  );
}

/** Creates or edits a plan. */
export const PlanDialog = ({ plan, ...props }: PlanDialogProps & { plan: Plan | 'new' }) =>
  plan === 'new' ? (
    <NewPlanDialog {...props} />
  ) : (
    <RecordDialog<Plan> title={plan.name} path={`/api/platform/plans/${plan.id}`} onClose={props.onClose}>
      {(response, close) => <EditPlan {...props} response={response} onClose={close} />}
    </RecordDialog>
  );
