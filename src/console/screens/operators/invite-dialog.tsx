import { type Access, AccessFields, toBody } from '../../parts/access-fields.tsx';
import { Dialog } from '../../parts/dialogs.tsx';
import { TextField } from '../../parts/fields.tsx';
import { DialogForm, FormError, useCreateForm } from '../../parts/forms.tsx';
import { closeUnlessDirty } from '../../router.ts';
import type { Operator } from '../../types.ts';

type Invitation = Access & { email: string; first_name: string; last_name: string };
const empty: Invitation = {
  email: '',
  first_name: '',
  last_name: '',
  role: 'analyst',
  isLimited: false,
  schools: [],
};

/** Invites an operator: an email with a link to choose a password. */
export function InviteDialog({ onClose, onInvited }: { onClose: () => void; onInvited: (operator: Operator) => void }) {
  const form = useCreateForm<Operator, Invitation>(
    '/api/platform/operators',
    empty,
    ({ email, first_name, last_name, ...access }) => ({ email, first_name, last_name, ...toBody(access) }),
    onInvited,
  );
  const close = closeUnlessDirty(onClose);
  return (
    <Dialog title="Invite operator" isWide onClose={close}>
      <DialogForm form={form} label="Send invitation" busyLabel="Inviting…" onCancel={close}>
        <FormError form={form} fields={['email', 'first_name', 'last_name', 'role', 'tenant_ids']} />
        <TextField
          {...form.field('email')}
          label="Email"
          isRequired
          hint="Gets a link to choose a password. It works once, for seven days."
          input={{ type: 'email', autocomplete: 'off' }}
        />
        <div class="pair">
          <TextField {...form.field('first_name')} label="First name" isRequired input={{ autocomplete: 'off' }} />
          <TextField {...form.field('last_name')} label="Last name" input={{ autocomplete: 'off' }} />
        </div>
        <AccessFields form={form} />
      </DialogForm>
    </Dialog>
  );
}
