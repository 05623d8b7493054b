import { useState } from 'preact/hooks';
import { idempotencyKeys, request } from '../../data/api.ts';
import { Dialog, DialogFoot } from '../../parts/dialogs.tsx';
import { FormError, TextField, useForm } from '../../parts/forms.tsx';
import { closeUnlessDirty } from '../../router.ts';
import type { Operator } from '../../types.ts';
import { type Access, AccessFields, toBody } from '../../parts/access-fields.tsx';

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
  const [makeKey] = useState(idempotencyKeys);
  const form = useForm(empty, async (value) => {
    const { email, first_name, last_name } = value;
    const body = { email, first_name, last_name, ...toBody(value) };
    const { data } = await request<Operator>('POST', '/api/platform/operators', {
      body,
      idempotencyKey: makeKey(body),
    });
    onInvited(data);
  });
  const close = closeUnlessDirty(onClose);
  return (
    <Dialog title="Invite operator" isWide onClose={close}>
      <form ref={form.ref} onSubmit={form.submit} noValidate>
        <div class="dialog-body">
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
            <TextField {...form.field('last_name')} label="Last name" isRequired input={{ autocomplete: 'off' }} />
          </div>
          <AccessFields form={form} />
        </div>
        <DialogFoot onCancel={close} label={form.isBusy ? 'Inviting…' : 'Send invitation'} isDisabled={form.isBusy} />
      </form>
    </Dialog>
  );
}
