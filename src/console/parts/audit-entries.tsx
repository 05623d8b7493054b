import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { actionName, Timestamp } from './format.tsx';
import { Icon } from './icons.tsx';
import { href } from '../router.ts';
import type { AuditLog } from '../types.ts';
import { Fact } from './components.tsx';

/** Whether a text is a timestamp. The name of a school can start like one, so the whole text must match. */
const isTimestamp = (text: string) =>
  /^\d{4}-\d\d-\d\dT\d\d:\d\d[\d:.]*(Z|[+-]\d\d:\d\d)$/.test(text) && !Number.isNaN(Date.parse(text));

/** Displays any value of a record. */
export function Value({ value }: { value: unknown }): ComponentChildren {
  if (value === null || value === undefined || value === '') return <span class="nothing">empty</span>;
  if (typeof value === 'boolean') return <>{value ? 'yes' : 'no'}</>;
  if (typeof value === 'string')
    return isTimestamp(value) ? <Timestamp at={value} format="time" /> : <bdi>{value}</bdi>;
  if (typeof value === 'number') return <>{value}</>;
  if (Array.isArray(value) && value.every((item) => typeof item === 'string'))
    return value.length > 0 ? <>{value.join(', ')}</> : <span class="nothing">none</span>;
  if (typeof value !== 'object' || Array.isArray(value))
    return <code class="json">{JSON.stringify(value, null, 1)}</code>;
  const parts: [string, unknown][] = Object.entries(value);
  if (parts.length === 0) return <span class="nothing">none</span>;
  // A reference, such as the plan of a school: show its name.
  if ('name' in value && 'id' in value && parts.length === 2) return <bdi>{String(value.name)}</bdi>;
  return (
    <ul class="parts">
      {parts.map(([name, part]) => (
        <li key={name}>
          {name.replaceAll('_', ' ')}: <Value value={part} />
        </li>
      ))}
    </ul>
  );
}

/** The changed fields of an entry, before and after. */
export function ChangesTable({ changes }: { changes: AuditLog['changes'] }) {
  const fields = Object.entries(changes);
  if (fields.length === 0) return <p class="muted">No fields changed.</p>;
  return (
    <table class="changes">
      <thead>
        <tr>
          <th scope="col">Field</th>
          <th scope="col">Before</th>
          <th scope="col">After</th>
        </tr>
      </thead>
      <tbody>
        {fields.map(([name, { before, after }]) => (
          <tr key={name}>
            <th scope="row">{name.replaceAll('_', ' ')}</th>
            <td class="before">
              <Value value={before} />
            </td>
            <td class="after">
              <Value value={after} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Says in a line what an entry has changed. */
type Describe = (entry: AuditLog) => ComponentChildren;

function Entry({ entry, withSchool, describe }: { entry: AuditLog; withSchool: boolean; describe?: Describe }) {
  const [isOpen, setOpen] = useState(false);
  const { actor, impersonated, action, tenant_id, tenant_name, changes, ip, user_agent, request_id, created_at } =
    entry;
  const target = entry.target_type.replaceAll('_', ' ') + (entry.target_id === null ? '' : ` ${entry.target_id}`);
  const details = `entry-${entry.id}`;
  return (
    <li class={isOpen ? 'entry open' : 'entry'}>
      <div class="entry-line">
        <div class="entry-summary">
          <p class="entry-title">
            {actionName(action)}
            {withSchool && tenant_id !== null && (
              <>
                {' · '}
                <a href={href(`/schools/${tenant_id}`)}>{tenant_name ?? `School ${tenant_id}`}</a>
              </>
            )}
          </p>
          {describe && <p class="small">{describe(entry)}</p>}
          <p class="muted small">
            {actor.email ?? 'System'}
            {impersonated ? ` as ${impersonated.email}` : ''} · <Timestamp at={created_at} format="relative" />
          </p>
        </div>
        <button
          type="button"
          class="icon-button"
          aria-expanded={isOpen}
          aria-controls={details}
          aria-label={`Details: ${actionName(action)}`}
          onClick={() => setOpen(!isOpen)}
        >
          <Icon name={isOpen ? 'up' : 'down'} />
        </button>
      </div>
      <div id={details} hidden={!isOpen} class="entry-details">
        {isOpen && (
          <>
            <ChangesTable changes={changes} />
            <dl class="facts">
              <Fact label="Time">
                <Timestamp at={created_at} format="time" />
              </Fact>
              <dt>Action</dt>
              <dd class="code">{action}</dd>
              <Fact label="Target">{target}</Fact>
              <Fact label="IP address">
                {ip ?? 'unknown'} {user_agent && <span class="muted small">{user_agent}</span>}
              </Fact>
              <dt>Request ID</dt>
              <dd class="code">{request_id ?? 'none'}</dd>
            </dl>
          </>
        )}
      </div>
    </li>
  );
}

interface AuditEntriesProps {
  entries: AuditLog[];
  withSchool?: boolean;
  describe?: Describe;
}

/** Entries of the audit log. Each can be expanded to show the changed fields. */
export function AuditEntries({ entries, withSchool = true, ...props }: AuditEntriesProps) {
  return (
    <ul class="entries">
      {entries.map((entry) => (
        <Entry key={entry.id} entry={entry} withSchool={withSchool} {...props} />
      ))}
    </ul>
  );
}
