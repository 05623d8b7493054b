import type { ApiResponse } from '../../data/api.ts';
import { showToast } from '../../parts/dialogs.tsx';
import { CheckboxField, TextField } from '../../parts/fields.tsx';
import { DialogForm, type Form, FormError, RecordDialog, useRecordForm } from '../../parts/forms.tsx';
import type { Webhook } from '../../types.ts';
import { NewSecretDialog } from './secret-dialog.tsx';

export const path = '/api/platform/webhooks';

/** The events of the platform, by what they are about. The browser test compares them with the catalog. */
const events = {
  Schools: [
    ['tenant.created', 'Created'],
    ['tenant.updated', 'Changed'],
    ['tenant.plan_changed', 'Plan changed'],
    ['tenant.suspended', 'Suspended'],
    ['tenant.activated', 'Activated'],
    ['tenant.deleted', 'Deleted'],
    ['tenant.restored', 'Restored'],
    ['tenant.moved', 'Moved to another server'],
    ['tenant.migration_failed', 'Migration failed'],
  ],
  Subscriptions: [
    ['subscription.updated', 'Period or grace changed'],
    ['subscription.trial_started', 'Trial started again'],
    ['subscription.activated', 'Activated'],
    ['subscription.past_due', 'Past due'],
    ['subscription.cancelled', 'Cancelled'],
  ],
  Plans: [
    ['plan.created', 'Created'],
    ['plan.updated', 'Changed'],
    ['plan.deleted', 'Deleted'],
  ],
  Jobs: [['job.failed', 'Failed at the last attempt']],
} as const;

interface WebhookForm {
  url: string;
  description: string;
  events: string[];
}

const labels = { url: 'Address', description: 'Description', events: 'Events' };

function WebhookFields({ form }: { form: Form<WebhookForm> }) {
  const chosen = form.value.events;
  return (
    <>
      <FormError form={form} fields={['url', 'description']} />
      <TextField
        {...form.field('url')}
        label="Address"
        isRequired
        hint="An https address on the internet, for example https://hooks.example.org/platform."
        input={{ autocomplete: 'off', spellcheck: false }}
      />
      <TextField {...form.field('description')} label="Description" input={{ autocomplete: 'off' }} />
      {Object.entries(events).map(([subject, choices]) => (
        <fieldset key={subject} class="field">
          <legend>{subject}</legend>
          {choices.map(([name, label]) => (
            <CheckboxField
              key={name}
              label={label}
              isOn={chosen.includes(name)}
              onChange={(isOn) =>
                form.set({ events: isOn ? [...chosen, name] : chosen.filter((other) => other !== name) })
              }
            />
          ))}
        </fieldset>
      ))}
    </>
  );
}

interface NewWebhookProps {
  onClose: () => void;
  onCreated: () => void;
}

/** Adds a webhook, and shows its secret once. */
export const NewWebhookDialog = (props: NewWebhookProps) => (
  <NewSecretDialog<Webhook & { secret: string | null }, WebhookForm>
    {...props}
    path={path}
    empty={{ url: '', description: '', events: [] }}
    toBody={(value) => value}
    fields={(form) => <WebhookFields form={form} />}
    title={(created) => (created ? 'Webhook added' : 'Add webhook')}
    label="Secret"
    button="Add webhook"
    secretOf={({ secret }) => secret}
    text="Copy the secret now. It signs the messages, and is not shown again."
  />
);

interface EditWebhookProps {
  response: ApiResponse<Webhook>;
  onClose: () => void;
  onSaved: () => void;
}

function EditWebhook({ response, onClose, onSaved }: EditWebhookProps) {
  const form = useRecordForm<Webhook, WebhookForm>({
    path: `${path}/${response.data.id}`,
    response,
    toForm: ({ url, description, events: chosen }) => ({ url, description: description ?? '', events: chosen }),
    toBody: (changes) => changes,
    labels,
    onSaved: () => {
      showToast('Webhook saved.');
      onSaved();
    },
  });
  return (
    <DialogForm form={form} label="Save changes" onCancel={onClose}>
      <WebhookFields form={form} />
    </DialogForm>
  );
}

/** Changes the address and the events of a webhook. */
export const WebhookDialog = ({ id, onClose, onSaved }: Omit<EditWebhookProps, 'response'> & { id: number }) => (
  <RecordDialog<Webhook> title="Edit webhook" path={`${path}/${id}`} onClose={onClose}>
    {(response, close) => <EditWebhook response={response} onClose={close} onSaved={onSaved} />}
  </RecordDialog>
);
