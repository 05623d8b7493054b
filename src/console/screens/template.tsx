import { useRef, useState } from 'preact/hooks';
import { confirm, say } from '../dialogs.tsx';
import { channelNames } from '../format.tsx';
import {
  Check,
  Conflicts,
  Field,
  type Form,
  FormProblem,
  SaveBar,
  Select,
  Text,
  useForm,
  useRecordForm,
} from '../forms.tsx';
import { type Answer, ask, idempotencyKeys } from '../http.ts';
import { useLoad, useSettled } from '../load.ts';
import { Card, Head, Show } from '../parts.tsx';
import { go, href, place } from '../router.ts';
import type { NotificationEvent, Preview as Filled, Template as Record } from '../types.ts';
import { channels, useEvents } from './templates.tsx';

interface Fields {
  subject: string;
  body: string;
  is_active: boolean;
}

const labels = { subject: 'Subject', body: 'Text', is_active: 'Active' };
const back = <a href={href('/templates')}>Notification templates</a>;

/** The words as somebody would get them, with the values of an example. */
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
  const words = useSettled(
    JSON.stringify({ key: event.key, channel, ...(subject.trim() ? { subject } : {}), body }),
    250,
  );
  const isEmpty = (JSON.parse(words) as { body: string }).body.trim() === '';
  const filled = useLoad(
    `preview ${words}`,
    async (signal) =>
      isEmpty
        ? undefined
        : (
            await ask<Filled>('POST', '/api/platform/notification-templates/preview', {
              body: JSON.parse(words) as object,
              signal,
            })
          ).data,
    { isFresh: true, keep: true },
  );
  return (
    <Card title="Preview">
      <div aria-live="polite" aria-busy={filled.isLoading}>
        {filled.failure ? (
          <p class="problem">
            {filled.failure.details[0]
              ? filled.failure.details.map(({ message }) => message).join(' ')
              : filled.failure.message}
          </p>
        ) : filled.data ? (
          <div class={`preview ${channel}`}>
            <p>
              <strong>{filled.data.subject}</strong>
            </p>
            <p>{filled.data.body}</p>
          </div>
        ) : (
          <p class="muted">{isEmpty ? 'Write a text to see it filled in.' : 'Filling in…'}</p>
        )}
      </div>
      <p class="hint preview-note">With example values.</p>
    </Card>
  );
}

/** Subject, text, and what can be put into them. */
function WordsFields({
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
      <Text
        label="Subject"
        name="subject"
        hint={`Empty: «${event.title}»`}
        value={value.subject}
        error={error('subject')}
        onChange={(subject) => set({ subject })}
      />
      <Field label="Text" name="body" isRequired error={error('body')} hint="Plain text.">
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
              title={event.sample[name] ? `For example: ${event.sample[name]}` : undefined}
              onClick={() => insert(name)}
            >
              {name}
            </button>
          ))}
        </div>
        <p class="hint">Choose one to put it into the text.</p>
      </div>
      <Check
        label="Active"
        hint="While it is off, the event has its former words."
        isOn={value.is_active}
        onChange={(is_active) => set({ is_active })}
      />
    </>
  );
}

