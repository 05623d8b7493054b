import { useState } from 'preact/hooks';
import { Badge, Card } from '../../parts/components.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { Icon } from '../../parts/icons.tsx';
import { PagedList, SearchBox, useListScreen } from '../../parts/list.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { href } from '../../router.ts';
import type { Webhook } from '../../types.ts';
import { NewWebhookDialog, path } from './webhook-dialog.tsx';

export function WebhookState({ webhook: { is_active, failing_since } }: { webhook: Webhook }) {
  if (!is_active) return <Badge value="disabled" tone="bad" />;
  return failing_since ? <Badge value="failing" tone="warn" /> : <Badge value="active" />;
}

const columns: Column<Webhook>[] = [
  {
    label: 'Address',
    cell: ({ id, url, description }) => (
      <>
        <a href={href(`/integrations/webhooks/${id}`)}>{url}</a>
        <small>{description}</small>
      </>
    ),
  },
  { label: 'Events', cell: ({ events }) => events.length },
  { label: 'Status', isNarrow: true, cell: (webhook) => <WebhookState webhook={webhook} /> },
  { label: 'Added', cell: ({ created_at }) => <Timestamp at={created_at} /> },
];

/** The webhooks of the platform. */
export function WebhooksTab() {
  const list = useListScreen<Webhook, 'search'>(path, { filters: ['search'] });
  const [isAdding, setAdding] = useState(false);
  return (
    <>
      <Card isFlush>
        <div class="filters" role="search">
          <SearchBox
            label="Search webhooks"
            placeholder="Address or description"
            value={list.searchText}
            onChange={list.setSearchText}
          />
          <button type="button" class="button primary" onClick={() => setAdding(true)}>
            <Icon name="plus" /> Add webhook
          </button>
        </div>
        <PagedList
          list={list}
          names={['webhook', 'webhooks']}
          empty={list.isFiltered ? 'No matching webhooks' : 'No webhooks yet'}
        >
          {(webhooks) => (
            <Table caption="Webhooks" items={webhooks} keyOf={({ id }) => id} columns={columns} isLinked />
          )}
        </PagedList>
      </Card>
      {isAdding && <NewWebhookDialog onClose={() => setAdding(false)} onCreated={() => void list.reload()} />}
    </>
  );
}
