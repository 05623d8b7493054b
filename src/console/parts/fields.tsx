import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';

interface FieldAttributes {
  id: string;
  name: string;
  required?: true;
  'aria-describedby'?: string;
  'aria-invalid'?: 'true';
}

interface FieldProps {
  label: string;
  name: string;
  error?: string | undefined;
  hint?: ComponentChildren;
  isRequired?: boolean;
  /** Filters are never marked as optional. */
  isFilter?: boolean;
  children: (attributes: FieldAttributes) => ComponentChildren;
}

/** A form field with its label, hint and error. */
export function Field({ label, name, error, hint, isRequired = false, isFilter = false, children }: FieldProps) {
  const id = useId();
  const describedBy = [hint ? `${id}-hint` : '', error ? `${id}-error` : ''].filter(Boolean).join(' ');
  return (
    <div class="field">
      <label for={id}>
        {label} {!isRequired && !isFilter && <span class="optional">optional</span>}
      </label>
      {children({
        id,
        name,
        ...(isRequired ? { required: true } : {}),
        ...(describedBy ? { 'aria-describedby': describedBy } : {}),
        ...(error ? { 'aria-invalid': 'true' } : {}),
      })}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {error && (
        <p class="error" id={`${id}-error`}>
          {/* A complete sentence names the field itself. */}
          {/^\p{Lu}/u.test(error) ? error : `${label} ${error}`}
        </p>
      )}
    </div>
  );
}

interface Input {
  type?: 'email' | 'password' | 'number' | 'date' | 'time' | 'datetime-local';
  autocomplete?: string;
  autocapitalize?: 'none';
  spellcheck?: boolean;
  readOnly?: boolean;
  disabled?: boolean;
  placeholder?: string;
  list?: string;
  min?: string;
  max?: string;
  step?: string;
  inputMode?: 'numeric' | 'decimal';
}

interface TextFieldProps extends Omit<FieldProps, 'children'> {
  value: string;
  onChange: (value: string) => void;
  input?: Input;
}

/** A single-line input. */
export function TextField({ value, onChange, input = {}, ...field }: TextFieldProps) {
  return (
    <Field {...field}>
      {(attributes) => {
        // Preact's types have one variant per input type, so an input of any type fits none of them.
        const props: object = { ...input, ...attributes };
        return <input {...props} value={value} onInput={(event) => onChange(event.currentTarget.value)} />;
      }}
    </Field>
  );
}

interface SelectFieldProps extends Omit<FieldProps, 'children'> {
  value: string;
  onChange: (value: string) => void;
  options: readonly (readonly [value: string, label: string])[];
}

export function SelectField({ value, onChange, options, ...field }: SelectFieldProps) {
  return (
    <Field {...field}>
      {(attributes) => (
        <select {...attributes} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
          {options.map(([option, label]) => (
            <option key={option} value={option}>
              {label}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function CheckboxField({
  label,
  hint,
  isOn,
  onChange,
  isDisabled = false,
}: {
  label: string;
  hint?: ComponentChildren;
  isOn: boolean;
  onChange: (isOn: boolean) => void;
  isDisabled?: boolean;
}) {
  const id = useId();
  return (
    <div class="check">
      <input
        id={id}
        type="checkbox"
        checked={isOn}
        disabled={isDisabled}
        onChange={(event) => onChange(event.currentTarget.checked)}
        {...(hint ? { 'aria-describedby': `${id}-hint` } : {})}
      />
      <div>
        <label for={id}>{label}</label>
        {hint && (
          <p class="hint" id={`${id}-hint`}>
            {hint}
          </p>
        )}
      </div>
    </div>
  );
}

interface TextAreaProps extends Omit<FieldProps, 'children'> {
  value: string;
  onChange: (value: string) => void;
  rows: number;
  class?: string;
}

/** A field for several lines. */
export const TextArea = ({ value, onChange, rows, class: className, ...field }: TextAreaProps) => (
  <Field {...field}>
    {(attributes) => (
      <textarea
        {...attributes}
        class={className}
        rows={rows}
        value={value}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
    )}
  </Field>
);
