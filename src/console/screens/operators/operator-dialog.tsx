import type { ComponentChildren } from 'preact';
import { type ApiResponse, request } from '../../data/api.ts';
import { operator as ownOperator } from '../../data/session.ts';
import { type Access, AccessFields, toBody } from '../../parts/access-fields.tsx';
import { confirm, showToast } from '../../parts/dialogs.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { Conflicts, FormError, RecordDialog, useRecordForm } from '../../parts/forms.tsx';
import type { Operator } from '../../types.ts';
import { Button } from '../../parts/button.tsx';
import { Fact } from '../../parts/components.tsx';

export const pathOf = ({ id }: Operator) => `/api/platform/operators/${id}`;
export const nameOf = ({ first_name, last_name }: Operator) => `${first_name} ${last_name}`.trimEnd();
export const isOwn = ({ id }: Operator) => id === ownOperator.value?.id;

const toForm = ({ role, tenants }: Operator): Access => ({
  role,
  isLimited: tenants !== null,
  schools: tenants ?? [],
});
const labels = { role: 'Role', isLimited: 'Only some schools', schools: 'Schools' };

interface Action {
  title: string;
  text: ComponentChildren;
  confirmLabel: string;
  done: string;
  isDangerous?: boolean;
  send: () => Promise<unknown>;
}

const actionsFor = (operator: Operator): Record<'disable' | 'enable' | 'reset' | 'invite', Action> => {
  const name = nameOf(operator);
  return {
    disable: {
      title: `Disable ${name}?`,
      text: 'All sessions end immediately, and the operator can no longer log in. You can enable them again.',
      confirmLabel: 'Disable',
      done: `${name} disabled.`,
      isDangerous: true,
      send: () => request('PUT', pathOf(operator), { body: { is_active: false } }),
    },
    enable: {
      title: `Enable ${name}?`,
      text: 'The operator can log in again, with the same role.',
      confirmLabel: 'Enable',
      done: `${name} enabled.`,
      send: () => request('PUT', pathOf(operator), { body: { is_active: true } }),
    },
    reset: {
      title: `Reset the second factor of ${name}?`,
      text: 'For an operator who has lost their authenticator app. They get an email about it. Make sure that it was really them who asked.',
      confirmLabel: 'Reset second factor',
      done: `Second factor of ${name} reset.`,
      isDangerous: true,
      send: () => request('POST', '/api/platform/operators/second-factor-reset', { body: { email: operator.email } }),
    },
    invite: {
      title: `Send the invitation to ${name} again?`,
      text: `A new link to choose a password goes to ${operator.email}. Earlier links keep working.`,
      confirmLabel: 'Send invitation',
      done: `Invitation sent to ${operator.email}.`,
      send: () => request('POST', `${pathOf(operator)}/invitation`),
    },
  };
};

function Actions({ operator, onDone }: { operator: Operator; onDone: () => void }) {
  const actions = actionsFor(operator);
  const run = async ({ title, text, confirmLabel, done, isDangerous = false, send }: Action) => {
    if (await confirm({ title, text: <p>{text}</p>, confirmLabel, isDangerous, action: send })) {
      onDone();
      showToast(done);
    }
  };
  const button = (name: keyof typeof actions, label: string) => (
    <Button label={label} isSmall onClick={() => void run(actions[name])} />
  );
  return (
    <div class="actions">
      {operator.is_invited && operator.is_active && button('invite', 'Send invitation again')}
      {operator.has_second_factor && button('reset', 'Reset second factor')}
      {operator.is_active ? button('disable', 'Disable') : button('enable', 'Enable')}
    </div>
  );
}

interface EditProps {
  response: ApiResponse<Operator>;
  onClose: () => void;
  onSaved: () => void;
}

function EditOperator({ response, onClose, onSaved }: EditProps) {
  const operator = response.data;
  const form = useRecordForm<Operator, Access>({
    path: pathOf(operator),
    response,
    toForm,
    toBody: (_, value) => toBody(value),
    labels,
    onSaved: () => {
      showToast(`${nameOf(operator)} saved.`);
      onSaved();
    },
  });
  return (
    <form ref={form.ref} onSubmit={form.submit} noValidate>
      <div class="dialog-body">
        <FormError form={form} fields={['role', 'tenant_ids']} />
        <Conflicts conflicts={form.conflicts} />
        <dl class="facts">
          <Fact label="Email">{operator.email}</Fact>
          <Fact label="Last login">
            {operator.last_login_at ? (
              <Timestamp at={operator.last_login_at} format="time" />
            ) : operator.is_invited ? (
              'Never. No password has been chosen yet.'
            ) : (
              'Never'
            )}
          </Fact>
          <Fact label="Second factor">{operator.has_second_factor ? 'On' : 'Off'}</Fact>
        </dl>
        <AccessFields form={form} isOwn={isOwn(operator)} />
        {form.isDirty && <p class="muted">Saving ends the operator’s sessions. They log in again.</p>}
        {!isOwn(operator) && <Actions operator={operator} onDone={onSaved} />}
      </div>
      <div class="dialog-foot">
        <Button label={isOwn(operator) ? 'Close' : 'Cancel'} onClick={onClose} />
        {!isOwn(operator) && (
          <button class="button primary" disabled={form.isBusy || !form.isDirty}>
            {form.isBusy ? 'Saving…' : 'Save changes'}
          </button>
        )}
      </div>
    </form>
  );
}

/** Changes the role and the schools of an operator, and offers what else an admin can do for them. */
export const OperatorDialog = ({
  operator,
  onClose,
  onSaved,
}: Omit<EditProps, 'response'> & { operator: Operator }) => (
  <RecordDialog<Operator> title={nameOf(operator)} path={pathOf(operator)} onClose={onClose}>
    {(response, close) => <EditOperator response={response} onClose={close} onSaved={onSaved} />}
  </RecordDialog>
);
