import { useEffect, useRef, useState } from 'preact/hooks';
import { CopyButton } from '../../parts/components.tsx';
import { Dialog } from '../../parts/dialogs.tsx';
import { TextArea } from '../../parts/fields.tsx';
import { DialogForm, FormError, useForm } from '../../parts/forms.tsx';
import { request } from '../../data/api.ts';
import { closeUnlessDirty } from '../../router.ts';
import { Icon } from '../../parts/icons.tsx';
import type { Impersonation, TenantDetail } from '../../types.ts';
import { Button } from '../../parts/button.tsx';

/** The time that is left, updated every second. */
function Countdown({ until }: { until: string }) {
  const remainingSeconds = () => Math.max(0, Math.round((new Date(until).getTime() - Date.now()) / 1000));
  const [seconds, setSeconds] = useState(remainingSeconds);
  useEffect(() => {
    const timer = setInterval(() => setSeconds(remainingSeconds()), 1000);
    return () => clearInterval(timer);
  }, [until]);
  if (seconds === 0) return <strong>The session has expired.</strong>;
  return (
    <span role="timer" class="countdown">
      The session expires in{' '}
      <strong>
        {Math.floor(seconds / 60)}:{String(seconds % 60).padStart(2, '0')}
      </strong>
      .
    </span>
  );
}

/** A command that shows the user whose access the token gives. */
const curl = (token: string) => `curl -H 'Authorization: Bearer ${token}' ${location.origin}/api/auth/profile`;

function Result({ impersonation, onClose }: { impersonation: Impersonation; onClose: () => void }) {
  const { user, tenant, expires_at, url, access_token } = impersonation;
  const result = useRef<HTMLParagraphElement>(null);
  useEffect(() => result.current?.focus(), []);
  return (
    <>
      <div class="dialog-body">
        {/* The form with the focus is gone. Screen readers announce the result when it gets the focus. */}
        <p tabIndex={-1} ref={result}>
          You are logged in to <bdi>{tenant.name}</bdi> as <strong>{user.email}</strong>.{' '}
          <Countdown until={expires_at} />
        </p>
        {url === null ? (
          <>
            <p class="muted">
              There is no link to open, because this installation does not name the address of the schools’ app (setting
              APP_URL). You can still call the API as this admin, from a terminal. This command shows their profile; the
              copy contains your access token:
            </p>
            <p class="code token" tabIndex={0} aria-label="Command">
              {curl('…')}
            </p>
          </>
        ) : (
          <p class="muted">The link works until then. Do not share it: anyone who has it acts in your name.</p>
        )}
      </div>
      <div class="dialog-foot">
        <CopyButton text={url ?? curl(access_token)}>{url === null ? 'Copy command' : 'Copy link'}</CopyButton>
        {url === null ? (
          <Button label="Done" kind="primary" onClick={onClose} />
        ) : (
          <a class="button primary" href={url} target="_blank" rel="noopener noreferrer">
            <Icon name="open" /> Open school
          </a>
        )}
      </div>
    </>
  );
}

/** Logs the operator in as an admin of a school: asks for a reason, then shows the link. */
export function Impersonate({
  school,
  onClose,
  onLoggedIn,
}: {
  school: TenantDetail;
  onClose: () => void;
  onLoggedIn: () => void;
}) {
  const [impersonation, setImpersonation] = useState<Impersonation>();
  const form = useForm({ reason: '' }, async (body) => {
    const { data } = await request<Impersonation>('POST', `/api/platform/tenants/${school.id}/impersonate`, { body });
    form.reset({ reason: '' });
    setImpersonation(data);
    onLoggedIn();
  });
  const close = closeUnlessDirty(onClose);
  return (
    <Dialog
      title={
        <>
          Log in to <bdi>{school.name}</bdi>
        </>
      }
      onClose={close}
    >
      {impersonation ? (
        <Result impersonation={impersonation} onClose={onClose} />
      ) : (
        <DialogForm form={form} label="Log in as admin" busyLabel="Logging in…" onCancel={close}>
          <FormError form={form} fields={['reason']} />
          <div class="prose">
            <p>
              You get the access of a school admin for 10 minutes. You cannot change passwords, roles or users’ logins.
            </p>
            <ul>
              <li>The school’s admins are notified, with your email address and your reason.</li>
              <li>The audit log records every request, with your name and the admin’s.</li>
            </ul>
          </div>
          <TextArea
            {...form.field('reason')}
            label="Reason"
            isRequired
            hint="At least 10 characters. The school’s admins see it."
            rows={3}
            class="low"
          />
        </DialogForm>
      )}
    </Dialog>
  );
}
