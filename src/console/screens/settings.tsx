import { useState } from 'preact/hooks';
import { confirm, Dialog, showToast } from '../dialogs.tsx';
import { formatAmount, featureName, featureNames, formatNumber } from '../format.tsx';
import {
  CheckboxField,
  Conflicts,
  type Form,
  FormError,
  SaveBar,
  TextField,
  useForm,
  useRecordForm,
} from '../forms.tsx';
import { type ApiResponse, request, idempotencyKeys } from '../api.ts';
import { Icon } from '../icons.tsx';
import { useLoad } from '../load.ts';
import { Card, EmptyState, PageHeader, AsyncContent } from '../components.tsx';
import { href, confirmLeave } from '../router.ts';
import { usePlans } from '../school-fields.tsx';
import type { Plan, Settings as NotificationSettings } from '../types.ts';

interface PlanFields {
  name: string;
  price_monthly: string;
  max_students: string;
  max_teachers: string;
  features: string[];
}

const labels: Record<keyof PlanFields, string> = {
  name: 'Name',
  price_monthly: 'Price per month',
  max_students: 'Maximum students',
  max_teachers: 'Maximum teachers',
  features: 'Features',
};
const emptyPlan: PlanFields = { name: '', price_monthly: '', max_students: '', max_teachers: '', features: [] };
const toForm = ({ name, price_monthly, max_students, max_teachers, features_json }: Plan): PlanFields => ({
  name,
  price_monthly: String(price_monthly),
  max_students: String(max_students),
  max_teachers: String(max_teachers),
  features: [...features_json.features].sort(),
});
const toNumber = (text: string) => (text.trim() === '' ? undefined : Number(text));
const toBody = ({ name, price_monthly, max_students, max_teachers, features }: Partial<PlanFields>) => ({
  name,
  price_monthly: price_monthly === undefined ? undefined : toNumber(price_monthly),
  max_students: max_students === undefined ? undefined : toNumber(max_students),
  max_teachers: max_teachers === undefined ? undefined : toNumber(max_teachers),
  features_json: features && { features },
});

interface PlanFormProps {
  form: Form<PlanFields>;
  conflicts?: Parameters<typeof Conflicts>[0]['conflicts'];
  onClose: () => void;
  label: string;
  note?: string;
}

function PlanForm({ form, conflicts = [], onClose, label, note }: PlanFormProps) {
  const { value, set, error } = form;
  const field = (name: Exclude<keyof PlanFields, 'features'>) => ({
    label: labels[name],
    name,
    isRequired: true,
    value: value[name],
    error: error(name),
    onChange: (to: string) => set({ [name]: to }),
  });
  return (
    <form ref={form.ref} onSubmit={form.submit} noValidate>
      <div class="dialog-body">
        <FormError form={form} fields={['name', 'price_monthly', 'max_students', 'max_teachers']} />
        <Conflicts conflicts={conflicts} />
        {note && <p class="muted">{note}</p>}
        <div class="pair">
          <TextField {...field('name')} input={{ autocomplete: 'off' }} />
          <TextField
            {...field('price_monthly')}
            input={{ type: 'number', min: '0', step: '0.01', inputMode: 'decimal' }}
          />
        </div>
        <div class="pair">
          <TextField
            {...field('max_students')}
            hint="Active only."
            input={{ type: 'number', min: '0', inputMode: 'numeric' }}
          />
          <TextField
            {...field('max_teachers')}
            hint="Active only."
            input={{ type: 'number', min: '0', inputMode: 'numeric' }}
          />
        </div>
        <fieldset class="form tight">
          <legend class="legend">Features</legend>
          {featureNames.map((name) => (
            <CheckboxField
              key={name}
              label={featureName(name)}
              isOn={value.features.includes(name)}
              onChange={(isOn) =>
                set({
                  features: (isOn
                    ? [...value.features, name]
                    : value.features.filter((other) => other !== name)
                  ).sort(),
                })
              }
            />
          ))}
        </fieldset>
      </div>
      <div class="dialog-foot">
        <button type="button" class="button" onClick={onClose}>
          Cancel
        </button>
        <button class="button primary" disabled={form.isBusy}>
          {form.isBusy ? 'Saving…' : label}
        </button>
      </div>
    </form>
  );
}

