import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Value } from './audit-entries.tsx';
import { type ApiResponse, idempotencyKeys, request } from '../data/api.ts';
import { useLoad } from '../data/load.ts';
import { AsyncContent } from './components.tsx';
import { Dialog, DialogFoot, focusBehindDialog } from './dialogs.tsx';
import { toFailure, Failure, isAbort } from '../data/http.ts';
import { Icon } from './icons.tsx';
import { closeUnlessDirty, useUnsavedChangesGuard } from '../router.ts';
import { Button } from './button.tsx';

/** The names of the fields of a form that hold text. */
type TextKey<T> = { [K in keyof T & string]: T[K] extends string ? K : never }[keyof T & string];

const isEqual = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

interface ConnectedField {
  name: string;
  value: string;
  error: string | undefined;
  onChange: (value: string) => void;
}

/** The value of a number input, or undefined if it is empty. */
export const toNumber = (text: string): number | undefined => (text.trim() === '' ? undefined : Number(text));

export interface Form<T extends object> {
  value: T;
  set: (change: Partial<T>) => void;
  /** The fields that differ from the saved values. */
  changes: Partial<T>;
  isDirty: boolean;
  isBusy: boolean;
  failure: Failure | undefined;
  /** The error of a field, by its path in the API. */
  error: (path: string) => string | undefined;
  /** The properties that connect an input to a field with the same name in the form and in the API. */
  field: (name: TextKey<T>) => ConnectedField;
  /** Restores the saved values, or starts again from new ones. */
  reset: (saved?: T) => void;
  /** Replaces the saved values and keeps the edits, except those that `saved` lists as just saved. */
  rebase: (current: T, saved?: Partial<T>) => void;
  submit: (event: Event) => void;
  ref: { current: HTMLFormElement | null };
}

/**
 * The state of a form.
 * @param save  sends the form; an error that it throws is shown at the fields
 */
export function useForm<T extends object>(initial: T, save: (value: T, changes: Partial<T>) => Promise<void>): Form<T> {
  const [before, setBefore] = useState(initial);
  const [value, setValue] = useState(initial);
  const [failure, setFailure] = useState<Failure>();
  const [isBusy, setBusy] = useState(false);
  const ref = useRef<HTMLFormElement>(null);
  const changes = Object.fromEntries(
    Object.entries(value).filter(([name, now]) => !isEqual(now, before[name as keyof T])),
  ) as Partial<T>;
  const isDirty = Object.keys(changes).length > 0;
  useUnsavedChangesGuard(isDirty);

  // Move the focus to the first invalid field, or else to the error message.
  useEffect(() => {
    if (failure)
      (
        ref.current?.querySelector<HTMLElement>('[aria-invalid=true]') ??
        ref.current?.querySelector<HTMLElement>('.problem')
      )?.focus();
  }, [failure]);

  const submit = (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    // For half a date or a number with a letter, the browser reports an empty value, which must not be saved.
    const unparsed = [...(ref.current?.elements ?? [])].find(
      (field) => field instanceof HTMLInputElement && field.validity.badInput,
    );
    if (unparsed instanceof HTMLInputElement) {
      unparsed.reportValidity();
      return;
    }
    setBusy(true);
    setFailure(undefined);
    save(value, changes)
      .catch((thrown: unknown) => {
        if (!isAbort(thrown)) setFailure(toFailure(thrown));
      })
      .finally(() => setBusy(false));
  };
  const set = (change: Partial<T>) => setValue((now) => ({ ...now, ...change }));
  const error = (path: string) =>
    failure?.details.find((detail) => detail.path === path || detail.path.startsWith(`${path}.`))?.message;
  return {
    value,
    set,
    changes,
    isDirty,
    isBusy,
    failure,
    error,
    field: (name) => ({
      name,
      value: String(value[name]),
      error: error(name),
      onChange: (text) => set({ [name]: text } as unknown as Partial<T>),
    }),
    reset: (saved) => {
      setValue(saved ?? before);
      if (saved) setBefore(saved);
      setFailure(undefined);
    },
    rebase: (current, saved = {}) => {
      setBefore(current);
      const isEdit = (name: string, now: unknown) =>
        !isEqual(now, before[name as keyof T]) && !(name in saved && isEqual(now, saved[name as keyof T]));
      setValue((now) => ({
        ...current,
        ...Object.fromEntries(Object.entries(now).filter(([name, field]) => isEdit(name, field))),
      }));
    },
    submit,
    ref,
  };
}

