import { showToast } from '../../parts/dialogs.tsx';
import { channelNames } from '../../parts/format.tsx';
import { SelectField } from '../../parts/fields.tsx';
import { FormError, useCreateForm } from '../../parts/forms.tsx';
import { Card, PageHeader, AsyncContent } from '../../parts/components.tsx';
import { navigate, href, route } from '../../router.ts';
import type { NotificationEvent } from '../../types.ts';
import { TemplateFields, TemplatePreview } from './template-fields.tsx';
import { channels, useEvents } from './events.ts';

function NewTemplateForm({ events }: { events: NotificationEvent[] }) {
  const params = Object.fromEntries(route.value.search);
  const defaultText = (key: string) => {
    const event = events.find((other) => other.key === key);
    return { subject: event?.title ?? '', body: event?.message ?? '' };
  };
  const initialKey = events.some(({ key }) => key === params['key']) ? (params['key'] ?? '') : (events[0]?.key ?? '');
  const form = useCreateForm(
    '/api/platform/notification-templates',
    { key: initialKey, channel: params['channel'] ?? 'in_app', is_active: true, ...defaultText(initialKey) },
    ({ subject, ...rest }) => ({ ...rest, ...(subject.trim() ? { subject } : {}) }),
    async () => {
      showToast('Template created.');
      await navigate('/templates', { force: true });
    },
  );
  const { value, set, error } = form;
  const event = events.find((candidate) => candidate.key === value.key);
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
      <TemplatePreview event={event} channel={value.channel} subject={value.subject} body={value.body} />
    </div>
  );
}

export function NewTemplate() {
  const events = useEvents();
  return (
    <>
      <PageHeader
        title="Create template"
        back={<a href={href('/templates')}>Notification templates</a>}
        lead="For one event and channel."
      />
      <AsyncContent state={events}>{(data) => <NewTemplateForm events={data} />}</AsyncContent>
    </>
  );
}