interface PlanDialogProps {
  onClose: () => void;
  onSaved: (text: string) => void;
}

function NewPlan({ onClose, onSaved }: PlanDialogProps) {
  const [makeKey] = useState(idempotencyKeys);
  const form = useForm(emptyPlan, async (value) => {
    const body = toBody(value);
    await request<Plan>('POST', '/api/platform/plans', { body, idempotencyKey: makeKey(body) });
    onSaved(`Plan ${value.name} created.`);
  });
  return <PlanForm form={form} onClose={onClose} label="Create plan" />;
}

function EditPlan({
  response,
  onClose,
  onSaved,
}: PlanDialogProps & { response: Pick<ApiResponse<Plan>, 'data' | 'etag'> }) {
  const { id, name, tenant_count } = response.data;
  const form = useRecordForm<Plan, PlanFields>({
    path: `/api/platform/plans/${id}`,
    response,
    toForm,
    toBody,
    labels,
    onSaved: () => onSaved(`Plan ${name} saved.`),
  });
  const note =
    tenant_count === 0
      ? {}
      : {
          note: `${formatNumber(tenant_count)} ${tenant_count === 1 ? 'school uses' : 'schools use'} this plan. Changes apply immediately.`,
        };
  return <PlanForm form={form} conflicts={form.conflicts} onClose={onClose} label="Save changes" {...note} />;
}

function PlanDialog({ plan, ...props }: PlanDialogProps & { plan: Plan | 'new' }) {
  const close = async () => {
    if (await confirmLeave()) props.onClose();
  };
  const path = plan === 'new' ? '' : `/api/platform/plans/${plan.id}`;
  const read = useLoad(
    `plan ${path}`,
    async (signal) => (plan === 'new' ? undefined : await request<Plan>('GET', path, { signal })),
    { isUncached: true },
  );
  return (
    <Dialog title={plan === 'new' ? 'Create plan' : plan.name} isWide onClose={() => void close()}>
      {plan === 'new' ? (
        <NewPlan {...props} onClose={() => void close()} />
      ) : (
        <AsyncContent state={read}>
          {(response) => response && <EditPlan {...props} response={response} onClose={() => void close()} />}
        </AsyncContent>
      )}
    </Dialog>
  );
}

