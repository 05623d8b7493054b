import { Badge } from '../../parts/components.tsx';
import { Dialog } from '../../parts/dialogs.tsx';
import { formatNumber, Timestamp } from '../../parts/format.tsx';
import { CheckboxField } from '../../parts/fields.tsx';
import type { Column } from '../../parts/table.tsx';
import { href } from '../../router.ts';
import type { Tenant } from '../../types.ts';
import { Button } from '../../parts/button.tsx';

const time = (at: string | null) => (at === null ? '–' : <Timestamp at={at} />);

export const nameColumn: Column<Tenant> = {
  label: 'School',
  sort: 'name',
  cell: ({ id, name, subdomain, contact_email }) => (
    <>
      <a href={href(`/schools/${id}`)}>{name}</a>
      <small>
        {subdomain} · {contact_email}
      </small>
    </>
  ),
};

/** The columns of the list of schools, besides the name. */
export const columns = {
  status: { label: 'Status', cell: ({ status }) => <Badge value={status} />, sort: 'status', isNarrow: true },
  plan: { label: 'Plan', cell: ({ plan }) => plan.name, sort: 'plan' },
  subscription: {
    label: 'Subscription',
    cell: ({ subscription }) => (subscription.status === null ? '–' : <Badge value={subscription.status} />),
  },
  period_end: { label: 'Period end', cell: ({ subscription }) => time(subscription.current_period_end) },
  trial_ends_at: { label: 'Trial end', cell: ({ trial_ends_at }) => time(trial_ends_at), sort: 'trial_ends_at' },
  students: {
    label: 'Students',
    cell: ({ stats }) => formatNumber(stats.total_students),
    sort: 'total_students',
    initialOrder: 'desc',
    isNumber: true,
  },
  teachers: { label: 'Teachers', cell: ({ stats }) => formatNumber(stats.total_teachers), isNumber: true },
  classes: { label: 'Classes', cell: ({ stats }) => formatNumber(stats.total_classes), isNumber: true },
  time_zone: { label: 'Time zone', cell: ({ time_zone }) => time_zone },
  created_at: {
    label: 'Created',
    cell: ({ created_at }) => time(created_at),
    sort: 'created_at',
    initialOrder: 'desc',
  },
} satisfies Record<string, Column<Tenant>> as Record<string, Column<Tenant>>;

export const defaultColumns = ['status', 'plan', 'students', 'created_at'];

interface ColumnsDialogProps {
  chosen: string[];
  onChange: (chosen: string[]) => void;
  onClose: () => void;
}

/** Chooses the columns of the list. A change is visible at once. */
export function ColumnsDialog({ chosen, onChange, onClose }: ColumnsDialogProps) {
  // In the order of the table, not of the clicks.
  const toggle = (name: string, isOn: boolean) =>
    onChange(Object.keys(columns).filter((other) => (other === name ? isOn : chosen.includes(other))));
  return (
    <Dialog title="Columns" onClose={onClose}>
      <div class="dialog-body">
        <fieldset class="form tight">
          <legend class="legend">Shown besides the name</legend>
          {Object.entries(columns).map(([name, { label }]) => (
            <CheckboxField
              key={name}
              label={label}
              isOn={chosen.includes(name)}
              onChange={(isOn) => toggle(name, isOn)}
            />
          ))}
        </fieldset>
      </div>
      <div class="dialog-foot">
        <Button label="Reset" onClick={() => onChange(defaultColumns)} />
        <Button label="Done" kind="primary" onClick={onClose} />
      </div>
    </Dialog>
  );
}
