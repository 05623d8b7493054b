import type { ApiResponse } from '../../data/api.ts';
import { type Access, AccessFields, toBody } from '../../parts/access-fields.tsx';
import { showToast } from '../../parts/dialogs.tsx';
import { CheckboxField, TextField } from '../../parts/fields.tsx';
import { fromLocalInput, toLocalInput } from '../../parts/format.tsx';
import { DialogForm, type Form, FormError, RecordDialog, useRecordForm } from '../../parts/forms.tsx';
import type { ApiKey } from '../../types.ts';
import { NewSecretDialog } from './secret-dialog.tsx';

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

interface NewKeyProps {
  onClose: () => void;
  onCreated: () => void;
}

/** Creates an API key, and shows it once. */
export const NewKeyDialog = (props: NewKeyProps) => (
  <NewSecretDialog<ApiKey & { key: string | null }, KeyForm>
    {...props}
    path={path}
    empty={empty}
    toBody={(value) => bodyOf(value, value)}
    fields={(form) => <KeyFields form={form} />}
    title={(created) => (created ? `API key ${created.name}` : 'Create API key')}
    label="Key"
    button="Create key"
    secretOf={({ key }) => key}
    text="Copy the key now. It is not shown again."
  />
);

interface EditKeyProps {
  response: ApiResponse<ApiKey>;
  onClose: () => void;
  onSaved: () => void;
}

function EditKey({ response, onClose, onSaved }: EditKeyProps) {
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
    <DialogForm form={form} label="Save changes" onCancel={onClose}>
      <KeyFields form={form} />
    </DialogForm>
  );
}

/** Changes an API key of the operator. */
export const KeyDialog = ({ apiKey, onClose, onSaved }: Omit<EditKeyProps, 'response'> & { apiKey: ApiKey }) => (
  <RecordDialog<ApiKey> title={apiKey.name} path={`${path}/${apiKey.id}`} onClose={onClose}>
    {(response, close) => <EditKey response={response} onClose={close} onSaved={onSaved} />}
  </RecordDialog>
);
