import type { ComponentChildren } from 'preact';
import { Dialog, showToast } from '../../parts/dialogs.tsx';
import { fromLocalInput, toLocalInput } from '../../parts/format.tsx';
import { TextField } from '../../parts/fields.tsx';
import { DialogForm, FormError, toNumber, useRecordForm } from '../../parts/forms.tsx';
import { closeUnlessDirty } from '../../router.ts';
import type { TenantDetail } from '../../types.ts';
import type { SchoolResponse } from './school-form.tsx';

const labels = { current_period_end: 'Period end', grace_days: 'Grace period (days)' };

const toForm = ({ subscription }: TenantDetail) => ({
  current_period_end: toLocalInput(subscription.current_period_end),
  grace_days: String(subscription.grace_days ?? ''),
});
type Fields = ReturnType<typeof toForm>;

const toBody = ({ current_period_end, grace_days }: Partial<Fields>) => ({
  ...(current_period_end ? { current_period_end: fromLocalInput(current_period_end) } : {}),
  ...(grace_days === undefined ? {} : { grace_days: toNumber(grace_days) }),
});

/** By the present status: the effect of a new period end. */
const effects: Record<string, ComponentChildren> = {
  trialing: 'A later period end extends the trial.',
  active: 'A later period end renews the subscription.',
  past_due: 'A period end in the future activates the subscription again.',
  cancelled: 'A period end in the future activates the subscription again.',
};

interface SubscriptionDialogProps {
  response: SchoolResponse;
  onClose: () => void;
  onSaved: (response: SchoolResponse) => void;
}

/** Renews, extends or reactivates the subscription of a school. */
export function SubscriptionDialog({ response, onClose, onSaved }: SubscriptionDialogProps) {
  const school = response.data;
  const path = `/api/platform/tenants/${school.id}`;
  const form = useRecordForm({
    path,
    savePath: `${path}/subscription`,
    response,
    toForm,
    toBody,
    labels,
    onSaved: (saved) => {
      showToast('Subscription saved.');
      onSaved(saved);
      onClose();
    },
  });
  const close = closeUnlessDirty(onClose);
  return (
    <Dialog
      title={
        <>
          Subscription of <bdi>{school.name}</bdi>
        </>
      }
      onClose={close}
    >
      <DialogForm form={form} label="Save" cancelLabel="Close" isDisabled={!form.isDirty} onCancel={close}>
        <FormError form={form} fields={Object.keys(labels)} />
        <p class="muted">{effects[school.subscription.status ?? '']}</p>
        <TextField
          label={labels.current_period_end}
          {...form.field('current_period_end')}
          isRequired
          hint="In your time zone."
          input={{ type: 'datetime-local' }}
        />
        <TextField
          label={labels.grace_days}
          {...form.field('grace_days')}
          isRequired
          hint="After the period end, the subscription is past due for this many days. Then it is cancelled."
          input={{ type: 'number', min: '0', max: '365', inputMode: 'numeric' }}
        />
      </DialogForm>
    </Dialog>
  );
}
