import { useRef, useState } from 'preact/hooks';
import { confirm, showToast } from '../dialogs.tsx';
import { channelNames } from '../format.tsx';
import {
  CheckboxField,
  Conflicts,
  Field,
  type Form,
  FormError,
  SaveBar,
  SelectField,
  TextField,
  useForm,
  useRecordForm,
} from '../forms.tsx';
import { type ApiResponse, request, idempotencyKeys } from '../api.ts';
import { useLoad, useDebounced } from '../load.ts';
import { Card, PageHeader, AsyncContent } from '../components.tsx';
import { navigate, href, route } from '../router.ts';
import type { NotificationEvent, Preview as PreviewData, Template as TemplateData } from '../types.ts';
import { channels, useEvents } from './templates.tsx';

interface Fields {
  subject: string;
  body: string;
  is_active: boolean;
}

const labels = { subject: 'Subject', body: 'Message', is_active: 'Active' };
const back = <a href={href('/templates')}>Notification templates</a>;

/** The message as a recipient would see it, with sample values. */
function Preview({
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
            await request<PreviewData>('POST', '/api/platform/notification-templates/preview', {
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
function TemplateFields({
  form,
  event,
}: {
  form: Pick<Form<Fields>, 'value' | 'set' | 'error'>;
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

function NewTemplateForm({ events }: { events: NotificationEvent[] }) {
  const params = Object.fromEntries(route.value.search);
  const [makeKey] = useState(idempotencyKeys);
  const defaultText = (key: string) => {
    const event = events.find((other) => other.key === key);
    return { subject: event?.title ?? '', body: event?.message ?? '' };
  };
  const initialKey = events.some(({ key }) => key === params['key']) ? (params['key'] ?? '') : (events[0]?.key ?? '');
  const form = useForm(
    { key: initialKey, channel: params['channel'] ?? 'in_app', is_active: true, ...defaultText(initialKey) },
    async ({ subject, ...rest }) => {
      const body = { ...rest, ...(subject.trim() ? { subject } : {}) };
      await request<TemplateData>('POST', '/api/platform/notification-templates', {
        body,
        idempotencyKey: makeKey(body),
      });
      showToast('Template created.');
      await navigate('/templates', { force: true });
    },
  );
  const { value, set, error } = form;
  const event = events.find((one) => one.key === value.key);
  const choose = (key: string) => {
    // Keep text that the operator has edited; otherwise show the default text of the new event.
    const before = defaultText(value.key);
    const isUntouched = value.subject === before.subject && value.body === before.body;
    set({ key, ...(isUntouched ? defaultText(key) : {}) });
  };
  if (!event) return null;
  return (
    <div class="columns">
      <form ref={form.ref} onSubmit={form.submit} noValidate>
        <Card>
          <div class="form">
            <FormError form={form} fields={['key', 'channel', 'subject', 'body']} />
            <div class="pair">
              <SelectField
                label="Event"
                name="key"
                isRequired
                value={value.key}
                error={error('key')}
                options={events.map(({ key }) => [key, key] as const)}
                hint={event.description}
                onChange={choose}
              />
              <SelectField
                label="Channel"
                name="channel"
                isRequired
                value={value.channel}
                error={error('channel')}
                options={channels.map((channel) => [channel, channelNames[channel]] as const)}
                onChange={(channel) => set({ channel })}
              />
            </div>
            <TemplateFields form={form} event={event} />
            <div class="form-foot">
              <a class="button" href={href('/templates')}>
                Cancel
              </a>
              <button class="button primary" disabled={form.isBusy}>
                {form.isBusy ? 'Creating…' : 'Create template'}
              </button>
            </div>
          </div>
        </Card>
      </form>
      <Preview event={event} channel={value.channel} subject={value.subject} body={value.body} />
    </div>
  );
}

export function NewTemplate() {
  const events = useEvents();
  return (
    <>
      <PageHeader title="Create template" back={back} lead="For one event and channel." />
      <AsyncContent state={events}>{(data) => <NewTemplateForm events={data} />}</AsyncContent>
    </>
  );
}

type Read = Pick<ApiResponse<TemplateData>, 'data' | 'etag'>;

function EditTemplateForm({
  response,
  event,
  onSaved,
}: {
  response: Read;
  event: NotificationEvent;
  onSaved: (response: Read) => void;
}) {
  const form = useRecordForm<TemplateData, Fields>({
    path: `/api/platform/notification-templates/${response.data.id}`,
    response,
    toForm: ({ subject, body, is_active }) => ({ subject, body, is_active }),
    // An empty subject resets it to the default of the event.
    toBody: (changes) => (changes.subject?.trim() === '' ? { ...changes, subject: event.title } : changes),
    labels,
    onSaved,
  });
  return (
    <div class="columns">
      <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
        <FormError form={form} fields={Object.keys(labels)} />
        <Conflicts conflicts={form.conflicts} />
        <Card>
          <div class="form">
            <TemplateFields form={form} event={event} />
          </div>
        </Card>
        <SaveBar form={form} />
      </form>
      <Preview event={event} channel={response.data.channel} subject={form.value.subject} body={form.value.body} />
    </div>
  );
}

export function Template({ id = '' }: Record<string, string>) {
  const path = `/api/platform/notification-templates/${encodeURIComponent(id)}`;
  const template = useLoad<Read>(`template ${id}`, (signal) => request<TemplateData>('GET', path, { signal }), {
    isUncached: true,
  });
  const events = useEvents();
  const record = template.data?.data;
  const event = events.data?.find(({ key }) => key === record?.key);
  const remove = async () => {
    const isConfirmed = await confirm({
      title: 'Delete this template?',
      text: <p>Schools that have not customized this notification will use the default text again.</p>,
      confirmLabel: 'Delete',
      isDangerous: true,
      action: async () => {
        await request('DELETE', path);
      },
    });
    if (!isConfirmed) return;
    showToast('Template deleted.');
    await navigate('/templates', { force: true });
  };
  return (
    <>
      <PageHeader
        title={event?.description ?? 'Template'}
        back={back}
        lead={
          record && (
            <>
              <span class="code">{record.key}</span> · {channelNames[record.channel]}
            </>
          )
        }
        actions={
          record && (
            <button type="button" class="button warning" onClick={() => void remove()}>
              Delete
            </button>
          )
        }
      />
      <AsyncContent state={template}>
        {(response) => (
          <AsyncContent state={events}>
            {() =>
              event && (
                <EditTemplateForm
                  response={response}
                  event={event}
                  onSaved={(saved) => {
                    showToast('Template saved.');
                    template.set(saved);
                  }}
                />
              )
            }
          </AsyncContent>
        )}
      </AsyncContent>
    </>
  );
}
