import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { CopyButton } from '../../parts/components.tsx';

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
        <button type="button" class="button primary" onClick={onClose}>
          Done
        </button>
      </div>
    </>
  );
}
