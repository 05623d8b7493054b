import { startAuthentication, type PublicKeyCredentialRequestOptionsJSON } from '@simplewebauthn/browser';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ErrorMessage } from '../parts/components.tsx';
import { CheckboxField, TextField } from '../parts/fields.tsx';
import { toFailure, type Failure, type LoginChallenge } from '../data/http.ts';
import { enroll, enter, verifyLogin } from '../data/session.ts';
import { AppSetup, CodeField, RecoveryCodeList } from '../parts/two-factor.tsx';
import type { TotpSetup } from '../types.ts';
import { Button } from '../parts/button.tsx';

/** The second step of a login: a code, a recovery code or a passkey, or the set-up of a required app. */
export function SecondStep({ challenge, onCancel }: { challenge: LoginChallenge; onCancel: () => void }) {
  const [setup, setSetup] = useState<TotpSetup>();
  const [code, setCode] = useState('');
  const [isRecovery, setRecovery] = useState(false);
  const [isRemembered, setRemembered] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<Failure>();
  const [done, setDone] = useState<{ token: string; codes: string[] }>();
  const form = useRef<HTMLFormElement>(null);

  const attempt = async (work: () => Promise<void>) => {
    setBusy(true);
    setFailure(undefined);
    try {
      await work();
    } catch (thrown) {
      setFailure(toFailure(thrown));
    }
    setBusy(false);
  };
  useEffect(() => {
    if (challenge.is_enrollment) void attempt(async () => setSetup(await enroll(challenge.token)));
  }, []);
  useEffect(
    () => form.current?.querySelector<HTMLInputElement>('input:not([type=checkbox])')?.focus(),
    [isRecovery, setup],
  );

  const verify = async (fields: object) => {
    const { access_token, recovery_codes } = await verifyLogin(challenge.token, {
      ...fields,
      remember_device: isRemembered,
    });
    if (recovery_codes) setDone({ token: access_token, codes: recovery_codes });
    else await enter(access_token);
  };
  const usePasskey = async () => {
    const optionsJSON = challenge.passkey as PublicKeyCredentialRequestOptionsJSON;
    await verify({ passkey: await startAuthentication({ optionsJSON }) });
  };

  if (done) {
    return (
      <div class="log-in-form">
        <RecoveryCodeList codes={done.codes} />
        <button type="button" class="button primary big" onClick={() => void attempt(() => enter(done.token))}>
          Continue
        </button>
      </div>
    );
  }
  return (
    <form
      ref={form}
      class="log-in-form"
      onSubmit={(event) => {
        event.preventDefault();
        void attempt(() => verify(isRecovery ? { recovery_code: code } : { code }));
      }}
    >
      {failure && <ErrorMessage failure={failure} />}
      {challenge.is_enrollment && <p>Your account needs a second factor.</p>}
      {setup && <AppSetup setup={setup} />}
      {isRecovery ? (
        <TextField
          label="Recovery code"
          name="recovery_code"
          isRequired
          value={code}
          onChange={setCode}
          input={{ autocomplete: 'off', spellcheck: false }}
        />
      ) : (
        <CodeField value={code} onChange={setCode} />
      )}
      <CheckboxField
        label="Remember this device for 30 days"
        hint="Do not use this on a shared device."
        isOn={isRemembered}
        onChange={setRemembered}
      />
      <button class="button primary big" disabled={isBusy}>
        Verify
      </button>
      {challenge.passkey && (
        <Button label="Use a passkey" isDisabled={isBusy} onClick={() => void attempt(usePasskey)} />
      )}
      <p class="small">
        {challenge.methods.includes('recovery_code') && (
          <>
            <Button
              label={isRecovery ? 'Use a code of the app' : 'Use a recovery code'}
              kind="link"
              onClick={() => {
                setRecovery(!isRecovery);
                setCode('');
              }}
            />
            {' · '}
          </>
        )}
        <Button label="Back" kind="link" onClick={onCancel} />
      </p>
    </form>
  );
}
