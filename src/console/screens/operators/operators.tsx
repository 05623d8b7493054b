import { useState } from 'preact/hooks';
import { request } from '../../data/api.ts';
import { Badge, Card, EmptyState, PagedList, PageHeader, SearchBox } from '../../parts/components.tsx';
import { showToast } from '../../parts/dialogs.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { Icon } from '../../parts/icons.tsx';
import { useLoad } from '../../data/load.ts';
import { route, setSearch } from '../../router.ts';
import { useSearchText } from '../../parts/search-text.ts';
import type { Operator } from '../../types.ts';
import { roleNames } from '../../parts/access-fields.tsx';
import { InviteDialog } from './invite-dialog.tsx';
import { isOwn, nameOf, OperatorDialog } from './operator-dialog.tsx';

const filters = [
  ['', 'All'],
  ['admin', 'Admins'],
  ['analyst', 'Analysts'],
] as const;

function RoleFilter({ role, onChange }: { role: string; onChange: (role: string) => void }) {
  return (
    <fieldset class="segments">
      <legend class="hidden">Role</legend>
      {filters.map(([value, label]) => (
        <label key={value}>
          <input type="radio" name="role" checked={role === value} onChange={() => onChange(value)} />
          <span>{label}</span>
        </label>
      ))}
    </fieldset>
  );
}

function State({ operator: { is_active, is_invited } }: { operator: Operator }) {
  if (!is_active) return <Badge value="disabled" tone="bad" />;
  return is_invited ? <Badge value="invited" tone="info" /> : <Badge value="active" />;
}

const schoolsOf = ({ role, tenants }: Operator) =>
  role === 'admin' || tenants === null ? 'All' : tenants.map(({ name }) => name).join(', ');

function OperatorTable({ operators, onOpen }: { operators: Operator[]; onOpen: (operator: Operator) => void }) {
  return (
    <table class="table">
      <caption class="hidden">Operators</caption>
      <thead>
        <tr>
          <th scope="col">Operator</th>
          <th scope="col">Role</th>
          <th scope="col" class="wide-only">
            Schools
          </th>
          <th scope="col">Status</th>
          <th scope="col" class="wide-only">
            Second factor
          </th>
          <th scope="col" class="wide-only">
            Last login
          </th>
        </tr>
      </thead>
      <tbody>
        {operators.map((operator) => (
          <tr key={operator.id} class="row-link">
            <th scope="row">
              <button type="button" class="link" onClick={() => onOpen(operator)}>
                {nameOf(operator)}
              </button>
              <small>
                {operator.email}
                {isOwn(operator) && ' (you)'}
              </small>
            </th>
            <td>{roleNames[operator.role]}</td>
            <td class="wide-only">{schoolsOf(operator)}</td>
            <td>
              <State operator={operator} />
            </td>
            <td class="wide-only">{operator.has_second_factor ? 'On' : 'Off'}</td>
            <td class="wide-only">
              {operator.last_login_at ? <Timestamp at={operator.last_login_at} format="relative" /> : 'never'}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function Operators() {
  const params = Object.fromEntries(route.value.search);
  const { search = '', role = '', page = '1' } = params;
  const change = (next: Record<string, string | undefined>) => setSearch({ ...params, page: undefined, ...next });
  const [searchText, setSearchText] = useSearchText(search, (text) => change({ search: text }));
  const [opened, setOpened] = useState<Operator | 'new'>();
  const query = { search, role, page };
  const operators = useLoad(
    `operators ${JSON.stringify(query)}`,
    (signal) => request<Operator[]>('GET', '/api/platform/operators', { query, signal }),
    { keepPrevious: true },
  );
  const close = () => setOpened(undefined);
  const reload = () => {
    close();
    void operators.reload();
  };
  return (
    <>
      <PageHeader
        title="Operators"
        lead="The staff of the platform. Admins use this console; analysts query figures."
        actions={
          <button type="button" class="button primary" onClick={() => setOpened('new')}>
            <Icon name="plus" /> Invite operator
          </button>
        }
      />
      <Card isFlush>
        <div class="filters" role="search">
          <SearchBox label="Search operators" placeholder="Name or email" value={searchText} onChange={setSearchText} />
          <RoleFilter role={role} onChange={(to) => change({ role: to })} />
        </div>
        <PagedList
          state={operators}
          lines={4}
          names={['operator', 'operators']}
          onPage={(to) => change({ page: to?.toString() })}
          empty={<EmptyState title="No matching operators" />}
        >
          {(data) => <OperatorTable operators={data} onOpen={setOpened} />}
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
