import { useState } from 'preact/hooks';
import { request } from '../../data/api.ts';
import { Badge, Card, EmptyState, PagedList, SearchBox } from '../../parts/components.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { Icon } from '../../parts/icons.tsx';
import { useLoad } from '../../data/load.ts';
import { href, route, setSearch } from '../../router.ts';
import { useSearchText } from '../../parts/search-text.ts';
import type { Webhook } from '../../types.ts';
import { NewWebhookDialog, path } from './webhook-dialog.tsx';

export function WebhookState({ webhook: { is_active, failing_since } }: { webhook: Webhook }) {
  if (!is_active) return <Badge value="disabled" tone="bad" />;
  return failing_since ? <Badge value="failing" tone="warn" /> : <Badge value="active" />;
}

function WebhookTable({ webhooks }: { webhooks: Webhook[] }) {
  return (
    <table class="table">
      <caption class="hidden">Webhooks</caption>
      <thead>
        <tr>
          <th scope="col">Address</th>
          <th scope="col" class="wide-only">
            Events
          </th>
          <th scope="col">Status</th>
          <th scope="col" class="wide-only">
            Added
          </th>
        </tr>
      </thead>
      <tbody>
        {webhooks.map((webhook) => (
          <tr key={webhook.id} class="row-link">
            <th scope="row">
              <a href={href(`/integrations/webhooks/${webhook.id}`)}>{webhook.url}</a>
              <small>{webhook.description}</small>
            </th>
            <td class="wide-only">{webhook.events.length}</td>
            <td>
              <WebhookState webhook={webhook} />
            </td>
            <td class="wide-only">
              <Timestamp at={webhook.created_at} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The webhooks of the platform. */
export function WebhooksTab() {
  const params = Object.fromEntries(route.value.search);
  const { search = '', page = '1' } = params;
  const change = (next: Record<string, string | undefined>) => setSearch({ ...params, page: undefined, ...next });
  const [searchText, setSearchText] = useSearchText(search, (text) => change({ search: text }));
  const [isAdding, setAdding] = useState(false);
  const query = { search, page };
  const webhooks = useLoad(
    `webhooks ${JSON.stringify(query)}`,
    (signal) => request<Webhook[]>('GET', path, { query, signal }),
    { keepPrevious: true },
  );
  return (
    <>
      <Card isFlush>
        <div class="filters" role="search">
          <SearchBox
            label="Search webhooks"
            placeholder="Address or description"
            value={searchText}
            onChange={setSearchText}
          />
          <button type="button" class="button primary" onClick={() => setAdding(true)}>
            <Icon name="plus" /> Add webhook
          </button>
        </div>
        <PagedList
          state={webhooks}
          lines={4}
          names={['webhook', 'webhooks']}
          onPage={(to) => change({ page: to?.toString() })}
          empty={<EmptyState title={search ? 'No matching webhooks' : 'No webhooks yet'} />}
        >
          {(data) => <WebhookTable webhooks={data} />}
        </PagedList>
      </Card>
      {isAdding && <NewWebhookDialog onClose={() => setAdding(false)} onCreated={() => void webhooks.reload()} />}
    </>
  );
}
