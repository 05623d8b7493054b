import { request } from '../../data/api.ts';
import { Badge, Card, EmptyState, PagedList } from '../../parts/components.tsx';
import { showToast } from '../../parts/dialogs.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { isAbort, toFailure } from '../../data/http.ts';
import { useLoad } from '../../data/load.ts';
import { route, setSearch } from '../../router.ts';
import type { Webhook, WebhookDelivery } from '../../types.ts';
import { path } from './webhook-dialog.tsx';

const filters = [
  ['', 'All'],
  ['pending', 'Pending'],
  ['sent', 'Sent'],
  ['failed', 'Failed'],
] as const;

function StatusFilter({ status, onChange }: { status: string; onChange: (status: string) => void }) {
  return (
    <fieldset class="segments">
      <legend class="hidden">Status</legend>
      {filters.map(([value, label]) => (
        <label key={value}>
          <input type="radio" name="status" checked={status === value} onChange={() => onChange(value)} />
          <span>{label}</span>
        </label>
      ))}
    </fieldset>
  );
}

function DeliveryRow({ delivery, onReplay }: { delivery: WebhookDelivery; onReplay: (() => void) | undefined }) {
  const { id, event, message_id, status, attempts, status_code, reason, response_body, next_attempt_at } = delivery;
  return (
    <tr>
      <th scope="row">
        {event}
        <small class="code">{message_id}</small>
      </th>
      <td>
        <Badge value={status} />
        <small>
          {reason ?? status_code}
          {response_body && `: ${response_body.slice(0, 200)}`}
        </small>
      </td>
      <td class="wide-only">
        {attempts}
        {next_attempt_at && (
          <small>
            next <Timestamp at={next_attempt_at} format="relative" />
          </small>
        )}
      </td>
      <td class="wide-only">
        <Timestamp at={delivery.created_at} format="time" />
      </td>
      <td class="number">
        {onReplay && (
          <button
            type="button"
            class="button small-button"
            aria-label={`Send again: ${event}, delivery ${id}`}
            onClick={onReplay}
          >
            Send again
          </button>
        )}
      </td>
    </tr>
  );
}

/** The delivery log of a webhook, with buttons to send messages again. */
export function Deliveries({ webhook }: { webhook: Webhook }) {
  const { page = '1', status = '' } = Object.fromEntries(route.value.search);
  const query = { page, status };
  const base = `${path}/${webhook.id}/deliveries`;
  const deliveries = useLoad(
    `deliveries of webhook ${webhook.id} ${JSON.stringify(query)}`,
    (signal) => request<WebhookDelivery[]>('GET', base, { query, signal }),
    { keepPrevious: true },
  );
  const replay = async ({ id }: WebhookDelivery) => {
    try {
      await request('POST', `${base}/${id}/replay`);
      showToast('The message is sent again.');
    } catch (thrown) {
      if (!isAbort(thrown)) showToast(toFailure(thrown).message, true);
    }
    await deliveries.reload();
  };
  return (
    <Card
      title="Deliveries"
      isFlush
      actions={
        <button type="button" class="button small-button" onClick={() => void deliveries.reload()}>
          Refresh
        </button>
      }
    >
      <div class="filters">
        <StatusFilter status={status} onChange={(to) => setSearch({ status: to || undefined })} />
      </div>
      <PagedList
        state={deliveries}
        lines={4}
        names={['delivery', 'deliveries']}
        onPage={(to) => setSearch({ status: status || undefined, page: to?.toString() })}
        empty={<EmptyState title="No deliveries" />}
      >
        {(data) => (
          <table class="table">
            <caption class="hidden">Deliveries</caption>
            <thead>
              <tr>
                <th scope="col">Event</th>
                <th scope="col">Result</th>
                <th scope="col" class="wide-only">
                  Attempts
                </th>
                <th scope="col" class="wide-only">
                  Created
                </th>
                <th scope="col">
                  <span class="hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {data.map((delivery) => (
                <DeliveryRow
                  key={delivery.id}
                  delivery={delivery}
                  onReplay={webhook.is_active ? () => void replay(delivery) : undefined}
                />
              ))}
            </tbody>
          </table>
        )}
      </PagedList>
    </Card>
  );
}
