import { showToast } from '../../parts/dialogs.tsx';
import { CheckboxField, TextField } from '../../parts/fields.tsx';
import { Conflicts, type Form, FormError, SaveBar, toNumber, useRecordForm } from '../../parts/forms.tsx';
import { type ApiResponse, request } from '../../data/api.ts';
import { useLoad } from '../../data/load.ts';
import { AsyncContent, Card } from '../../parts/components.tsx';
import type { Settings as NotificationSettings } from '../../types.ts';

const labels = {
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

const toForm = ({ channels, sender_name, quiet_hours, limits }: NotificationSettings) => ({
  ...channels,
  sender_name: sender_name ?? '',
  has_quiet_hours: quiet_hours !== null,
  start: quiet_hours?.start ?? '21:00',
  end: quiet_hours?.end ?? '07:00',
  pushes: limits.push_per_user_per_day === null ? '' : String(limits.push_per_user_per_day),
  emails: limits.emails_per_user_per_day === null ? '' : String(limits.emails_per_user_per_day),
});
type Fields = ReturnType<typeof toForm>;

/** The quiet hours are sent as a whole if any part of them has changed. */
const toBody = (changes: Partial<Fields>, all: Fields) => {
  const { in_app, push, email, sender_name, has_quiet_hours, start, end, pushes, emails } = changes;
  const isQuietTimeChanged = has_quiet_hours !== undefined || start !== undefined || end !== undefined;
  return {
    channels: { in_app, push, email },
    sender_name: sender_name === '' ? null : sender_name,
    ...(isQuietTimeChanged ? { quiet_hours: all.has_quiet_hours ? { start: all.start, end: all.end } : null } : {}),
    limits: {
      push_per_user_per_day: pushes === undefined ? undefined : (toNumber(pushes) ?? null),
      emails_per_user_per_day: emails === undefined ? undefined : (toNumber(emails) ?? null),
    },
  };
};

const fieldPaths = [
  'sender_name',
  'quiet_hours.start',
  'quiet_hours.end',
  'limits.push_per_user_per_day',
  'limits.emails_per_user_per_day',
];

interface CardProps {
  form: Form<Fields>;
}

function ChannelsCard({ form: { value, set } }: CardProps) {
  return (
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
  );
}

function EmailCard({ form: { value, field } }: CardProps) {
  const sender = `Green Valley School${value.sender_name ? ` via ${value.sender_name}` : ''}`;
  return (
    <Card title="Email">
      <TextField {...field('sender_name')} label="Sender name" hint={`Emails are sent from “${sender}”.`} />
    </Card>
  );
}

function QuietHoursCard({ form: { value, set, field, error } }: CardProps) {
  return (
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
              {...field('start')}
              label="Start"
              isRequired
              error={error('quiet_hours.start')}
              input={{ type: 'time' }}
            />
            <TextField
              {...field('end')}
              label="End"
              isRequired
              error={error('quiet_hours.end')}
              input={{ type: 'time' }}
            />
          </div>
        )}
      </div>
    </Card>
  );
}

function LimitsCard({ form: { field, error } }: CardProps) {
  return (
    <Card title="Limits">
      <div class="form">
        <p class="hint">
          Per day, in the school’s time zone. Notifications over the limit are shown in-app only. Leave empty for no
          limit.
        </p>
        <div class="pair">
          <TextField
            {...field('pushes')}
            label="Push messages per device"
            error={error('limits.push_per_user_per_day')}
            input={{ type: 'number', min: '0', inputMode: 'numeric' }}
          />
          <TextField
            {...field('emails')}
            label="Emails per address"
            error={error('limits.emails_per_user_per_day')}
            input={{ type: 'number', min: '0', inputMode: 'numeric' }}
          />
        </div>
      </div>
    </Card>
  );
}

interface SettingsFormProps {
  response: { data: NotificationSettings; etag: string | undefined };
  onSaved: (response: ApiResponse<NotificationSettings>) => void;
}

function SettingsForm({ response, onSaved }: SettingsFormProps) {
  const path = '/api/platform/notification-settings';
  const form = useRecordForm<NotificationSettings, Fields>({ path, response, toForm, toBody, labels, onSaved });
  return (
    <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
      <FormError form={form} fields={fieldPaths} />
      <Conflicts conflicts={form.conflicts} />
      <ChannelsCard form={form} />
      <EmailCard form={form} />
      <QuietHoursCard form={form} />
      <LimitsCard form={form} />
      <SaveBar form={form} />
    </form>
  );
}

export function NotificationSettingsTab() {
  const settings = useLoad(
    'notification settings',
    (signal) => request<NotificationSettings>('GET', '/api/platform/notification-settings', { signal }),
    { isUncached: true },
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
