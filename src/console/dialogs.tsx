import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon } from './icons.tsx';

interface DialogProps {
  title: ComponentChildren;
  /** The element that says what it is about. */
  describedBy?: string;
  onClose: () => void;
  children: ComponentChildren;
  /** A panel from the side, for the menu. */
  isPanel?: boolean;
  isWide?: boolean;
  /** It stays until it is no longer asked for. */
  isFixed?: boolean;
}

/** A modal dialog: the browser keeps the focus inside and closes it on Escape. */
export function Dialog({
  title,
  describedBy,
  onClose,
  children,
  isPanel = false,
  isWide = false,
  isFixed = false,
}: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const isOver = useRef(false);
  useLayoutEffect(() => {
    const before = document.activeElement;
    const element = dialog.current;
    element?.showModal();
    // What is to be filled in, else the button that does nothing: not the cross, which comes first.
    (
      element?.querySelector<HTMLElement>('.dialog-body :is(input, textarea)') ??
      element?.querySelector<HTMLElement>('.dialog-foot button')
    )?.focus();
    return () => {
      isOver.current = true;
      element?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      // The button is gone with what it was for: a school that is suspended can not be suspended.
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
        // A second Escape closes it whatever we say.
        if (isOver.current) return;
        if (isFixed) dialog.current?.showModal();
        else onClose();
      }}
      onMouseDown={(event) => {
        if (isPanel && event.target === dialog.current) onClose();
      }}
    >
      <div class="dialog-head">
        <h2 id={heading}>{title}</h2>
        {!isFixed && (
          <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        )}
      </div>
      {children}
    </dialog>
  );
}

export interface Question {
  title: ComponentChildren;
  text: ComponentChildren;
  action: string;
  cancel?: string;
  isDangerous?: boolean;
  /** What must be typed before it can be done. */
  typed?: string;
  /** What is done while the dialog is there; when it fails, the dialog says why. */
  work?: () => Promise<void>;
}

const open = signal<(Question & { answer: (yes: boolean) => void })[]>([]);

/** Asks before something is done. @returns whether it was done */
export const confirm = (question: Question): Promise<boolean> =>
  new Promise((answer) => {
    open.value = [...open.value, { ...question, answer }];
  });

/** Takes back what is asked: the reader has left the place that it is about. */
export function dismiss(): void {
  const questions = open.value;
  open.value = [];
  for (const { answer } of questions) answer(false);
}

function Confirmation({ question, onDone }: { question: Question; onDone: (yes: boolean) => void }) {
  const [typed, setTyped] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string>();
  const [field, about] = [useId(), useId()];
  const { title, text, action, cancel = 'Cancel', isDangerous = false, work } = question;
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setProblem(undefined);
    try {
      await work?.();
      onDone(true);
    } catch (thrown) {
      setProblem(thrown instanceof Error ? thrown.message : 'It did not work.');
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} describedBy={about} onClose={() => onDone(false)}>
      <form onSubmit={(event) => void submit(event)}>
        <div class="dialog-body">
          <div class="prose" id={about}>
            {text}
          </div>
          {question.typed !== undefined && (
            <div class="field">
              <label for={field}>
                Type <strong class="code">{question.typed}</strong> to confirm
              </label>
              <input
                id={field}
                value={typed}
                autocomplete="off"
                autocapitalize="none"
                spellcheck={false}
                onInput={(event) => setTyped(event.currentTarget.value)}
              />
            </div>
          )}
          {problem && (
            <p class="problem" role="alert">
              {problem}
            </p>
          )}
        </div>
        <div class="dialog-foot">
          <button type="button" class="button" onClick={() => onDone(false)}>
            {cancel}
          </button>
          <button
            class={isDangerous ? 'button danger' : 'button primary'}
            disabled={isBusy || (question.typed !== undefined && typed.trim() !== question.typed)}
          >
            {isBusy ? 'Working…' : action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Where the questions appear. */
export function Confirmations() {
  return (
    <>
      {open.value.map((question) => (
        <Confirmation
          key={question}
          question={question}
          onDone={(yes) => {
            open.value = open.value.filter((other) => other !== question);
            question.answer(yes);
          }}
        />
      ))}
    </>
  );
}

const notice = signal<{ text: ComponentChildren; isProblem: boolean; serial: number }>({
  text: '',
  isProblem: false,
  serial: 0,
});
let timer: ReturnType<typeof setTimeout> | undefined;

/** Says shortly that something was done, or was not. Not while a dialog is open, which hides it from those who hear the page. */
export function say(text: ComponentChildren, isProblem = false): void {
  notice.value = { text, isProblem, serial: notice.value.serial + 1 };
  clearTimeout(timer);
  timer = setTimeout(() => {
    notice.value = { ...notice.value, text: '' };
  }, 6000);
}

/** Where what was done is said, also to those who hear the page. */
export function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notice.value.text && (
        <p key={notice.value.serial} class="notice">
          <Icon name={notice.value.isProblem ? 'warning' : 'check'} /> <span>{notice.value.text}</span>
        </p>
      )}
    </div>
  );
}
