import { useState } from 'preact/hooks';
import { confirm, Dialog, say } from '../dialogs.tsx';
import { amount, featureName, featureNames, number } from '../format.tsx';
import { Check, Conflicts, type Form, FormProblem, SaveBar, Text, useForm, useRecordForm } from '../forms.tsx';
import { type Answer, ask, idempotencyKeys } from '../http.ts';
import { Icon } from '../icons.tsx';
import { useLoad } from '../load.ts';
import { Card, Empty, Head, Show } from '../parts.tsx';
import { href, mayLeave } from '../router.ts';
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
  price_monthly: 'Price a month',
  max_students: 'Students',
  max_teachers: 'Teachers',
  features: 'Features',
};
const empty: PlanFields = { name: '', price_monthly: '', max_students: '', max_teachers: '', features: [] };
const toForm = ({ name, price_monthly, max_students, max_teachers, features_json }: Plan): PlanFields => ({
  name,
  price_monthly: String(price_monthly),
  max_students: String(max_students),
  max_teachers: String(max_teachers),
  features: [...features_json.features].sort(),
});
const numeric = (text: string) => (text.trim() === '' ? undefined : Number(text));
const toBody = ({ name, price_monthly, max_students, max_teachers, features }: Partial<PlanFields>) => ({
  name,
  price_monthly: price_monthly === undefined ? undefined : numeric(price_monthly),
  max_students: max_students === undefined ? undefined : numeric(max_students),
  max_teachers: max_teachers === undefined ? undefined : numeric(max_teachers),
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
  const text = (name: Exclude<keyof PlanFields, 'features'>) => ({
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
        <FormProblem form={form} fields={['name', 'price_monthly', 'max_students', 'max_teachers']} />
        <Conflicts conflicts={conflicts} />
        {note && <p class="muted">{note}</p>}
        <div class="pair">
          <Text {...text('name')} input={{ autocomplete: 'off' }} />
          <Text {...text('price_monthly')} input={{ type: 'number', min: '0', step: '0.01', inputMode: 'decimal' }} />
        </div>
        <div class="pair">
          <Text
            {...text('max_students')}
            hint="At most, active ones."
            input={{ type: 'number', min: '0', inputMode: 'numeric' }}
          />
          <Text
            {...text('max_teachers')}
            hint="At most, active ones."
            input={{ type: 'number', min: '0', inputMode: 'numeric' }}
          />
        </div>
        <fieldset class="form tight">
          <legend class="legend">Features</legend>
          {featureNames.map((name) => (
            <Check
              key={name}
              label={featureName(name)}
              isOn={value.features.includes(name)}
              onChange={(isOn) =>
                set({
                  features: (isOn ? [...value.features, name] : value.features.filter((one) => one !== name)).sort(),
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
  const form = useForm(empty, async (value) => {
    const body = toBody(value);
    await ask<Plan>('POST', '/api/platform/plans', { body, idempotencyKey: makeKey(body) });
    onSaved(`The plan ${value.name} was created.`);
  });
  return <PlanForm form={form} onClose={onClose} label="Create plan" />;
}

function EditPlan({ answer, onClose, onSaved }: PlanDialogProps & { answer: Pick<Answer<Plan>, 'data' | 'etag'> }) {
  const { id, name, tenant_count } = answer.data;
  const form = useRecordForm<Plan, PlanFields>({
    path: `/api/platform/plans/${id}`,
    answer,
    toForm,
    toBody,
    labels,
    onSaved: () => onSaved(`The plan ${name} is changed.`),
  });
  const note =
    tenant_count === 0
      ? {}
      : {
          note: `${number(tenant_count)} ${tenant_count === 1 ? 'school is' : 'schools are'} on this plan: the change holds for ${tenant_count === 1 ? 'it' : 'them'} at once.`,
        };
  return <PlanForm form={form} conflicts={form.conflicts} onClose={onClose} label="Save changes" {...note} />;
}

function PlanDialog({ plan, ...props }: PlanDialogProps & { plan: Plan | 'new' }) {
  const close = async () => {
    if (await mayLeave()) props.onClose();
  };
  const path = plan === 'new' ? '' : `/api/platform/plans/${plan.id}`;
  const read = useLoad(
    `plan ${path}`,
    async (signal) => (plan === 'new' ? undefined : await ask<Plan>('GET', path, { signal })),
    { isFresh: true },
  );
  return (
    <Dialog title={plan === 'new' ? 'Create plan' : plan.name} isWide onClose={() => void close()}>
      {plan === 'new' ? (
        <NewPlan {...props} onClose={() => void close()} />
      ) : (
        <Show what={read}>
          {(answer) => answer && <EditPlan {...props} answer={answer} onClose={() => void close()} />}
        </Show>
      )}
    </Dialog>
  );
}

function Plans() {
  const plans = usePlans();
  const [open, setOpen] = useState<Plan | 'new'>();
  const remove = async (plan: Plan) => {
    const isDone = await confirm({
      title: `Delete the plan ${plan.name}?`,
      text: <p>No school can be put on it any more.</p>,
      action: 'Delete plan',
      isDangerous: true,
      work: async () => {
        await ask('DELETE', `/api/platform/plans/${plan.id}`);
        await plans.reload();
      },
    });
    if (isDone) say(`The plan ${plan.name} is deleted.`);
  };
  return (
    <>
      <Card
        title="Plans"
        isFlush
        actions={
          <button type="button" class="button small-button" onClick={() => setOpen('new')}>
            <Icon name="plus" /> Create plan
          </button>
        }
      >
        <Show what={plans}>
          {(data) =>
            data.length === 0 ? (
              <Empty title="There is no plan yet." />
            ) : (
              <table class="table">
                <caption class="hidden">Plans</caption>
                <thead>
                  <tr>
                    <th scope="col">Plan</th>
                    <th scope="col" class="number">
                      A month
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
                      <span class="hidden">Delete</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {data.map((plan) => (
                    <tr key={plan.id} class="row-link">
                      <th scope="row">
                        <button type="button" class="link" onClick={() => setOpen(plan)}>
                          {plan.name}
                        </button>
                        <small>{plan.features_json.features.map(featureName).join(', ') || 'No features'}</small>
                      </th>
                      <td class="number">{amount(plan.price_monthly)}</td>
                      <td class="number wide-only">{number(plan.max_students)}</td>
                      <td class="number wide-only">{number(plan.max_teachers)}</td>
                      <td class="number wide-only above">
                        {plan.tenant_count > 0 ? (
                          <a href={href(`/schools?plan_id=${plan.id}`)}>{number(plan.tenant_count)}</a>
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
                            aria-label={`Delete the plan ${plan.name}`}
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
        </Show>
      </Card>
      {open && (
        <PlanDialog
          plan={open}
          onClose={() => setOpen(undefined)}
          onSaved={(text) => {
            say(text);
            setOpen(undefined);
            void plans.reload();
          }}
        />
      )}
    </>
  );
}

const settingLabels = {
  in_app: 'In the app',
  push: 'Push',
  email: 'E-mail',
  sender_name: 'Sender of e-mails',
  has_quiet_hours: 'Quiet hours',
  start: 'Quiet from',
  end: 'Quiet until',
  pushes: 'Push messages a day',
  emails: 'E-mails a day',
};

const settingFields = ({ channels, sender_name, quiet_hours, limits }: NotificationSettings) => ({
  ...channels,
  sender_name: sender_name ?? '',
  has_quiet_hours: quiet_hours !== null,
  start: quiet_hours?.start ?? '21:00',
  end: quiet_hours?.end ?? '07:00',
  pushes: limits.push_per_user_per_day === null ? '' : String(limits.push_per_user_per_day),
  emails: limits.emails_per_user_per_day === null ? '' : String(limits.emails_per_user_per_day),
});
type SettingFields = ReturnType<typeof settingFields>;

function SettingsForm({
  answer,
  onSaved,
}: {
  answer: { data: NotificationSettings; etag: string | undefined };
  onSaved: (answer: Answer<NotificationSettings>) => void;
}) {
  const form = useRecordForm<NotificationSettings, SettingFields>({
    path: '/api/platform/notification-settings',
    answer,
    toForm: settingFields,
    labels: settingLabels,
    onSaved,
    toBody: ({ in_app, push, email, sender_name, has_quiet_hours, start, end, pushes, emails }, all) => ({
      channels: { in_app, push, email },
      sender_name: sender_name === '' ? null : sender_name,
      ...(has_quiet_hours === undefined && start === undefined && end === undefined
        ? {}
        : { quiet_hours: all.has_quiet_hours ? { start: all.start, end: all.end } : null }),
      limits: {
        push_per_user_per_day: pushes === undefined ? undefined : (numeric(pushes) ?? null),
        emails_per_user_per_day: emails === undefined ? undefined : (numeric(emails) ?? null),
      },
    }),
  });
  const { value, set, error } = form;
  const shown = [
    'sender_name',
    'quiet_hours.start',
    'quiet_hours.end',
    'limits.push_per_user_per_day',
    'limits.emails_per_user_per_day',
  ];
  return (
    <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
      <FormProblem form={form} fields={shown} />
      <Conflicts conflicts={form.conflicts} />
      <Card title="Channels">
        <div class="form tight">
          <Check
            label="In the app"
            hint="The list of notifications of every user."
            isOn={value.in_app}
            onChange={(in_app) => set({ in_app })}
          />
          <Check
            label="Push"
            hint="Messages to phones and browsers."
            isOn={value.push}
            onChange={(push) => set({ push })}
          />
          <Check
            label="E-mail"
            hint="Notifications only; password e-mails always go out."
            isOn={value.email}
            onChange={(email) => set({ email })}
          />
          <p class="hint">A channel that is closed carries nothing, for no school.</p>
        </div>
      </Card>
      <Card title="E-mail">
        <Text
          label="Sender"
          name="sender_name"
          value={value.sender_name}
          error={error('sender_name')}
          hint={`E-mails come from «Green Valley School${value.sender_name ? ` via ${value.sender_name}` : ''}».`}
          onChange={(sender_name) => set({ sender_name })}
        />
      </Card>
      <Card title="Quiet hours">
        <div class="form">
          <Check
            label="Push and e-mail wait overnight"
            hint="In the time zone of each school; they go out when the quiet hours end."
            isOn={value.has_quiet_hours}
            onChange={(has_quiet_hours) => set({ has_quiet_hours })}
          />
          {value.has_quiet_hours && (
            <div class="pair">
              <Text
                label="From"
                name="start"
                isRequired
                value={value.start}
                error={error('quiet_hours.start')}
                onChange={(start) => set({ start })}
                input={{ type: 'time' }}
              />
              <Text
                label="Until"
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
            On one day of the school. What is above is not sent; the app shows it all the same. Empty is no limit.
          </p>
          <div class="pair">
            <Text
              label="Push messages to one device"
              name="pushes"
              value={value.pushes}
              error={error('limits.push_per_user_per_day')}
              onChange={(pushes) => set({ pushes })}
              input={{ type: 'number', min: '0', inputMode: 'numeric' }}
            />
            <Text
              label="E-mails to one address"
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

function Notifications() {
  const settings = useLoad(
    'notification settings',
    (signal) => ask<NotificationSettings>('GET', '/api/platform/notification-settings', { signal }),
    {
      isFresh: true,
    },
  );
  return (
    <div class="narrow">
      <Show what={settings} lines={8}>
        {(answer) => (
          <SettingsForm
            answer={answer}
            onSaved={(saved) => {
              say('Saved. It holds for what is sent from now on.');
              settings.set(saved);
            }}
          />
        )}
      </Show>
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
      <Head title="Settings" lead="They hold for every school." />
      <nav class="tabs" aria-label="Settings">
        {tabs.map(([name, label]) => (
          <a key={name} href={href(`/settings/${name}`)} aria-current={part === name ? 'page' : undefined}>
            {label}
          </a>
        ))}
      </nav>
      {part === 'notifications' ? <Notifications /> : <Plans />}
    </>
  );
}
