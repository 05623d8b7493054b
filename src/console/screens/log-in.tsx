import { useEffect, useRef, useState } from 'preact/hooks';
import { Dialog } from '../dialogs.tsx';
import { Text } from '../forms.tsx';
import { asFailure, type Failure } from '../http.ts';
import { Problem, useTitle } from '../parts.tsx';
import { logIn, operator } from '../session.ts';

/** E-mail and password; the same for a log-in and for one in between. */
function LogInForm({ known }: { known?: string }) {
  const [email, setEmail] = useState(known ?? '');
  const [password, setPassword] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<Failure>();
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    form.current?.querySelector<HTMLInputElement>(known ? '[type=password]' : 'input')?.focus();
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setFailure(undefined);
    try {
      await logIn(email.trim(), password);
    } catch (thrown) {
      setFailure(asFailure(thrown));
      form.current?.querySelector<HTMLInputElement>('[type=password]')?.select();
    }
    setBusy(false);
  };
  return (
    <form ref={form} class="log-in-form" onSubmit={(event) => void submit(event)}>
      {failure && <Problem failure={failure} />}
      <Text
        label="E-mail"
        name="email"
        isRequired
        value={email}
        onChange={setEmail}
        input={{
          type: 'email',
          autocomplete: 'username',
          autocapitalize: 'none',
          spellcheck: false,
          readOnly: known !== undefined,
        }}
      />
      <Text
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
    </form>
  );
}

export function LogIn() {
  useTitle('Log in');
  return (
    <main class="alone">
      <div class="log-in">
        <h1>Operators’ console</h1>
        <p class="lead">For those who run the platform. Users of a school log in at their school’s own address.</p>
        <LogInForm />
      </div>
    </main>
  );
}

/** Over what the operator was working at, when their session has ended. */
export function LogInAgain({ onLeave }: { onLeave: () => void }) {
  return (
    // Without a session nothing here works.
    <Dialog title="Your session has ended" isFixed onClose={() => undefined}>
      <div class="dialog-body">
        <p>Log in again to go on. What you typed is still there.</p>
        <LogInForm known={operator.value?.email ?? ''} />
        <p class="small">
          <button type="button" class="link" onClick={onLeave}>
            Log in as somebody else
          </button>
        </p>
      </div>
    </Dialog>
  );
}

/** An operator who may read figures and nothing here. */
export function Analyst({ onLeave }: { onLeave: () => void }) {
  useTitle('Not for analysts');
  return (
    <main class="alone">
      <div class="log-in">
        <h1>This console is for administrators</h1>
        <p>
          You are logged in as {operator.value?.email}, an analyst. Analysts read figures by GraphQL:{' '}
          <a href="/graphql">/graphql</a>.
        </p>
        <p>If you need the console, ask an administrator of the platform to make you one.</p>
        <button type="button" class="button" onClick={onLeave}>
          Log out
        </button>
      </div>
    </main>
  );
}
