import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { Value } from './changes.tsx';
import { type Answer, asFailure, ask, Failure, isGivenUp } from './http.ts';
import { Icon } from './icons.tsx';
import { useUnsaved } from './router.ts';

const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

export interface Form<T extends object> {
  value: T;
  set: (change: Partial<T>) => void;
  /** The fields that differ from what was there. */
  changes: Partial<T>;
  isDirty: boolean;
  isBusy: boolean;
  failure: Failure | undefined;
  /** What is wrong with the field of this path, as the service names it. */
  error: (path: string) => string | undefined;
  /** Back to what was there, or on to something new. */
  reset: (to?: T) => void;
  /** Takes what is there now and keeps the edits on top of it; those that are in `but` are edits no more. */
  rebase: (to: T, but?: Partial<T>) => void;
  /** The problem of the whole form, until it is sent again. */
  fail: (thrown: unknown) => void;
  submit: (event: Event) => void;
  ref: { current: HTMLFormElement | null };
}

/**
 * The state of a form.
 * @param save  sends it; what it throws is shown at its fields
 */
export function useForm<T extends object>(initial: T, save: (value: T, changes: Partial<T>) => Promise<void>): Form<T> {
  const [before, setBefore] = useState(initial);
  const [value, setValue] = useState(initial);
  const [failure, setFailure] = useState<Failure>();
  const [isBusy, setBusy] = useState(false);
  const ref = useRef<HTMLFormElement>(null);
  const changes = Object.fromEntries(
    Object.entries(value).filter(([name, now]) => !same(now, before[name as keyof T])),
  ) as Partial<T>;
  const isDirty = Object.keys(changes).length > 0;
  useUnsaved(isDirty);

  // What was refused is where the reader goes on.
  useEffect(() => {
    if (failure)
      (
        ref.current?.querySelector<HTMLElement>('[aria-invalid=true]') ??
        ref.current?.querySelector<HTMLElement>('.problem')
      )?.focus();
  }, [failure]);

  const fail = (thrown: unknown) => {
    if (!isGivenUp(thrown)) setFailure(asFailure(thrown));
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    // Half a date, a number with a letter: the browser tells us that the field is empty, which would be saved.
    const unread = [...(ref.current?.elements ?? [])].find(
      (field) => field instanceof HTMLInputElement && field.validity.badInput,
    );
    if (unread instanceof HTMLInputElement) {
      unread.reportValidity();
      return;
    }
    setBusy(true);
    setFailure(undefined);
    save(value, changes)
      .catch(fail)
      .finally(() => setBusy(false));
  };
  return {
    value,
    set: (change) => setValue((now) => ({ ...now, ...change })),
    changes,
    isDirty,
    isBusy,
    failure,
    error: (path) =>
      failure?.details.find((detail) => detail.path === path || detail.path.startsWith(`${path}.`))?.message,
    reset: (to) => {
      setValue(to ?? before);
      if (to) setBefore(to);
      setFailure(undefined);
    },
    rebase: (to, but = {}) => {
      setBefore(to);
      const isEdit = (name: string, now: unknown) =>
        !same(now, before[name as keyof T]) && !(name in but && same(now, but[name as keyof T]));
      setValue((now) => ({
        ...to,
        ...Object.fromEntries(Object.entries(now).filter(([name, one]) => isEdit(name, one))),
      }));
    },
    fail,
    submit,
    ref,
  };
}

/** A field that somebody else changed while it was edited here. */
export interface Conflict {
  label: string;
  before: unknown;
  after: unknown;
  /** Whether it was edited here too. */
  isBoth: boolean;
}

interface RecordOptions<R, T extends object> {
  path: string;
  answer: Pick<Answer<R>, 'data' | 'etag'>;
  toForm: (record: R) => T;
  toBody: (changes: Partial<T>, value: T) => unknown;
  labels: Record<keyof T & string, string>;
  onSaved: (answer: Answer<R>) => void;
}

/**
 * A form that changes a record. Where somebody else changed it meanwhile, their changes come in, the edits stay, and what changed is said
 * before it is saved again.
 */
export function useRecordForm<R extends { updated_at: string }, T extends object>(
  options: RecordOptions<R, T>,
): Form<T> & { conflicts: Conflict[] } {
  const { path, answer, toForm, toBody, labels, onSaved } = options;
  const version = useRef({ etag: answer.etag, updatedAt: answer.data.updated_at, form: toForm(answer.data) });
  const [conflicts, setConflicts] = useState<Conflict[]>([]);
  const take = ({ data, etag }: Pick<Answer<R>, 'data' | 'etag'>) => {
    version.current = { etag, updatedAt: data.updated_at, form: toForm(data) };
  };

  /** Takes what is there now, under the edits. @returns whether some of it is news to this form */
  const absorb = (now: Pick<Answer<R>, 'data' | 'etag'>, changes: Partial<T>): boolean => {
    const before = version.current.form;
    take(now);
    const theirs = version.current.form;
    const names = Object.keys(theirs) as (keyof T & string)[];
    const news = names.filter((name) => !same(theirs[name], before[name]));
    if (news.length === 0) return false;
    form.rebase(theirs);
    if (Object.keys(changes).length > 0)
      setConflicts(
        news.map((name) => ({
          label: labels[name],
          before: before[name],
          after: theirs[name],
          isBoth: name in changes,
        })),
      );
    return true;
  };
  const catchUp = async (changes: Partial<T>): Promise<boolean> => absorb(await ask<R>('GET', path), changes);
  const isConflict = (thrown: unknown) => thrown instanceof Failure && thrown.status === 412;

  const form = useForm(toForm(answer.data), async (value, changes) => {
    setConflicts([]);
    // Some records have no version of their own: then the time of the last change has to do.
    if (version.current.etag === undefined) {
      const { data } = await ask<R>('GET', path);
      if (data.updated_at !== version.current.updatedAt && (await catchUp(changes))) return;
    }
    const put = () => ask<R>('PUT', path, { body: toBody(changes, value), ifMatch: version.current.etag });
    let saved: Answer<R>;
    try {
      saved = await put();
    } catch (thrown) {
      if (!isConflict(thrown)) throw thrown;
      if (await catchUp(changes)) return;
      // What changed is not in this form, a status for example: it stays as it is.
      saved = await put();
    }
    take(saved);
    form.rebase(version.current.form, changes);
    onSaved(saved);
  });
  // What is read anew beside the form, after a suspension for example, comes in too.
  useEffect(() => {
    if (answer.etag === version.current.etag && answer.data.updated_at === version.current.updatedAt) return;
    absorb(answer, form.changes);
  }, [answer]);
  useEffect(() => {
    if (conflicts.length > 0) form.ref.current?.querySelector<HTMLElement>('.conflict')?.focus();
  }, [conflicts]);
  return {
    ...form,
    conflicts,
    reset: (to) => {
      setConflicts([]);
      form.reset(to);
    },
  };
}

