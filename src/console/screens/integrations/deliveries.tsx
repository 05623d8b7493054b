import { request } from '../../data/api.ts';
import { Badge, Card, Segments } from '../../parts/components.tsx';
import { attempt } from '../../parts/dialogs.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { PagedList, useListScreen } from '../../parts/list.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import type { Webhook, WebhookDelivery } from '../../types.ts';
import { path } from './webhook-dialog.tsx';
import { Button } from '../../parts/button.tsx';

const statuses = [
  ['', 'All'],
  ['pending', 'Pending'],
  ['sent', 'Sent'],
  ['failed', 'Failed'],
] as const;

const columns: Column<WebhookDelivery>[] = [
  {
    label: 'Event',
    cell: ({ event, message_id }) => (
      <>
        {event}
        <small class="code">{message_id}</small>
      </>
    ),
  },
  {
    label: 'Result',
    isNarrow: true,
    cell: ({ status, reason, status_code, response_body }) => (
      <>
        <Badge value={status} />
        <small>
          {reason ?? status_code}
          {response_body && `: ${response_body.slice(0, 200)}`}
        </small>
      </>
    ),
  },
  {
    label: 'Attempts',
    cell: ({ attempts, next_attempt_at }) => (
      <>
        {attempts}
        {next_attempt_at && (
          <small>
            next <Timestamp at={next_attempt_at} format="relative" />
          </small>
        )}
      </>
    ),
  },
  { label: 'Created', cell: ({ created_at }) => <Timestamp at={created_at} format="time" /> },
];

/** The delivery log of a webhook, with buttons to send messages again. */
export function Deliveries({ webhook }: { webhook: Webhook }) {
  const base = `${path}/${webhook.id}/deliveries`;
  const list = useListScreen<WebhookDelivery, 'status'>(base, { filters: ['status'] });
  const replay = async ({ id }: WebhookDelivery) => {
    await attempt(() => request('POST', `${base}/${id}/replay`), 'The message is sent again.');
    await list.reload();
  };
  return (
    <Card title="Deliveries" isFlush actions={<Button label="Refresh" isSmall onClick={() => void list.reload()} />}>
      <div class="filters">
        <Segments
          legend="Status"
          name="status"
          options={statuses}
          value={list.filters.status}
          onChange={(status) => list.change({ status })}
        />
      </div>
      <PagedList list={list} names={['delivery', 'deliveries']} empty="No deliveries">
        {(deliveries) => (
          <Table
            caption="Deliveries"
            items={deliveries}
            keyOf={({ id }) => id}
            columns={columns}
            actions={(delivery) =>
              webhook.is_active && (
                <Button
                  label="Send again"
                  isSmall
                  name={`Send again: ${delivery.event}, delivery ${delivery.id}`}
                  onClick={() => void replay(delivery)}
                />
              )
            }
          />
        )}
      </PagedList>
    </Card>
  );
}
