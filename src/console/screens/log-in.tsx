import { useEffect, useRef, useState } from 'preact/hooks';
import { Dialog } from '../parts/dialogs.tsx';
import { TextField } from '../parts/fields.tsx';
import { toFailure, type Failure, type LoginChallenge } from '../data/http.ts';
import { ErrorMessage, usePageTitle } from '../parts/components.tsx';
import { forgotPassword, logIn, operator } from '../data/session.ts';
import { SecondStep } from './second-step.tsx';
import { Button } from '../parts/button.tsx';

/** Email and password. With `fixedEmail` the operator can only log in to that account. */
function LogInForm({ fixedEmail }: { fixedEmail?: string }) {
  const [email, setEmail] = useState(fixedEmail ?? '');
  const [password, setPassword] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<Failure>();
  const [challenge, setChallenge] = useState<LoginChallenge>();
  const [message, setMessage] = useState('');
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    form.current?.querySelector<HTMLInputElement>(fixedEmail ? '[type=password]' : 'input')?.focus();
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setFailure(undefined);
    try {
      await logIn(email.trim(), password);
    } catch (thrown) {
      const failed = toFailure(thrown);
      if (failed.challenge) setChallenge(failed.challenge);
      else {
        setFailure(failed);
        form.current?.querySelector<HTMLInputElement>('[type=password]')?.select();
      }
    }
    setBusy(false);
  };
  const forgot = async () => {
    setFailure(undefined);
    if (!form.current?.querySelector<HTMLInputElement>('[type=email]')?.reportValidity()) return;
    try {
      setMessage((await forgotPassword(email.trim())).message);
    } catch (thrown) {
      setFailure(toFailure(thrown));
    }
  };
  if (challenge) {
    return (
      <SecondStep
        challenge={challenge}
        onCancel={() => {
          setChallenge(undefined);
          setPassword('');
        }}
      />
    );
  }
  return (
    <form ref={form} class="log-in-form" onSubmit={(event) => void submit(event)}>
      {failure && <ErrorMessage failure={failure} />}
      <TextField
        label="Email"
        name="email"
        isRequired
        value={email}
        onChange={setEmail}
        input={{
          type: 'email',
          autocomplete: 'username',
          autocapitalize: 'none',
          spellcheck: false,
          readOnly: fixedEmail !== undefined,
        }}
      />
      <TextField
        label="Password"
        name="password"
        isRequired
        value={password}
        onChange={setPassword}
        input={{ type: 'password', autocomplete: 'current-password' }}
      />
      <button class="button primary big" disabled={isBusy}>
        {isBusy ? 'Logging in…' : 'Log in'}
      </button>
      <p class="small">
        <Button label="Forgot password?" kind="link" onClick={() => void forgot()} />
      </p>
      <p class="small" role="status">
        {message}
      </p>
    </form>
  );
}

/** The page of a visitor without a session. The page of analysts (ide/) has the same with its own title. */
export function LogIn({
  title = 'Operator console',
  lead = 'For platform staff. School users log in at their school’s own address.',
}: {
  title?: string;
  lead?: string;
}) {
  usePageTitle('Log in');
  return (
    <main class="alone">
      <div class="log-in">
        <h1>{title}</h1>
        <p class="lead">{lead}</p>
        <LogInForm />
      </div>
    </main>
  );
}

/** A dialog over the current page, shown when the session has ended. */
export function LogInAgain({ onLogOut }: { onLogOut: () => void }) {
  return (
    // Nothing on the page works without a session, so the dialog cannot be closed.
    <Dialog title="Your session has expired" isPersistent onClose={() => undefined}>
      <div class="dialog-body">
        <p>Log in again to continue. Your unsaved changes are still here.</p>
        <LogInForm fixedEmail={operator.value?.email ?? ''} />
        <p class="small">
          <Button label="Log in as a different user" kind="link" onClick={onLogOut} />
        </p>
      </div>
    </Dialog>
  );
}

/** Shown to analysts, who have no access to the console. */
export function AnalystNotice({ onLogOut }: { onLogOut: () => void }) {
  usePageTitle('No access');
  return (
    <main class="alone">
      <div class="log-in">
        <h1>You do not have access to the console</h1>
        <p>
          You are logged in as {operator.value?.email}, an analyst. Analysts use{' '}
          <a href="/graphql/ide/">the page for analytics</a>.
        </p>
        <p>If you need the console, ask a platform administrator for the admin role.</p>
        <Button label="Log out" onClick={onLogOut} />
      </div>
    </main>
  );
}
