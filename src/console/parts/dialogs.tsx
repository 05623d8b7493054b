import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { isAbort, toFailure } from '../data/http.ts';
import { Icon } from './icons.tsx';
import { Button } from './button.tsx';
import { CheckboxField } from './fields.tsx';

interface DialogProps {
  title: ComponentChildren;
  /** The id of the element that describes the dialog. */
  describedBy?: string;
  onClose: () => void;
  children: ComponentChildren;
  /** Slides in from the side, for the menu. */
  isPanel?: boolean;
  isWide?: boolean;
  /** The operator cannot close it. */
  isPersistent?: boolean;
}

/** A modal dialog. The browser keeps the focus inside and closes it on Escape. */
export function Dialog({
  title,
  describedBy,
  onClose,
  children,
  isPanel = false,
  isWide = false,
  isPersistent = false,
}: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const isUnmounting = useRef(false);
  useLayoutEffect(() => {
    const opener = document.activeElement;
    const element = dialog.current;
    element?.showModal();
    // Focus the first field, or else the button that changes nothing. By default it would be the close icon.
    (
      element?.querySelector<HTMLElement>('.dialog-body :is(input, textarea, select)') ??
      element?.querySelector<HTMLElement>('.dialog-foot button')
    )?.focus();
    return () => {
      isUnmounting.current = true;
      element?.close();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
      // The action removed the button: a suspended school has no Suspend button.
      else document.querySelector<HTMLElement>('main h1')?.focus({ preventScroll: true });
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={isPanel ? 'panel' : isWide ? 'dialog wide' : 'dialog'}
      aria-labelledby={heading}
      {...(describedBy ? { 'aria-describedby': describedBy } : {})}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClose={() => {
        // Browsers close the dialog on a second Escape even if `cancel` was prevented.
        if (isUnmounting.current) return;
        if (isPersistent) dialog.current?.showModal();
        else onClose();
      }}
      onMouseDown={(event) => {
        if (isPanel && event.target === dialog.current) onClose();
      }}
    >
      <div class="dialog-head">
        <h2 id={heading}>{title}</h2>
        {!isPersistent && (
          <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        )}
      </div>
      {children}
    </dialog>
  );
}

/** The buttons of a dialog with a form: one closes it, the other submits the form. */
export const DialogFoot = ({
  onCancel,
  cancelLabel = 'Cancel',
  label,
  isDisabled = false,
  isDangerous = false,
}: {
  onCancel: () => void;
  cancelLabel?: string;
  label: string;
  isDisabled?: boolean;
  isDangerous?: boolean;
}) => (
  <div class="dialog-foot">
    <Button label={cancelLabel} onClick={onCancel} />
    <button class={isDangerous ? 'button danger' : 'button primary'} disabled={isDisabled}>
      {label}
    </button>
  </div>
);

/** Focuses an element of the page. While a dialog is open the browser would ignore this, so it waits for its end. */
export function focusBehindDialog(element: HTMLElement | null | undefined): void {
  const dialog = document.querySelector('dialog[open]');
  // The dialog has returned the focus to its opener when this event is sent.
  if (dialog) dialog.addEventListener('close', () => element?.focus(), { once: true });
  else element?.focus();
}

export interface ConfirmOptions {
  title: ComponentChildren;
  text: ComponentChildren;
  confirmLabel: string;
  cancelLabel?: string;
  isDangerous?: boolean;
  /** Text that the operator must type before they can confirm. */
  requiredText?: string;
  /** A checkbox, which is off at first. */
  option?: { label: string; hint: ComponentChildren };
  /**
   * Runs while the dialog is open. If it fails, the dialog stays open and shows the error.
   * @param isOptionOn  whether the operator has checked `option`
   */
  action?: (isOptionOn: boolean) => Promise<unknown>;
  /** Loads again what the action changed, before the dialog closes. */
  reload?: () => Promise<void>;
  /** The message when the action has succeeded. */
  done?: ComponentChildren;
}

const openConfirmations = signal<(ConfirmOptions & { resolve: (isConfirmed: boolean) => void })[]>([]);

/** Asks for confirmation. @returns whether the operator confirmed and the action, if any, succeeded */
export async function confirm(options: ConfirmOptions): Promise<boolean> {
  const isConfirmed = await new Promise<boolean>((resolve) => {
    openConfirmations.value = [...openConfirmations.value, { ...options, resolve }];
  });
  if (isConfirmed && options.done) showToast(options.done);
  return isConfirmed;
}

/** Runs an action without asking, and says whether it succeeded. */
export async function attempt(action: () => Promise<unknown>, done?: ComponentChildren): Promise<void> {
  try {
    await action();
    if (done) showToast(done);
  } catch (thrown) {
    if (!isAbort(thrown)) showToast(toFailure(thrown).message, true);
  }
}

/** Cancels all open confirmations, because the operator has left the page that they are about. */
export function dismissConfirmations(): void {
  const confirmations = openConfirmations.value;
  openConfirmations.value = [];
  for (const { resolve } of confirmations) resolve(false);
}

function ConfirmDialog({ options, onClose }: { options: ConfirmOptions; onClose: (isConfirmed: boolean) => void }) {
  const [typed, setTyped] = useState('');
  const [isOptionOn, setOptionOn] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<string>();
  const [fieldId, descriptionId] = [useId(), useId()];
  const { title, text, confirmLabel, cancelLabel = 'Cancel', isDangerous = false, requiredText, option } = options;
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setError(undefined);
    try {
      await options.action?.(isOptionOn);
      await options.reload?.();
      onClose(true);
    } catch (thrown) {
      setError(toFailure(thrown).message);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} describedBy={descriptionId} onClose={() => onClose(false)}>
      <form onSubmit={(event) => void submit(event)}>
        <div class="dialog-body">
          <div class="prose" id={descriptionId}>
            {text}
          </div>
          {option && <CheckboxField {...option} isOn={isOptionOn} onChange={setOptionOn} />}
          {requiredText !== undefined && (
            <div class="field">
              <label for={fieldId}>
                Type <strong class="code">{requiredText}</strong> to confirm
              </label>
              <input
                id={fieldId}
                value={typed}
                autocomplete="off"
                autocapitalize="none"
                spellcheck={false}
                onInput={(event) => setTyped(event.currentTarget.value)}
              />
            </div>
          )}
          {error && (
            <p class="problem" role="alert">
              {error}
            </p>
          )}
        </div>
        <DialogFoot
          onCancel={() => onClose(false)}
          cancelLabel={cancelLabel}
          label={isBusy ? 'Working…' : confirmLabel}
          isDisabled={isBusy || (requiredText !== undefined && typed.trim() !== requiredText)}
          isDangerous={isDangerous}
        />
      </form>
    </Dialog>
  );
}

/** Renders the open confirmations. */
export function Confirmations() {
  return (
    <>
      {openConfirmations.value.map((options) => (
        <ConfirmDialog
          key={options}
          options={options}
          onClose={(isConfirmed) => {
            openConfirmations.value = openConfirmations.value.filter((other) => other !== options);
            options.resolve(isConfirmed);
          }}
        />
      ))}
    </>
  );
}

const currentToast = signal<{ text: ComponentChildren; isError: boolean; serial: number }>({
  text: '',
  isError: false,
  serial: 0,
});
let timer: ReturnType<typeof setTimeout> | undefined;

/** Shows a short message for six seconds. Not for use under an open dialog: screen readers would not announce it. */
export function showToast(text: ComponentChildren, isError = false): void {
  currentToast.value = { text, isError, serial: currentToast.value.serial + 1 };
  clearTimeout(timer);
  timer = setTimeout(() => {
    currentToast.value = { ...currentToast.value, text: '' };
  }, 6000);
}

/** Renders the current toast in a live region. */
export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {currentToast.value.text && (
        <p key={currentToast.value.serial} class="toast">
          <Icon name={currentToast.value.isError ? 'warning' : 'check'} /> <span>{currentToast.value.text}</span>
        </p>
      )}
    </div>
  );
}
