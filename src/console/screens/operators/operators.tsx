import { useState } from 'preact/hooks';
import { roleNames } from '../../parts/access-fields.tsx';
import { Badge, Card, PageHeader, Segments } from '../../parts/components.tsx';
import { showToast } from '../../parts/dialogs.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { ListFilters, PagedList, useListScreen } from '../../parts/list.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import type { Operator } from '../../types.ts';
import { InviteDialog } from './invite-dialog.tsx';
import { isOwn, nameOf, OperatorDialog } from './operator-dialog.tsx';
import { Button } from '../../parts/button.tsx';

const roles = [
  ['', 'All'],
  ['admin', 'Admins'],
  ['analyst', 'Analysts'],
] as const;

function State({ operator: { is_active, is_invited } }: { operator: Operator }) {
  if (!is_active) return <Badge value="disabled" tone="bad" />;
  return is_invited ? <Badge value="invited" tone="info" /> : <Badge value="active" />;
}

const schoolsOf = ({ role, tenants }: Operator) =>
  role === 'admin' || tenants === null ? 'All' : tenants.map(({ name }) => name).join(', ');

const columns = (onOpen: (operator: Operator) => void): Column<Operator>[] => [
  {
    label: 'Operator',
    cell: (operator) => (
      <>
        <Button label={nameOf(operator)} kind="link" onClick={() => onOpen(operator)} />
        <small>
          {operator.email}
          {isOwn(operator) && ' (you)'}
        </small>
      </>
    ),
  },
  { label: 'Role', isNarrow: true, cell: ({ role }) => roleNames[role] },
  { label: 'Schools', cell: schoolsOf },
  { label: 'Status', isNarrow: true, cell: (operator) => <State operator={operator} /> },
  { label: 'Second factor', cell: ({ has_second_factor }) => (has_second_factor ? 'On' : 'Off') },
  {
    label: 'Last login',
    cell: ({ last_login_at }) => (last_login_at ? <Timestamp at={last_login_at} format="relative" /> : 'never'),
  },
];

export function Operators() {
  const list = useListScreen<Operator, 'search' | 'role'>('/api/platform/operators', { filters: ['search', 'role'] });
  const [opened, setOpened] = useState<Operator | 'new'>();
  const close = () => setOpened(undefined);
  const reload = () => {
    close();
    void list.reload();
  };
  return (
    <>
      <PageHeader
        title="Operators"
        lead="The staff of the platform. Admins use this console; analysts query figures."
        actions={<Button icon="plus" label="Invite operator" kind="primary" onClick={() => setOpened('new')} />}
      />
      <Card isFlush>
        <ListFilters list={list} label="Search operators" placeholder="Name or email">
          <Segments
            legend="Role"
            name="role"
            options={roles}
            value={list.filters.role}
            onChange={(role) => list.change({ role })}
          />
        </ListFilters>
        <PagedList list={list} names={['operator', 'operators']} empty="No matching operators">
          {(operators) => (
            <Table caption="Operators" items={operators} keyOf={({ id }) => id} columns={columns(setOpened)} isLinked />
          )}
        </PagedList>
      </Card>
      {opened === 'new' ? (
        <InviteDialog
          onClose={close}
          onInvited={({ email }) => {
            reload();
            showToast(`Invitation sent to ${email}.`);
          }}
        />
      ) : (
        opened && <OperatorDialog operator={opened} onClose={close} onSaved={reload} />
      )}
    </>
  );
}