/** What somebody else changed meanwhile. */
export function Conflicts({ conflicts }: { conflicts: Conflict[] }) {
  if (conflicts.length === 0) return null;
  return (
    <div class="problem conflict" role="alert" tabIndex={-1}>
      <Icon name="warning" />
      <div>
        <p>
          <strong>Somebody else changed this while you were editing.</strong> Nothing is saved yet, and your edits are
          still here. Look at them again, then save.
        </p>
        <ul>
          {conflicts.map(({ label, before, after, isBoth }) => (
            <li key={label}>
              <strong>{label}</strong>: <Value value={before} /> became <Value value={after} />
              {isBoth && '; you changed it too, and your version replaces theirs when you save'}
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

/** What was refused, in one sentence and with those parts that have no field of their own here. */
export function FormProblem({
  form: { failure },
  fields,
}: {
  form: { failure: Failure | undefined };
  fields: readonly string[];
}) {
  if (!failure) return null;
  const shown = failure.details.filter(({ path }) =>
    fields.some((field) => path === field || path.startsWith(`${field}.`)),
  );
  const rest = failure.details.filter((detail) => !shown.includes(detail) && detail.message !== failure.message);
  return (
    <div class="problem" role="alert" tabIndex={-1}>
      <div>
        <p>
          {failure.details.length > 0 && failure.code === 'validation_error'
            ? 'Some of it cannot be taken as it is.'
            : failure.message}
        </p>
        {rest.length > 0 && (
          <ul>
            {rest.map(({ path, message }) => (
              <li key={path}>
                {path && <strong>{path}</strong>} {message}
              </li>
            ))}
          </ul>
        )}
        {failure.retryAfter !== undefined && <p>Try again in {failure.retryAfter} seconds.</p>}
      </div>
    </div>
  );
}

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
  /** A filter, which nobody expects to be required. */
  isFilter?: boolean;
  children: (attributes: FieldAttributes) => ComponentChildren;
}

/** A field with its label, a hint, and what is wrong with it. */
export function Field({ label, name, error, hint, isRequired = false, isFilter = false, children }: FieldProps) {
  const id = useId();
  const described = [hint ? `${id}-hint` : '', error ? `${id}-error` : ''].filter(Boolean).join(' ');
  return (
    <div class="field">
      <label for={id}>
        {label} {!isRequired && !isFilter && <span class="optional">optional</span>}
      </label>
      {children({
        id,
        name,
        ...(isRequired ? { required: true } : {}),
        ...(described ? { 'aria-describedby': described } : {}),
        ...(error ? { 'aria-invalid': 'true' } : {}),
      })}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {error && (
        <p class="error" id={`${id}-error`}>
          {label} {error}
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

interface TextProps extends Omit<FieldProps, 'children'> {
  value: string;
  onChange: (value: string) => void;
  input?: Input;
}

/** A field of one line. */
export function Text({ value, onChange, input = {}, ...field }: TextProps) {
  return (
    <Field {...field}>
      {(attributes) => {
        // The types of preact tell every kind of input apart, which one that is any of them can't satisfy.
        const all: object = { ...input, ...attributes };
        return <input {...all} value={value} onInput={(event) => onChange(event.currentTarget.value)} />;
      }}
    </Field>
  );
}

interface SelectProps extends Omit<FieldProps, 'children'> {
  value: string;
  onChange: (value: string) => void;
  options: readonly (readonly [value: string, label: string])[];
}

export function Select({ value, onChange, options, ...field }: SelectProps) {
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

export function Check({
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

/** Save and discard, in reach as long as there is something to save. */
export function SaveBar({
  form,
  label = 'Save changes',
}: {
  form: { isDirty: boolean; isBusy: boolean; reset: () => void };
  label?: string;
}) {
  if (!form.isDirty && !form.isBusy) return null;
  return (
    <div class="save-bar">
      <p>Unsaved changes</p>
      <button type="button" class="button" disabled={form.isBusy} onClick={() => form.reset()}>
        Discard
      </button>
      <button class="button primary" disabled={form.isBusy}>
        {form.isBusy ? 'Saving…' : label}
      </button>
    </div>
  );
}
