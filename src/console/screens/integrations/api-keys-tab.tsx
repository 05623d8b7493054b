import { useState } from 'preact/hooks';
import { request } from '../../data/api.ts';
import { operator } from '../../data/session.ts';
import { roleNames } from '../../parts/access-fields.tsx';
import { Badge, Card } from '../../parts/components.tsx';
import { confirm } from '../../parts/dialogs.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { ListFilters, PagedList, useListScreen } from '../../parts/list.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import type { ApiKey } from '../../types.ts';
import { KeyDialog, NewKeyDialog, path } from './api-key-dialog.tsx';
import { Button } from '../../parts/button.tsx';

const revoke = ({ id, name, user_email }: ApiKey, reload: () => Promise<void>) =>
  confirm({
    title: `Revoke ${name}?`,
    text: <p>Programs with this key of {user_email} lose access immediately. This cannot be undone.</p>,
    confirmLabel: 'Revoke key',
    isDangerous: true,
    action: () => request('DELETE', `${path}/${id}`),
    reload,
    done: `API key ${name} revoked.`,
  });

const isExpired = ({ expires_at }: ApiKey) => expires_at !== null && new Date(expires_at) <= new Date();

const columns = (onOpen: (apiKey: ApiKey) => void): Column<ApiKey>[] => [
  {
    label: 'Key',
    cell: (apiKey) => (
      <>
        {apiKey.user_id === operator.value?.id ? (
          <Button label={apiKey.name} kind="link" onClick={() => onOpen(apiKey)} />
        ) : (
          apiKey.name
        )}
        <small>
          <span class="code">{apiKey.prefix}…</span> {apiKey.user_email}
        </small>
      </>
    ),
  },
  {
    label: 'Role',
    isNarrow: true,
    cell: ({ role, is_read_only }) => (
      <>
        {roleNames[role]}
        <small>{is_read_only ? 'read only' : 'reads and writes'}</small>
      </>
    ),
  },
  { label: 'Schools', cell: ({ tenants }) => tenants?.map(({ name }) => name).join(', ') ?? 'All' },
  {
    label: 'Last used',
    cell: ({ last_used_at }) => (last_used_at ? <Timestamp at={last_used_at} format="relative" /> : 'never'),
  },
  {
    label: 'Expires',
    cell: (apiKey) => (
      <>
        {apiKey.expires_at ? <Timestamp at={apiKey.expires_at} /> : 'never'}{' '}
        {isExpired(apiKey) && <Badge value="expired" tone="bad" />}
      </>
    ),
  },
];

/** The API keys of all operators. */
export function ApiKeysTab() {
  const list = useListScreen<ApiKey, 'search'>(path, { filters: ['search'] });
  const [opened, setOpened] = useState<ApiKey | 'new'>();
  const close = () => setOpened(undefined);
  return (
    <>
      <Card isFlush>
        <ListFilters list={list} label="Search API keys" placeholder="Name, key or email">
          <Button icon="plus" label="Create key" kind="primary" onClick={() => setOpened('new')} />
        </ListFilters>
        <PagedList list={list} names={['key', 'keys']} empty={list.isFiltered ? 'No matching keys' : 'No API keys yet'}>
          {(keys) => (
            <Table
              caption="API keys"
              items={keys}
              keyOf={({ id }) => id}
              columns={columns(setOpened)}
              actions={(apiKey) => (
                <Button
                  label="Revoke"
                  kind="warning"
                  isSmall
                  name={`Revoke ${apiKey.name}`}
                  onClick={() => void revoke(apiKey, list.reload)}
                />
              )}
            />
          )}
        </PagedList>
      </Card>
      {opened === 'new' && <NewKeyDialog onClose={close} onCreated={() => void list.reload()} />}
      {opened && opened !== 'new' && (
        <KeyDialog
          apiKey={opened}
          onClose={close}
          onSaved={() => {
            close();
            void list.reload();
          }}
        />
      )}
    </>
  );
}