/** A form that creates a record. Sending it again after a failure does not create a second one. */
export function useCreateForm<R, T extends object>(
  path: string,
  initial: T,
  toBody: (value: T) => object,
  onCreated: (record: R) => unknown,
): Form<T> & { created: R | undefined } {
  const [makeKey] = useState(idempotencyKeys);
  const [created, setCreated] = useState<R>();
  const form = useForm(initial, async (value) => {
    const body = toBody(value);
    const { data } = await request<R>('POST', path, { body, idempotencyKey: makeKey(body) });
    setCreated(() => data);
    await onCreated(data);
  });
  return { ...form, created };
}

/** A field that another user changed while this form was open. */
export interface Conflict {
  label: string;
  before: unknown;
  after: unknown;
  /** Whether it was also edited in this form. */
  isEditedHere: boolean;
}

interface RecordOptions<R, T extends object> {
  path: string;
  /** Where to send the changes; by default `path`. */
  savePath?: string;
  response: Pick<ApiResponse<R>, 'data' | 'etag'>;
  toForm: (record: R) => T;
  toBody: (changes: Partial<T>, value: T) => unknown;
  labels: Record<keyof T & string, string>;
  onSaved: (response: ApiResponse<R>) => void;
}

/**
 * A form that edits a record. If another user has changed the record meanwhile, the form takes over their changes,
 * keeps the edits, and lists the conflicts. The operator then saves again.
 */
export function useRecordForm<R extends { updated_at: string }, T extends object>(
  options: RecordOptions<R, T>,
): Form<T> & { conflicts: Conflict[] } {
  const { path, savePath = path, response, toForm, toBody, labels, onSaved } = options;
  const version = useRef({ etag: response.etag, updatedAt: response.data.updated_at, form: toForm(response.data) });
  const [conflicts, setConflicts] = useState<Conflict[]>([]);
  const setVersion = ({ data, etag }: Pick<ApiResponse<R>, 'data' | 'etag'>) => {
    version.current = { etag, updatedAt: data.updated_at, form: toForm(data) };
  };

  /** Merges a newer version of the record under the edits. @returns whether a field of this form changed */
  const merge = (newer: Pick<ApiResponse<R>, 'data' | 'etag'>, changes: Partial<T>): boolean => {
    const before = version.current.form;
    setVersion(newer);
    const theirs = version.current.form;
    const names = Object.keys(theirs) as (keyof T & string)[];
    const changed = names.filter((name) => !isEqual(theirs[name], before[name]));
    if (changed.length === 0) return false;
    form.rebase(theirs);
    if (Object.keys(changes).length > 0)
      setConflicts(
        changed.map((name) => ({
          label: labels[name],
          before: before[name],
          after: theirs[name],
          isEditedHere: name in changes,
        })),
      );
    return true;
  };
  const reloadAndMerge = async (changes: Partial<T>): Promise<boolean> => merge(await request<R>('GET', path), changes);
  const isConflict = (thrown: unknown) => thrown instanceof Failure && thrown.status === 412;

  const form = useForm(toForm(response.data), async (value, changes) => {
    setConflicts([]);
    const put = () => request<R>('PUT', savePath, { body: toBody(changes, value), ifMatch: version.current.etag });
    let saved: ApiResponse<R>;
    try {
      saved = await put();
    } catch (thrown) {
      if (!isConflict(thrown)) throw thrown;
      if (await reloadAndMerge(changes)) return;
      // The change, for example of the status, is not part of this form. Save on top of it.
      saved = await put();
    }
    setVersion(saved);
    form.rebase(version.current.form, changes);
    onSaved(saved);
  });
  // The record may also have been reloaded outside the form, for example after a suspension.
  useEffect(() => {
    if (response.etag === version.current.etag && response.data.updated_at === version.current.updatedAt) return;
    merge(response, form.changes);
  }, [response]);
  useEffect(() => {
    if (conflicts.length > 0) focusBehindDialog(form.ref.current?.querySelector<HTMLElement>('.conflict'));
  }, [conflicts]);
  return {
    ...form,
    conflicts,
    reset: (saved) => {
      setConflicts([]);
      form.reset(saved);
    },
  };
}

