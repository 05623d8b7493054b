import { useEffect, useState } from 'preact/hooks';
import { Copy } from './parts.tsx';
import { Dialog } from './dialogs.tsx';
import { Field, FormProblem, useForm } from './forms.tsx';
import { ask } from './http.ts';
import { Icon } from './icons.tsx';
import type { Impersonation, TenantDetail } from './types.ts';

/** How long it is until a moment, second by second. */
function Countdown({ until }: { until: string }) {
  const left = () => Math.max(0, Math.round((new Date(until).getTime() - Date.now()) / 1000));
  const [seconds, setSeconds] = useState(left);
  useEffect(() => {
    const timer = setInterval(() => setSeconds(left()), 1000);
    return () => clearInterval(timer);
  }, [until]);
  if (seconds === 0) return <strong>It has ended.</strong>;
  return (
    <span role="timer" class="countdown">
      It ends in{' '}
      <strong>
        {Math.floor(seconds / 60)}:{String(seconds % 60).padStart(2, '0')}
      </strong>
      .
    </span>
  );
}

function Result({ made, onClose }: { made: Impersonation; onClose: () => void }) {
  const { user, tenant, expires_at, url, access_token } = made;
  return (
    <>
      <div class="dialog-body">
        <p>
          You can act as <strong>{user.email}</strong> in <bdi>{tenant.name}</bdi>. <Countdown until={expires_at} />
        </p>
        {url === null ? (
          <>
            <p class="muted">
              This installation names no app (APP_URL), so there is no link. Use the access token with the API of the
              school:
            </p>
            <p class="code token" tabIndex={0} aria-label="Access token">
              {access_token}
            </p>
          </>
        ) : (
          <p class="muted">The link works until then. Whoever has it acts in your name, so keep it to yourself.</p>
        )}
      </div>
      <div class="dialog-foot">
        <Copy text={url ?? access_token}>{url === null ? 'Copy token' : 'Copy link'}</Copy>
        {url === null ? (
          <button type="button" class="button primary" onClick={onClose}>
            Done
          </button>
        ) : (
          <a class="button primary" href={url} target="_blank" rel="noopener noreferrer">
            <Icon name="open" /> Open the school
          </a>
        )}
      </div>
    </>
  );
}

/** Logs the operator in as an admin of a school, for a reason, and shows them the way in. */
export function Impersonate({
  school,
  onClose,
  onDone,
}: {
  school: TenantDetail;
  onClose: () => void;
  onDone: () => void;
}) {
  const [made, setMade] = useState<Impersonation>();
  const form = useForm({ reason: '' }, async (body) => {
    const { data } = await ask<Impersonation>('POST', `/api/platform/tenants/${school.id}/impersonate`, { body });
    form.reset({ reason: '' });
    setMade(data);
    onDone();
  });
  return (
    <Dialog
      title={
        <>
          Log in to <bdi>{school.name}</bdi>
        </>
      }
      onClose={onClose}
    >
      {made ? (
        <Result made={made} onClose={onClose} />
      ) : (
        <form ref={form.ref} onSubmit={form.submit} noValidate>
          <div class="dialog-body">
            <FormProblem form={form} fields={['reason']} />
            <div class="prose">
              <p>You act as an admin of this school for 10 minutes. You cannot change passwords, roles or log-ins.</p>
              <ul>
                <li>The school’s admins are told, with your e-mail and your reason.</li>
                <li>Everything you do is in the audit log, in your name and theirs.</li>
              </ul>
            </div>
            <Field
              label="Reason"
              name="reason"
              isRequired
              error={form.error('reason')}
              hint="10 characters or more; the school reads it."
            >
              {(attributes) => (
                <textarea
                  {...attributes}
                  class="low"
                  rows={3}
                  value={form.value.reason}
                  onInput={(event) => form.set({ reason: event.currentTarget.value })}
                />
              )}
            </Field>
          </div>
          <div class="dialog-foot">
            <button type="button" class="button" onClick={onClose}>
              Cancel
            </button>
            <button class="button primary" disabled={form.isBusy}>
              {form.isBusy ? 'Logging in…' : 'Log in as admin'}
            </button>
          </div>
        </form>
      )}
    </Dialog>
  );
}
