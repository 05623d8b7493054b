import { useRef } from 'preact/hooks';
import { CheckboxField, Field, TextField } from '../../parts/fields.tsx';
import { type Form } from '../../parts/forms.tsx';
import { request } from '../../data/api.ts';
import { useLoad, useDebounced } from '../../data/load.ts';
import { Card } from '../../parts/components.tsx';
import type { NotificationEvent, Preview } from '../../types.ts';

/** The fields of a form for a template. */
export interface TemplateValues {
  subject: string;
  body: string;
  is_active: boolean;
}

/** The message as a recipient would see it, with sample values. */
export function TemplatePreview({
  event,
  channel,
  subject,
  body,
}: {
  event: NotificationEvent;
  channel: string;
  subject: string;
  body: string;
}) {
  const requestBody = useDebounced(
    JSON.stringify({ key: event.key, channel, ...(subject.trim() ? { subject } : {}), body }),
    250,
  );
  const isEmpty = (JSON.parse(requestBody) as { body: string }).body.trim() === '';
  const preview = useLoad(
    `preview ${requestBody}`,
    async (signal) =>
      isEmpty
        ? undefined
        : (
            await request<Preview>('POST', '/api/platform/notification-templates/preview', {
              body: JSON.parse(requestBody) as object,
              signal,
            })
          ).data,
    { isUncached: true, keepPrevious: true },
  );
  return (
    <Card title="Preview">
      <div aria-live="polite" aria-busy={preview.isLoading}>
        {preview.failure ? (
          <p class="problem">
            {preview.failure.details[0]
              ? preview.failure.details.map(({ message }) => message).join(' ')
              : preview.failure.message}
          </p>
        ) : preview.data ? (
          <div class={`preview ${channel}`}>
            <p>
              <strong>{preview.data.subject}</strong>
            </p>
            <p>{preview.data.body}</p>
          </div>
        ) : (
          <p class="muted">{isEmpty ? 'Enter a message to see a preview.' : 'Loading…'}</p>
        )}
      </div>
      <p class="hint preview-note">Shown with sample values.</p>
    </Card>
  );
}

/** Subject, message, and the placeholders that they may contain. */
export function TemplateFields({
  form,
  event,
}: {
  form: Pick<Form<TemplateValues>, 'value' | 'set' | 'error'>;
  event: NotificationEvent;
}) {
  const area = useRef<HTMLTextAreaElement>(null);
  const { value, set, error } = form;
  const insert = (name: string) => {
    const element = area.current;
    const [from, to] = [element?.selectionStart ?? value.body.length, element?.selectionEnd ?? value.body.length];
    const text = `{{${name}}}`;
    set({ body: value.body.slice(0, from) + text + value.body.slice(to) });
    requestAnimationFrame(() => {
      element?.focus();
      element?.setSelectionRange(from + text.length, from + text.length);
    });
  };
  return (
    <>
      <TextField
        label="Subject"
        name="subject"
        hint={`Default: “${event.title}”`}
        value={value.subject}
        error={error('subject')}
        onChange={(subject) => set({ subject })}
      />
      <Field label="Message" name="body" isRequired error={error('body')} hint="Plain text.">
        {(attributes) => (
          <textarea
            {...attributes}
            ref={area}
            rows={7}
            value={value.body}
            onInput={({ currentTarget }) => set({ body: currentTarget.value })}
          />
        )}
      </Field>
      <div class="field">
        <p class="legend">Placeholders</p>
        <div class="chips">
          {event.variables.map((name) => (
            <button
              key={name}
              type="button"
              class="chip"
              title={event.sample[name] ? `Example: ${event.sample[name]}` : undefined}
              onClick={() => insert(name)}
            >
              {name}
            </button>
          ))}
        </div>
        <p class="hint">Select a placeholder to insert it into the message.</p>
      </div>
      <CheckboxField
        label="Active"
        hint="While inactive, the default text is used."
        isOn={value.is_active}
        onChange={(is_active) => set({ is_active })}
      />
    </>
  );
}
