import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { actionName, Moment } from './format.tsx';
import { Icon } from './icons.tsx';
import { href } from './router.ts';
import type { AuditLog } from './types.ts';

/** A name can begin like one. */
const isMoment = (text: string) =>
  /^\d{4}-\d\d-\d\dT\d\d:\d\d[\d:.]*(Z|[+-]\d\d:\d\d)$/.test(text) && !Number.isNaN(Date.parse(text));

/** Any value of a record, to be read. */
export function Value({ value }: { value: unknown }): ComponentChildren {
  if (value === null || value === undefined || value === '') return <span class="nothing">nothing</span>;
  if (typeof value === 'boolean') return <>{value ? 'yes' : 'no'}</>;
  if (typeof value === 'string') return isMoment(value) ? <Moment at={value} form="time" /> : <bdi>{value}</bdi>;
  if (typeof value === 'number') return <>{value}</>;
  if (Array.isArray(value) && value.every((one) => typeof one === 'string'))
    return value.length > 0 ? <>{value.join(', ')}</> : <span class="nothing">none</span>;
  if (typeof value !== 'object' || Array.isArray(value))
    return <code class="json">{JSON.stringify(value, null, 1)}</code>;
  const parts: [string, unknown][] = Object.entries(value);
  if (parts.length === 0) return <span class="nothing">none</span>;
  // A reference, a plan for example, is known by its name.
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

/** The fields that an entry changed, before and after. */
export function Changes({ changes }: { changes: AuditLog['changes'] }) {
  const fields = Object.entries(changes);
  if (fields.length === 0) return <p class="muted">No field changed.</p>;
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

function Entry({ entry, withSchool }: { entry: AuditLog; withSchool: boolean }) {
  const [isOpen, setOpen] = useState(false);
  const { actor, impersonated, action, tenant_id, tenant_name, changes, ip, user_agent, request_id, created_at } =
    entry;
  const details = `entry-${entry.id}`;
  return (
    <li class={isOpen ? 'entry open' : 'entry'}>
      <div class="entry-line">
        <div class="entry-what">
          <p class="entry-title">
            {actionName(action)}
            {withSchool && tenant_id !== null && (
              <>
                {' · '}
                <a href={href(`/schools/${tenant_id}`)}>{tenant_name ?? `School ${tenant_id}`}</a>
              </>
            )}
          </p>
          <p class="muted small">
            {actor.email ?? 'The service'}
            {impersonated ? ` as ${impersonated.email}` : ''} · <Moment at={created_at} form="ago" />
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
            <Changes changes={changes} />
            <dl class="facts">
              <dt>When</dt>
              <dd>
                <Moment at={created_at} form="time" />
              </dd>
              <dt>Action</dt>
              <dd class="code">{action}</dd>
              <dt>From</dt>
              <dd>
                {ip ?? 'unknown'} {user_agent && <span class="muted small">{user_agent}</span>}
              </dd>
              <dt>Request</dt>
              <dd class="code">{request_id ?? 'none'}</dd>
            </dl>
          </>
        )}
      </div>
    </li>
  );
}

/** Entries of the audit trail; each opens to what changed. */
export function Entries({ entries, withSchool = true }: { entries: AuditLog[]; withSchool?: boolean }) {
  return (
    <ul class="entries">
      {entries.map((entry) => (
        <Entry key={entry.id} entry={entry} withSchool={withSchool} />
      ))}
    </ul>
  );
}
