import { useState } from 'preact/hooks';
import { type Access, AccessFields, toBody } from '../../parts/access-fields.tsx';
import { type ApiResponse, idempotencyKeys, request } from '../../data/api.ts';
import { AsyncContent } from '../../parts/components.tsx';
import { Dialog, showToast } from '../../parts/dialogs.tsx';
import { fromLocalInput, toLocalInput } from '../../parts/format.tsx';
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
import type { ApiKey } from '../../types.ts';
import { SecretResult } from './secret-result.tsx';

export const path = '/api/platform/api-keys';

type KeyForm = Access & { name: string; isReadOnly: boolean; expires_at: string };

const empty: KeyForm = {
  name: '',
  role: 'analyst',
  isLimited: false,
  schools: [],
  isReadOnly: true,
  expires_at: '',
};
const toForm = ({ name, role, tenants, is_read_only, expires_at }: ApiKey): KeyForm => ({
  name,
  role,
  isLimited: tenants !== null,
  schools: tenants ?? [],
  isReadOnly: is_read_only,
  expires_at: toLocalInput(expires_at),
});
/** The body of a request, with the expiry only if `changes` has it, because inputs drop its seconds. */
const bodyOf = (value: KeyForm, changes: Partial<KeyForm>) => ({
  name: value.name,
  ...toBody(value),
  is_read_only: value.isReadOnly,
  ...('expires_at' in changes ? { expires_at: fromLocalInput(value.expires_at) } : {}),
});
const labels = {
  name: 'Name',
  role: 'Role',
  isLimited: 'Only some schools',
  schools: 'Schools',
  isReadOnly: 'Read only',
  expires_at: 'Expires',
};

function KeyFields({ form }: { form: Form<KeyForm> }) {
  return (
    <>
      <FormError form={form} fields={['name', 'role', 'tenant_ids', 'expires_at']} />
      <TextField
        {...form.field('name')}
        label="Name"
        isRequired
        hint="What the key is for, for example Billing."
        input={{ autocomplete: 'off' }}
      />
      <AccessFields form={form} adminHint="Manages schools, plans, templates and jobs. Never operators and keys." />
      <CheckboxField
        label="Read only"
        hint="The key cannot change or export anything."
        isOn={form.value.isReadOnly}
        onChange={(isReadOnly) => form.set({ isReadOnly })}
      />
      <TextField
        {...form.field('expires_at')}
        label="Expires"
        hint="In your time zone. Empty for never."
        input={{ type: 'datetime-local' }}
      />
    </>
  );
}

const Foot = ({ label, form, onClose }: { label: string; form: Form<KeyForm>; onClose: () => void }) => (
  <div class="dialog-foot">
    <button type="button" class="button" onClick={onClose}>
      Cancel
    </button>
    <button class="button primary" disabled={form.isBusy}>
      {form.isBusy ? 'Saving…' : label}
    </button>
  </div>
);

/** Creates an API key, and shows it once. */
export function NewKeyDialog({ onClose, onCreated }: { onClose: () => void; onCreated: () => void }) {
  const [makeKey] = useState(idempotencyKeys);
  const [created, setCreated] = useState<ApiKey & { key: string | null }>();
  const form = useForm(empty, async (value) => {
    const body = bodyOf(value, value);
    const { data } = await request<ApiKey & { key: string | null }>('POST', path, {
      body,
      idempotencyKey: makeKey(body),
    });
    form.reset(empty);
    setCreated(data);
    onCreated();
  });
  const close = closeUnlessDirty(onClose);
  return (
    <Dialog title={created ? `API key ${created.name}` : 'Create API key'} isWide onClose={close}>
      {created ? (
        <SecretResult label="Key" secret={created.key ?? ''} onClose={onClose}>
          Copy the key now. It is not shown again.
        </SecretResult>
      ) : (
        <form ref={form.ref} onSubmit={form.submit} noValidate>
          <div class="dialog-body">
            <KeyFields form={form} />
          </div>
          <Foot label="Create key" form={form} onClose={close} />
        </form>
      )}
    </Dialog>
  );
}

function EditKey({
  response,
  onClose,
  onSaved,
}: {
  response: Pick<ApiResponse<ApiKey>, 'data' | 'etag'>;
  onClose: () => void;
  onSaved: () => void;
}) {
  const form = useRecordForm<ApiKey, KeyForm>({
    path: `${path}/${response.data.id}`,
    response,
    toForm,
    toBody: (changes, value) => bodyOf(value, changes),
    labels,
    onSaved: ({ data }) => {
      showToast(`API key ${data.name} saved.`);
      onSaved();
    },
  });
  return (
    <form ref={form.ref} onSubmit={form.submit} noValidate>
      <div class="dialog-body">
        <Conflicts conflicts={form.conflicts} />
        <KeyFields form={form} />
      </div>
      <Foot label="Save changes" form={form} onClose={onClose} />
    </form>
  );
}

/** Changes an API key of the operator. */
export function KeyDialog({ apiKey, onClose, onSaved }: { apiKey: ApiKey; onClose: () => void; onSaved: () => void }) {
  const close = closeUnlessDirty(onClose);
  const read = useLoad(`api key ${apiKey.id}`, (signal) => request<ApiKey>('GET', `${path}/${apiKey.id}`, { signal }), {
    isUncached: true,
  });
  return (
    <Dialog title={apiKey.name} isWide onClose={close}>
      <AsyncContent state={read}>
        {(response) => <EditKey response={response} onClose={close} onSaved={onSaved} />}
      </AsyncContent>
    </Dialog>
  );
}
