import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon } from './icons.tsx';

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  /** A panel from the side, for the menu. */
  isPanel?: boolean;
  isWide?: boolean;
  /** It stays until it is no longer asked for. */
  isFixed?: boolean;
}

/** A modal dialog: the browser keeps the focus inside and closes it on Escape. */
export function Dialog({ title, onClose, children, isPanel = false, isWide = false, isFixed = false }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const isOver = useRef(false);
  useLayoutEffect(() => {
    const before = document.activeElement;
    const element = dialog.current;
    element?.showModal();
    return () => {
      isOver.current = true;
      element?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={isPanel ? 'panel' : isWide ? 'dialog wide' : 'dialog'}
      aria-labelledby={heading}
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
  title: string;
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

function Confirmation({ question, onDone }: { question: Question; onDone: (yes: boolean) => void }) {
  const [typed, setTyped] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string>();
  const field = useId();
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
    <Dialog title={title} onClose={() => onDone(false)}>
      <form onSubmit={(event) => void submit(event)}>
        <div class="dialog-body">
          <div class="prose">{text}</div>
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

const notice = signal<{ text: string; serial: number }>({ text: '', serial: 0 });
let timer: ReturnType<typeof setTimeout> | undefined;

/** Says shortly that something was done. */
export function say(text: string): void {
  notice.value = { text, serial: notice.value.serial + 1 };
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
          <Icon name="check" /> {notice.value.text}
        </p>
      )}
    </div>
  );
}
