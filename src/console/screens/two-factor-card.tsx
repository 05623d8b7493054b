import { startRegistration, type PublicKeyCredentialCreationOptionsJSON } from '@simplewebauthn/browser';
import { useState } from 'preact/hooks';
import { request } from '../data/api.ts';
import { AsyncContent, Card, ErrorMessage } from '../parts/components.tsx';
import { Dialog, DialogFoot, showToast } from '../parts/dialogs.tsx';
import { Timestamp } from '../parts/format.tsx';
import { TextField } from '../parts/fields.tsx';
import { toFailure, type Failure } from '../data/http.ts';
import { useLoad } from '../data/load.ts';
import { AppSetup, CodeField, RecoveryCodeList } from '../parts/two-factor.tsx';
import type { RecoveryCodes, TotpSetup, TwoFactor } from '../types.ts';
import { Button } from '../parts/button.tsx';

const base = '/api/auth/two-factor';

type Action = 'app' | 'codes' | 'passkey' | 'off';
const titles: Record<Action, string> = {
  app: 'Set up an authenticator app',
  codes: 'New recovery codes',
  passkey: 'Add a passkey',
  off: 'Turn two-factor login off',
};

/** Asks for the password, then runs one action. */
function ActionDialog({ action, onClose }: { action: Action; onClose: () => void }) {
  const [password, setPassword] = useState('');
  const [name, setName] = useState('');
  const [code, setCode] = useState('');
  const [setup, setSetup] = useState<TotpSetup>();
  const [codes, setCodes] = useState<string[]>();
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<Failure>();

  const steps: Record<Action, () => Promise<void>> = {
    async app() {
      if (setup) {
        const { data } = await request<RecoveryCodes>('POST', `${base}/totp/confirm`, {
          body: { code },
        });
        setCodes(data.recovery_codes);
      } else setSetup((await request<TotpSetup>('POST', `${base}/totp`, { body: { password } })).data);
    },
    async codes() {
      const { data } = await request<RecoveryCodes>('POST', `${base}/recovery-codes`, { body: { password } });
      setCodes(data.recovery_codes);
    },
    async passkey() {
      const { data: optionsJSON } = await request<PublicKeyCredentialCreationOptionsJSON>(
        'POST',
        `${base}/passkeys/options`,
        { body: { password } },
      );
      const response = await startRegistration({ optionsJSON });
      await request('POST', `${base}/passkeys`, { body: { name, response } });
      showToast('Passkey added.');
      onClose();
    },
    async off() {
      await request('DELETE', base, { body: { password } });
      showToast('Two-factor login is off.');
      onClose();
    },
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setFailure(undefined);
    try {
      await steps[action]();
    } catch (thrown) {
      setFailure(toFailure(thrown));
    }
    setBusy(false);
  };

  return (
    <Dialog title={titles[action]} onClose={onClose}>
      {codes ? (
        <>
          <div class="dialog-body">
            <RecoveryCodeList codes={codes} />
          </div>
          <div class="dialog-foot">
            <Button label="Done" kind="primary" onClick={onClose} />
          </div>
        </>
      ) : (
        <form onSubmit={(event) => void submit(event)}>
          <div class="dialog-body">
            {failure && <ErrorMessage failure={failure} />}
            {setup ? (
              <>
                <AppSetup setup={setup} />
                <CodeField value={code} onChange={setCode} />
              </>
            ) : (
              <>
                {action === 'passkey' && (
                  <TextField label="Name" name="name" isRequired value={name} onChange={setName} />
                )}
                <TextField
                  label="Password"
                  name="password"
                  isRequired
                  value={password}
                  onChange={setPassword}
                  input={{ type: 'password', autocomplete: 'current-password' }}
                />
              </>
            )}
          </div>
          <DialogFoot
            onCancel={onClose}
            label={action === 'off' ? 'Turn off' : 'Continue'}
            isDisabled={isBusy}
            isDangerous={action === 'off'}
          />
        </form>
      )}
    </Dialog>
  );
}

/** The second factor of the operator: the app, recovery codes and passkeys. */
export function TwoFactorCard() {
  const state = useLoad('two-factor', (signal) => request<TwoFactor>('GET', base, { signal }), { isUncached: true });
  const [action, setAction] = useState<Action>();
  const reload = async (response: { data: TwoFactor }) =>
    state.set({ ...response, ...(await request<TwoFactor>('GET', base)) });
  const removePasskey = async (response: { data: TwoFactor }, id: number) => {
    try {
      await request('DELETE', `${base}/passkeys/${id}`);
      await reload(response);
    } catch (thrown) {
      showToast(toFailure(thrown).message, true);
    }
  };
  return (
    <Card title="Two-factor login">
      <AsyncContent state={state}>
        {(response) => (
          <div class="form">
            <p>
              {response.data.is_enabled
                ? `On. ${response.data.recovery_codes_left} recovery codes are left.`
                : 'Off. With an authenticator app, a stolen password is not enough to log in.'}
            </p>
            {response.data.passkeys.map(({ id, name, created_at }) => (
              <p key={id}>
                Passkey {name}, added <Timestamp at={created_at} />{' '}
                <Button label={`Remove ${name}`} kind="link" onClick={() => void removePasskey(response, id)} />
              </p>
            ))}
            <div class="form-foot">
              <Button
                label={response.data.is_enabled ? 'Replace the app' : 'Set up an app'}
                onClick={() => setAction('app')}
              />
              {response.data.is_enabled && (
                <>
                  <Button label="New recovery codes" onClick={() => setAction('codes')} />
                  <Button label="Add a passkey" onClick={() => setAction('passkey')} />
                  {!response.data.is_required && <Button label="Turn off" onClick={() => setAction('off')} />}
                </>
              )}
            </div>
            {action && (
              <ActionDialog
                action={action}
                onClose={() => {
                  setAction(undefined);
                  void reload(response).catch(() => undefined);
                }}
              />
            )}
          </div>
        )}
      </AsyncContent>
    </Card>
  );
}