/** Lists what another user changed meanwhile. */
export function Conflicts({ conflicts }: { conflicts: Conflict[] }) {
  if (conflicts.length === 0) return null;
  return (
    <div class="problem conflict" role="alert" tabIndex={-1}>
      <Icon name="warning" />
      <div>
        <p>
          <strong>Someone else changed this while you were editing.</strong> Your edits are still here, but not saved
          yet. Review them, then save again.
        </p>
        <ul>
          {conflicts.map(({ label, before, after, isEditedHere }) => (
            <li key={label}>
              <strong>{label}</strong>: <Value value={before} /> changed to <Value value={after} />
              {isEditedHere && '. You also changed this field. If you save, your value replaces theirs.'}
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

/** The error of a form, with the details that belong to none of its `fields`. */
export function FormError({
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
  const isShownAtField = shown.some(({ message }) => message === failure.message);
  const rest = failure.details.filter((detail) => !shown.includes(detail) && detail.message !== failure.message);
  return (
    <div class="problem" role="alert" tabIndex={-1}>
      <div>
        <p>
          {isShownAtField || (failure.details.length > 0 && failure.code === 'validation_error')
            ? 'Some fields are invalid. Correct them and try again.'
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
        {failure.retryAfterSeconds !== undefined && <p>Try again in {failure.retryAfterSeconds} seconds.</p>}
      </div>
    </div>
  );
}

/** Save and discard buttons that stay visible while there are unsaved changes. */
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
      <Button label="Discard" isDisabled={form.isBusy} onClick={() => form.reset()} />
      <button class="button primary" disabled={form.isBusy}>
        {form.isBusy ? 'Saving…' : label}
      </button>
    </div>
  );
}

interface DialogFormProps {
  form: Pick<Form<object>, 'ref' | 'submit' | 'isBusy'> & { conflicts?: Conflict[] };
  label: string;
  /** The label while the form is sent. */
  busyLabel?: string;
  cancelLabel?: string;
  isDisabled?: boolean;
  onCancel: () => void;
  children: ComponentChildren;
}

/** The form of a dialog, with its buttons. */
export const DialogForm = ({
  form,
  label,
  busyLabel = 'Saving…',
  cancelLabel = 'Cancel',
  isDisabled = false,
  onCancel,
  children,
}: DialogFormProps) => (
  <form ref={form.ref} onSubmit={form.submit} noValidate>
    <div class="dialog-body">
      <Conflicts conflicts={form.conflicts ?? []} />
      {children}
    </div>
    <DialogFoot
      onCancel={onCancel}
      cancelLabel={cancelLabel}
      label={form.isBusy ? busyLabel : label}
      isDisabled={form.isBusy || isDisabled}
    />
  </form>
);

interface RecordDialogProps<R> {
  title: ComponentChildren;
  path: string;
  onClose: () => void;
  /** Renders the form. `close` asks before it loses unsaved changes. */
  children: (response: ApiResponse<R>, close: () => void) => ComponentChildren;
}

/** A dialog that loads a record and edits it. */
export function RecordDialog<R>({ title, path, onClose, children }: RecordDialogProps<R>) {
  const close = closeUnlessDirty(onClose);
  const read = useLoad(`dialog ${path}`, (signal) => request<R>('GET', path, { signal }), { isUncached: true });
  return (
    <Dialog title={title} isWide onClose={close}>
      <AsyncContent state={read}>{(response) => children(response, close)}</AsyncContent>
    </Dialog>
  );
}
