import { useState } from 'preact/hooks';
import { channelNames } from '../format.tsx';
import { ask } from '../http.ts';
import { Icon } from '../icons.tsx';
import { useLoad } from '../load.ts';
import { Card, Empty, Head, Show } from '../parts.tsx';
import { href } from '../router.ts';
import type { Channel, NotificationEvent, Template } from '../types.ts';

/** The events that notify. */
export const useEvents = () =>
  useLoad(
    'events',
    async (signal) => (await ask<NotificationEvent[]>('GET', '/api/platform/notification-events', { signal })).data,
  );

/** All words of operators: there can be one for each event and channel. */
async function everyTemplate(signal: AbortSignal): Promise<Template[]> {
  const templates: Template[] = [];
  for (let page = 1; ; page++) {
    const { data, pagination } = await ask<Template[]>('GET', '/api/platform/notification-templates', {
      query: { page, pageSize: 100 },
      signal,
    });
    templates.push(...data);
    if (page >= pagination.totalPages) return templates;
  }
}

export const channels = Object.keys(channelNames) as Channel[];

function Words({
  event,
  channel,
  template,
}: {
  event: NotificationEvent;
  channel: Channel;
  template: Template | undefined;
}) {
  const state = !template ? 'default' : template.is_active ? 'own words' : 'own words, off';
  const to = template ? `/templates/${template.id}` : `/templates/new?key=${event.key}&channel=${channel}`;
  return (
    <a
      class={template ? 'words own' : 'words'}
      href={href(to)}
      aria-label={`${event.key}, ${channelNames[channel]}: ${state}`}
    >
      <span>{channelNames[channel]}</span> <small>{state}</small>
    </a>
  );
}

export function Templates() {
  const events = useEvents();
  const templates = useLoad('templates', everyTemplate);
  const [typed, setTyped] = useState('');
  const wanted = typed.trim().toLowerCase();
  return (
    <>
      <Head
        title="Notification templates"
        lead="The words of each event, for every school that has none of its own."
        actions={
          <a class="button primary" href={href('/templates/new')}>
            <Icon name="plus" /> Add words
          </a>
        }
      />
      <Card isFlush>
        <div class="filters" role="search">
          <div class="search">
            <Icon name="search" />
            <input
              type="search"
              aria-label="Search events"
              placeholder="Event"
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </div>
        </div>
        <Show what={events} lines={8}>
          {(all) => (
            <Show what={templates} lines={8}>
              {(words) => {
                const shown = all.filter(({ key, description }) =>
                  `${key} ${description}`.toLowerCase().includes(wanted),
                );
                if (shown.length === 0) return <Empty title="No event fits." />;
                return (
                  <ul class="events">
                    {shown.map((event) => (
                      <li key={event.key} class="event">
                        <div class="event-what">
                          <p class="entry-title">{event.description}</p>
                          <p class="code muted">{event.key}</p>
                        </div>
                        <div class="event-words">
                          {channels.map((channel) => (
                            <Words
                              key={channel}
                              event={event}
                              channel={channel}
                              template={words.find((one) => one.key === event.key && one.channel === channel)}
                            />
                          ))}
                        </div>
                      </li>
                    ))}
                  </ul>
                );
              }}
            </Show>
          )}
        </Show>
      </Card>
    </>
  );
}
