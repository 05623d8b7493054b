import { useState } from 'preact/hooks';
import { Badge, Card } from '../../parts/components.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { ListFilters, PagedList, useListScreen } from '../../parts/list.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { href } from '../../router.ts';
import type { Webhook } from '../../types.ts';
import { NewWebhookDialog, path } from './webhook-dialog.tsx';
import { Button } from '../../parts/button.tsx';

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
        <ListFilters list={list} label="Search webhooks" placeholder="Address or description">
          <Button icon="plus" label="Add webhook" kind="primary" onClick={() => setAdding(true)} />
        </ListFilters>
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
