import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { CopyButton } from '../../parts/components.tsx';
import { Dialog } from '../../parts/dialogs.tsx';
import { DialogForm, type Form, useCreateForm } from '../../parts/forms.tsx';
import { closeUnlessDirty } from '../../router.ts';
import { Button } from '../../parts/button.tsx';

interface SecretProps {
  /** The name of the secret, for example «Key». */
  label: string;
  secret: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** The body of a dialog that shows a secret once. */
export function SecretResult({ label, secret, onClose, children }: SecretProps) {
  const text = useRef<HTMLParagraphElement>(null);
  // The form with the focus is gone. Screen readers announce the result when it gets the focus.
  useEffect(() => text.current?.focus(), []);
  return (
    <>
      <div class="dialog-body">
        <p tabIndex={-1} ref={text}>
          {children}
        </p>
        <p class="code token" tabIndex={0} role="group" aria-label={label}>
          {secret}
        </p>
      </div>
      <div class="dialog-foot">
        <CopyButton text={secret}>Copy</CopyButton>
        <Button label="Done" kind="primary" onClick={onClose} />
      </div>
    </>
  );
}

interface NewSecretProps<R, T extends object> {
  path: string;
  empty: T;
  toBody: (value: T) => object;
  fields: (form: Form<T>) => ComponentChildren;
  /** The title of the dialog, before and after. */
  title: (created: R | undefined) => string;
  label: string;
  button: string;
  secretOf: (created: R) => string | null;
  /** Tells to copy the secret. */
  text: string;
  onClose: () => void;
  onCreated: () => void;
}

/** Creates a record with a secret, and shows the secret once. */
export function NewSecretDialog<R, T extends object>(props: NewSecretProps<R, T>) {
  const { path, empty, toBody, fields, title, label, button, secretOf, text, onClose, onCreated } = props;
  const form = useCreateForm<R, T>(path, empty, toBody, () => {
    form.reset(empty);
    onCreated();
  });
  const { created } = form;
  const close = closeUnlessDirty(onClose);
  return (
    <Dialog title={title(created)} isWide onClose={close}>
      {created ? (
        <SecretResult label={label} secret={secretOf(created) ?? ''} onClose={onClose}>
          {text}
        </SecretResult>
      ) : (
        <DialogForm form={form} label={button} onCancel={close}>
          {fields(form)}
        </DialogForm>
      )}
    </Dialog>
  );
}
