import { Icon, type IconName } from './icons.tsx';

interface ButtonProps {
  label: string;
  icon?: IconName;
  /** For screen readers, where the label alone is ambiguous. */
  name?: string;
  kind?: 'primary' | 'warning' | 'danger' | 'link';
  isSmall?: boolean;
  isDisabled?: boolean;
  onClick: () => void;
}

/** A button that does not submit a form. */
export function Button({ label, icon, name, kind, isSmall = false, isDisabled = false, onClick }: ButtonProps) {
  const className = kind === 'link' ? 'link' : ['button', isSmall && 'small-button', kind].filter(Boolean).join(' ');
  return (
    <button type="button" class={className} aria-label={name} disabled={isDisabled} onClick={() => onClick()}>
      {icon && (
        <>
          <Icon name={icon} />{' '}
        </>
      )}
      {label}
    </button>
  );
}