function PlansTab() {
  const plans = usePlans();
  const [openPlan, setOpenPlan] = useState<Plan | 'new'>();
  const remove = async (plan: Plan) => {
    const isConfirmed = await confirm({
      title: `Delete plan ${plan.name}?`,
      text: <p>The plan can no longer be assigned to schools.</p>,
      confirmLabel: 'Delete plan',
      isDangerous: true,
      action: async () => {
        await request('DELETE', `/api/platform/plans/${plan.id}`);
        await plans.reload();
      },
    });
    if (isConfirmed) showToast(`Plan ${plan.name} deleted.`);
  };
  return (
    <>
      <Card
        title="Plans"
        isFlush
        actions={
          <button type="button" class="button small-button" onClick={() => setOpenPlan('new')}>
            <Icon name="plus" /> Create plan
          </button>
        }
      >
        <AsyncContent state={plans}>
          {(data) =>
            data.length === 0 ? (
              <EmptyState title="No plans yet" />
            ) : (
              <table class="table">
                <caption class="hidden">Plans</caption>
                <thead>
                  <tr>
                    <th scope="col">Plan</th>
                    <th scope="col" class="number">
                      Per month
                    </th>
                    <th scope="col" class="number wide-only">
                      Students
                    </th>
                    <th scope="col" class="number wide-only">
                      Teachers
                    </th>
                    <th scope="col" class="number wide-only">
                      Schools
                    </th>
                    <th scope="col">
                      <span class="hidden">Actions</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {data.map((plan) => (
                    <tr key={plan.id} class="row-link">
                      <th scope="row">
                        <button type="button" class="link" onClick={() => setOpenPlan(plan)}>
                          {plan.name}
                        </button>
                        <small>{plan.features_json.features.map(featureName).join(', ') || 'No features'}</small>
                      </th>
                      <td class="number">{formatAmount(plan.price_monthly)}</td>
                      <td class="number wide-only">{formatNumber(plan.max_students)}</td>
                      <td class="number wide-only">{formatNumber(plan.max_teachers)}</td>
                      <td class="number wide-only above">
                        {plan.tenant_count > 0 ? (
                          <a href={href(`/schools?plan_id=${plan.id}`)}>{formatNumber(plan.tenant_count)}</a>
                        ) : (
                          0
                        )}
                      </td>
                      <td class="number">
                        {plan.tenant_count > 0 ? (
                          <span class="muted small">in use</span>
                        ) : (
                          <button
                            type="button"
                            class="button small-button warning"
                            aria-label={`Delete plan ${plan.name}`}
                            onClick={() => void remove(plan)}
                          >
                            Delete
                          </button>
                        )}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            )
          }
        </AsyncContent>
      </Card>
      {openPlan && (
        <PlanDialog
          plan={openPlan}
          onClose={() => setOpenPlan(undefined)}
          onSaved={(text) => {
            showToast(text);
            setOpenPlan(undefined);
            void plans.reload();
          }}
        />
      )}
    </>
  );
}

const settingLabels = {
  in_app: 'In-app',
  push: 'Push',
  email: 'Email',
  sender_name: 'Email sender name',
  has_quiet_hours: 'Quiet hours',
  start: 'Quiet hours start',
  end: 'Quiet hours end',
  pushes: 'Push messages per day',
  emails: 'Emails per day',
};

const toSettingFields = ({ channels, sender_name, quiet_hours, limits }: NotificationSettings) => ({
  ...channels,
  sender_name: sender_name ?? '',
  has_quiet_hours: quiet_hours !== null,
  start: quiet_hours?.start ?? '21:00',
  end: quiet_hours?.end ?? '07:00',
  pushes: limits.push_per_user_per_day === null ? '' : String(limits.push_per_user_per_day),
  emails: limits.emails_per_user_per_day === null ? '' : String(limits.emails_per_user_per_day),
});
type SettingFields = ReturnType<typeof toSettingFields>;

function SettingsForm({
  response,
  onSaved,
}: {
  response: { data: NotificationSettings; etag: string | undefined };
  onSaved: (response: ApiResponse<NotificationSettings>) => void;
}) {
  const form = useRecordForm<NotificationSettings, SettingFields>({
    path: '/api/platform/notification-settings',
    response,
    toForm: toSettingFields,
    labels: settingLabels,
    onSaved,
    toBody: ({ in_app, push, email, sender_name, has_quiet_hours, start, end, pushes, emails }, all) => ({
      channels: { in_app, push, email },
      sender_name: sender_name === '' ? null : sender_name,
      ...(has_quiet_hours === undefined && start === undefined && end === undefined
        ? {}
        : { quiet_hours: all.has_quiet_hours ? { start: all.start, end: all.end } : null }),
      limits: {
        push_per_user_per_day: pushes === undefined ? undefined : (toNumber(pushes) ?? null),
        emails_per_user_per_day: emails === undefined ? undefined : (toNumber(emails) ?? null),
      },
    }),
  });
  const { value, set, error } = form;
  const fieldPaths = [
    'sender_name',
    'quiet_hours.start',
    'quiet_hours.end',
    'limits.push_per_user_per_day',
    'limits.emails_per_user_per_day',
  ];
  return (
    <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
      <FormError form={form} fields={fieldPaths} />
      <Conflicts conflicts={form.conflicts} />
      <Card title="Channels">
        <div class="form tight">
          <CheckboxField
            label="In-app"
            hint="The notification list of each user."
            isOn={value.in_app}
            onChange={(in_app) => set({ in_app })}
          />
          <CheckboxField
            label="Push"
            hint="Push messages to phones and browsers."
            isOn={value.push}
            onChange={(push) => set({ push })}
          />
          <CheckboxField
            label="Email"
            hint="Notifications only. Password emails are always sent."
            isOn={value.email}
            onChange={(email) => set({ email })}
          />
          <p class="hint">A disabled channel is off for every school.</p>
        </div>
      </Card>
      <Card title="Email">
        <TextField
          label="Sender name"
          name="sender_name"
          value={value.sender_name}
          error={error('sender_name')}
          hint={`Emails are sent from “Green Valley School${value.sender_name ? ` via ${value.sender_name}` : ''}”.`}
          onChange={(sender_name) => set({ sender_name })}
        />
      </Card>
      <Card title="Quiet hours">
        <div class="form">
          <CheckboxField
            label="Hold push messages and emails during quiet hours"
            hint="In the time zone of each school. They are sent when the quiet hours end."
            isOn={value.has_quiet_hours}
            onChange={(has_quiet_hours) => set({ has_quiet_hours })}
          />
          {value.has_quiet_hours && (
            <div class="pair">
              <TextField
                label="Start"
                name="start"
                isRequired
                value={value.start}
                error={error('quiet_hours.start')}
                onChange={(start) => set({ start })}
                input={{ type: 'time' }}
              />
              <TextField
                label="End"
                name="end"
                isRequired
                value={value.end}
                error={error('quiet_hours.end')}
                onChange={(end) => set({ end })}
                input={{ type: 'time' }}
              />
            </div>
          )}
        </div>
      </Card>
      <Card title="Limits">
        <div class="form">
          <p class="hint">
            Per day, in the school’s time zone. Notifications over the limit are shown in-app only. Leave empty for no
            limit.
          </p>
          <div class="pair">
            <TextField
              label="Push messages per device"
              name="pushes"
              value={value.pushes}
              error={error('limits.push_per_user_per_day')}
              onChange={(pushes) => set({ pushes })}
              input={{ type: 'number', min: '0', inputMode: 'numeric' }}
            />
            <TextField
              label="Emails per address"
              name="emails"
              value={value.emails}
              error={error('limits.emails_per_user_per_day')}
              onChange={(emails) => set({ emails })}
              input={{ type: 'number', min: '0', inputMode: 'numeric' }}
            />
          </div>
        </div>
      </Card>
      <SaveBar form={form} />
    </form>
  );
}

function NotificationSettingsTab() {
  const settings = useLoad(
    'notification settings',
    (signal) => request<NotificationSettings>('GET', '/api/platform/notification-settings', { signal }),
    {
      isUncached: true,
    },
  );
  return (
    <div class="narrow">
      <AsyncContent state={settings} lines={8}>
        {(response) => (
          <SettingsForm
            response={response}
            onSaved={(saved) => {
              showToast('Notification settings saved.');
              settings.set(saved);
            }}
          />
        )}
      </AsyncContent>
    </div>
  );
}

export function Settings({ part = 'plans' }: Record<string, string>) {
  const tabs = [
    ['plans', 'Plans'],
    ['notifications', 'Notifications'],
  ] as const;
  return (
    <>
      <PageHeader title="Settings" lead="These settings apply to all schools." />
      <nav class="tabs" aria-label="Settings">
        {tabs.map(([name, label]) => (
          <a key={name} href={href(`/settings/${name}`)} aria-current={part === name ? 'page' : undefined}>
            {label}
          </a>
        ))}
      </nav>
      {part === 'notifications' ? <NotificationSettingsTab /> : <PlansTab />}
    </>
  );
}