function NewWords({ events }: { events: NotificationEvent[] }) {
  const given = Object.fromEntries(place.value.search);
  const [makeKey] = useState(idempotencyKeys);
  const wordsOf = (key: string) => {
    const found = events.find((one) => one.key === key);
    return { subject: found?.title ?? '', body: found?.message ?? '' };
  };
  const first = events.some(({ key }) => key === given['key']) ? (given['key'] ?? '') : (events[0]?.key ?? '');
  const form = useForm(
    { key: first, channel: given['channel'] ?? 'in_app', is_active: true, ...wordsOf(first) },
    async ({ subject, ...rest }) => {
      const body = { ...rest, ...(subject.trim() ? { subject } : {}) };
      await ask<Record>('POST', '/api/platform/notification-templates', { body, idempotencyKey: makeKey(body) });
      say('The words are in use.');
      await go('/templates', { force: true });
    },
  );
  const { value, set, error } = form;
  const event = events.find((one) => one.key === value.key);
  const choose = (key: string) => {
    // Words that nobody touched go with the event.
    const untouched = wordsOf(value.key);
    const isUntouched = value.subject === untouched.subject && value.body === untouched.body;
    set({ key, ...(isUntouched ? wordsOf(key) : {}) });
  };
  if (!event) return null;
  return (
    <div class="columns">
      <form ref={form.ref} onSubmit={form.submit} noValidate>
        <Card>
          <div class="form">
            <FormProblem form={form} fields={['key', 'channel', 'subject', 'body']} />
            <div class="pair">
              <Select
                label="Event"
                name="key"
                isRequired
                value={value.key}
                error={error('key')}
                options={events.map(({ key }) => [key, key] as const)}
                hint={event.description}
                onChange={choose}
              />
              <Select
                label="Channel"
                name="channel"
                isRequired
                value={value.channel}
                error={error('channel')}
                options={channels.map((channel) => [channel, channelNames[channel]] as const)}
                onChange={(channel) => set({ channel })}
              />
            </div>
            <WordsFields form={form} event={event} />
            <div class="form-foot">
              <a class="button" href={href('/templates')}>
                Cancel
              </a>
              <button class="button primary" disabled={form.isBusy}>
                {form.isBusy ? 'Saving…' : 'Save words'}
              </button>
            </div>
          </div>
        </Card>
      </form>
      <Preview event={event} channel={value.channel} subject={value.subject} body={value.body} />
    </div>
  );
}

export function TemplateNew() {
  const events = useEvents();
  return (
    <>
      <Head title="Add words" back={back} lead="For one event on one channel." />
      <Show what={events}>{(data) => <NewWords events={data} />}</Show>
    </>
  );
}

type Read = Pick<Answer<Record>, 'data' | 'etag'>;

function EditWords({
  answer,
  event,
  onSaved,
}: {
  answer: Read;
  event: NotificationEvent;
  onSaved: (answer: Read) => void;
}) {
  const form = useRecordForm<Record, Fields>({
    path: `/api/platform/notification-templates/${answer.data.id}`,
    answer,
    toForm: ({ subject, body, is_active }) => ({ subject, body, is_active }),
    // A subject that is taken away is that of the event again.
    toBody: (changes) => (changes.subject?.trim() === '' ? { ...changes, subject: event.title } : changes),
    labels,
    onSaved,
  });
  return (
    <div class="columns">
      <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
        <FormProblem form={form} fields={Object.keys(labels)} />
        <Conflicts conflicts={form.conflicts} />
        <Card>
          <div class="form">
            <WordsFields form={form} event={event} />
          </div>
        </Card>
        <SaveBar form={form} />
      </form>
      <Preview event={event} channel={answer.data.channel} subject={form.value.subject} body={form.value.body} />
    </div>
  );
}

export function Template({ id = '' }: globalThis.Record<string, string>) {
  const path = `/api/platform/notification-templates/${encodeURIComponent(id)}`;
  const template = useLoad<Read>(`template ${id}`, (signal) => ask<Record>('GET', path, { signal }), { isFresh: true });
  const events = useEvents();
  const record = template.data?.data;
  const event = events.data?.find(({ key }) => key === record?.key);
  const remove = async () => {
    const isDone = await confirm({
      title: 'Delete these words?',
      text: <p>The event has its former words again, for every school that has none of its own.</p>,
      action: 'Delete',
      isDangerous: true,
      work: async () => {
        await ask('DELETE', path);
      },
    });
    if (!isDone) return;
    say('The words are deleted.');
    await go('/templates', { force: true });
  };
  return (
    <>
      <Head
        title={event?.description ?? 'Words'}
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
      <Show what={template}>
        {(answer) => (
          <Show what={events}>
            {() =>
              event && (
                <EditWords
                  answer={answer}
                  event={event}
                  onSaved={(saved) => {
                    say('Saved.');
                    template.set(saved);
                  }}
                />
              )
            }
          </Show>
        )}
      </Show>
    </>
  );
}
