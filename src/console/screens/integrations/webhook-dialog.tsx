import { useState } from 'preact/hooks';
import { type ApiResponse, idempotencyKeys, request } from '../../data/api.ts';
import { AsyncContent } from '../../parts/components.tsx';
import { Dialog, showToast } from '../../parts/dialogs.tsx';
import {
  CheckboxField,
  Conflicts,
  type Form,
  FormError,
  TextField,
  useForm,
  useRecordForm,
} from '../../parts/forms.tsx';
import { useLoad } from '../../data/load.ts';
import { closeUnlessDirty } from '../../router.ts';
import type { Webhook } from '../../types.ts';
import { SecretResult } from './secret-result.tsx';

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

const Foot = ({ label, form, onClose }: { label: string; form: Form<WebhookForm>; onClose: () => void }) => (
  <div class="dialog-foot">
    <button type="button" class="button" onClick={onClose}>
      Cancel
    </button>
    <button class="button primary" disabled={form.isBusy}>
      {form.isBusy ? 'Saving…' : label}
    </button>
  </div>
);

const empty: WebhookForm = { url: '', description: '', events: [] };

/** Adds a webhook, and shows its secret once. */
export function NewWebhookDialog({ onClose, onCreated }: { onClose: () => void; onCreated: () => void }) {
  const [makeKey] = useState(idempotencyKeys);
  const [created, setCreated] = useState<Webhook & { secret: string | null }>();
  const form = useForm(empty, async (body) => {
    const { data } = await request<Webhook & { secret: string | null }>('POST', path, {
      body,
      idempotencyKey: makeKey(body),
    });
    form.reset(empty);
    setCreated(data);
    onCreated();
  });
  const close = closeUnlessDirty(onClose);
  return (
    <Dialog title={created ? 'Webhook added' : 'Add webhook'} isWide onClose={close}>
      {created ? (
        <SecretResult label="Secret" secret={created.secret ?? ''} onClose={onClose}>
          Copy the secret now. It signs the messages, and is not shown again.
        </SecretResult>
      ) : (
        <form ref={form.ref} onSubmit={form.submit} noValidate>
          <div class="dialog-body">
            <WebhookFields form={form} />
          </div>
          <Foot label="Add webhook" form={form} onClose={close} />
        </form>
      )}
    </Dialog>
  );
}

function EditWebhook({
  response,
  onClose,
  onSaved,
}: {
  response: Pick<ApiResponse<Webhook>, 'data' | 'etag'>;
  onClose: () => void;
  onSaved: () => void;
}) {
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
    <form ref={form.ref} onSubmit={form.submit} noValidate>
      <div class="dialog-body">
        <Conflicts conflicts={form.conflicts} />
        <WebhookFields form={form} />
      </div>
      <Foot label="Save changes" form={form} onClose={onClose} />
    </form>
  );
}

/** Changes the address and the events of a webhook. */
export function WebhookDialog({ id, onClose, onSaved }: { id: number; onClose: () => void; onSaved: () => void }) {
  const close = closeUnlessDirty(onClose);
  const read = useLoad(`webhook form ${id}`, (signal) => request<Webhook>('GET', `${path}/${id}`, { signal }), {
    isUncached: true,
  });
  return (
    <Dialog title="Edit webhook" isWide onClose={close}>
      <AsyncContent state={read}>
        {(response) => <EditWebhook response={response} onClose={close} onSaved={onSaved} />}
      </AsyncContent>
    </Dialog>
  );
}
