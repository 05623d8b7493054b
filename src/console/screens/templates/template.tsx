import { confirm, showToast } from '../../parts/dialogs.tsx';
import { channelNames } from '../../parts/format.tsx';
import { Conflicts, FormError, SaveBar, useRecordForm } from '../../parts/forms.tsx';
import { type ApiResponse, request } from '../../data/api.ts';
import { useLoad } from '../../data/load.ts';
import { Card, PageHeader, AsyncContent } from '../../parts/components.tsx';
import { navigate, href } from '../../router.ts';
import type { NotificationEvent, Template as TemplateData } from '../../types.ts';
import { type TemplateValues, TemplateFields, TemplatePreview } from './template-fields.tsx';
import { useEvents } from './events.ts';
import { Button } from '../../parts/button.tsx';

const labels = { subject: 'Subject', body: 'Message', is_active: 'Active' };

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
  const form = useRecordForm<TemplateData, TemplateValues>({
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
      <TemplatePreview
        event={event}
        channel={response.data.channel}
        subject={form.value.subject}
        body={form.value.body}
      />
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
    const isDeleted = await confirm({
      title: 'Delete this template?',
      text: <p>Schools that have not customized this notification will use the default text again.</p>,
      confirmLabel: 'Delete',
      isDangerous: true,
      action: () => request('DELETE', path),
      done: 'Template deleted.',
    });
    if (isDeleted) await navigate('/templates', { force: true });
  };
  return (
    <>
      <PageHeader
        title={event?.description ?? 'Template'}
        back={<a href={href('/templates')}>Notification templates</a>}
        lead={
          record && (
            <>
              <span class="code">{record.key}</span> · {channelNames[record.channel]}
            </>
          )
        }
        actions={record && <Button label="Delete" kind="warning" onClick={() => void remove()} />}
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
