import { useState } from 'preact/hooks';
import { roleNames } from '../../parts/access-fields.tsx';
import { request } from '../../data/api.ts';
import { Badge, Card, EmptyState, PagedList, SearchBox } from '../../parts/components.tsx';
import { confirm, showToast } from '../../parts/dialogs.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { Icon } from '../../parts/icons.tsx';
import { useLoad } from '../../data/load.ts';
import { route, setSearch } from '../../router.ts';
import { useSearchText } from '../../parts/search-text.ts';
import { operator } from '../../data/session.ts';
import type { ApiKey } from '../../types.ts';
import { KeyDialog, NewKeyDialog, path } from './api-key-dialog.tsx';

async function revoke({ id, name, user_email }: ApiKey, reload: () => Promise<void>): Promise<void> {
  const isConfirmed = await confirm({
    title: `Revoke ${name}?`,
    text: <p>Programs with this key of {user_email} lose access immediately. This cannot be undone.</p>,
    confirmLabel: 'Revoke key',
    isDangerous: true,
    action: async () => {
      await request('DELETE', `${path}/${id}`);
      await reload();
    },
  });
  if (isConfirmed) showToast(`API key ${name} revoked.`);
}

const isExpired = ({ expires_at }: ApiKey) => expires_at !== null && new Date(expires_at) <= new Date();

function KeyRow({ apiKey, onOpen, onRevoke }: { apiKey: ApiKey; onOpen: () => void; onRevoke: () => void }) {
  const { name, prefix, role, tenants, is_read_only, user_id, user_email, expires_at, last_used_at } = apiKey;
  return (
    <tr>
      <th scope="row">
        {user_id === operator.value?.id ? (
          <button type="button" class="link" onClick={onOpen}>
            {name}
          </button>
        ) : (
          name
        )}
        <small>
          <span class="code">{prefix}…</span> {user_email}
        </small>
      </th>
      <td>
        {roleNames[role]}
        <small>{is_read_only ? 'read only' : 'reads and writes'}</small>
      </td>
      <td class="wide-only">{tenants === null ? 'All' : tenants.map((school) => school.name).join(', ')}</td>
      <td class="wide-only">{last_used_at ? <Timestamp at={last_used_at} format="relative" /> : 'never'}</td>
      <td class="wide-only">
        {expires_at ? <Timestamp at={expires_at} /> : 'never'}{' '}
        {isExpired(apiKey) && <Badge value="expired" tone="bad" />}
      </td>
      <td class="number">
        <button type="button" class="button small-button warning" aria-label={`Revoke ${name}`} onClick={onRevoke}>
          Revoke
        </button>
      </td>
    </tr>
  );
}

/** The API keys of all operators. */
export function ApiKeysTab() {
  const params = Object.fromEntries(route.value.search);
  const { search = '', page = '1' } = params;
  const change = (next: Record<string, string | undefined>) => setSearch({ ...params, page: undefined, ...next });
  const [searchText, setSearchText] = useSearchText(search, (text) => change({ search: text }));
  const [opened, setOpened] = useState<ApiKey | 'new'>();
  const query = { search, page };
  const keys = useLoad(
    `api keys ${JSON.stringify(query)}`,
    (signal) => request<ApiKey[]>('GET', path, { query, signal }),
    { keepPrevious: true },
  );
  const close = () => setOpened(undefined);
  return (
    <>
      <Card isFlush>
        <div class="filters" role="search">
          <SearchBox
            label="Search API keys"
            placeholder="Name, key or email"
            value={searchText}
            onChange={setSearchText}
          />
          <button type="button" class="button primary" onClick={() => setOpened('new')}>
            <Icon name="plus" /> Create key
          </button>
        </div>
        <PagedList
          state={keys}
          lines={4}
          names={['key', 'keys']}
          onPage={(to) => change({ page: to?.toString() })}
          empty={<EmptyState title={search ? 'No matching keys' : 'No API keys yet'} />}
        >
          {(data) => (
            <table class="table">
              <caption class="hidden">API keys</caption>
              <thead>
                <tr>
                  <th scope="col">Key</th>
                  <th scope="col">Role</th>
                  <th scope="col" class="wide-only">
                    Schools
                  </th>
                  <th scope="col" class="wide-only">
                    Last used
                  </th>
                  <th scope="col" class="wide-only">
                    Expires
                  </th>
                  <th scope="col">
                    <span class="hidden">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {data.map((apiKey) => (
                  <KeyRow
                    key={apiKey.id}
                    apiKey={apiKey}
                    onOpen={() => setOpened(apiKey)}
                    onRevoke={() => void revoke(apiKey, keys.reload)}
                  />
                ))}
              </tbody>
            </table>
          )}
        </PagedList>
      </Card>
      {opened === 'new' ? (
        <NewKeyDialog onClose={close} onCreated={() => void keys.reload()} />
      ) : (
        opened && (
          <KeyDialog
            apiKey={opened}
            onClose={close}
            onSaved={() => {
              close();
              void keys.reload();
            }}
          />
        )
      )}
    </>
  );
}
