import { useState } from 'preact/hooks';
import { channelNames } from '../../parts/format.tsx';
import { Icon } from '../../parts/icons.tsx';
import { loadAll, useLoad } from '../../data/load.ts';
import { Card, EmptyState, PageHeader, AsyncContent } from '../../parts/components.tsx';
import { SearchBox } from '../../parts/list.tsx';
import { href } from '../../router.ts';
import type { Channel, NotificationEvent, Template } from '../../types.ts';
import { channels, useEvents } from './events.ts';

/** All templates: at most one per event and channel. */
const loadTemplates = (signal: AbortSignal) => loadAll<Template>('/api/platform/notification-templates', signal);

function TemplateLink({
  event,
  channel,
  template,
}: {
  event: NotificationEvent;
  channel: Channel;
  template: Template | undefined;
}) {
  const state = !template ? 'default' : template.is_active ? 'custom' : 'custom, inactive';
  const to = template ? `/templates/${template.id}` : `/templates/new?key=${event.key}&channel=${channel}`;
  return (
    <a
      class={template ? 'template-link custom' : 'template-link'}
      href={href(to)}
      aria-label={`${event.key}, ${channelNames[channel]}: ${state}`}
    >
      {channelNames[channel]}
      {template && ` (${state})`}
    </a>
  );
}

export function Templates() {
  const events = useEvents();
  const templates = useLoad('templates', loadTemplates);
  const [typed, setTyped] = useState('');
  const query = typed.trim().toLowerCase();
  return (
    <>
      <PageHeader
        title="Notification templates"
        lead="The text of each notification, for schools that have not customized it."
        actions={
          <a class="button primary" href={href('/templates/new')}>
            <Icon name="plus" /> Create template
          </a>
        }
      />
      <Card isFlush>
        <div class="filters" role="search">
          <SearchBox label="Search events" placeholder="Name or description" value={typed} onChange={setTyped} />
        </div>
        <AsyncContent state={events} lines={8}>
          {(all) => (
            <AsyncContent state={templates} lines={8}>
              {(custom) => {
                const shown = all.filter(({ key, description }) =>
                  `${key} ${description}`.toLowerCase().includes(query),
                );
                if (shown.length === 0) return <EmptyState title="No matching events" />;
                return (
                  <ul>
                    {shown.map((event) => (
                      <li key={event.key} class="event">
                        <div class="event-summary">
                          <p class="entry-title">{event.description}</p>
                          <p class="code muted">{event.key}</p>
                        </div>
                        <div class="event-templates">
                          {channels.map((channel) => (
                            <TemplateLink
                              key={channel}
                              event={event}
                              channel={channel}
                              template={custom.find((one) => one.key === event.key && one.channel === channel)}
                            />
                          ))}
                        </div>
                      </li>
                    ))}
                  </ul>
                );
              }}
            </AsyncContent>
          )}
        </AsyncContent>
      </Card>
    </>
  );
}
