/** The operator's variant of English, or else British English. */
const language = navigator.languages.find((tag) => tag.startsWith('en')) ?? 'en-GB';

const day = new Intl.DateTimeFormat(language, { day: 'numeric', month: 'short', year: 'numeric' });
const dayAndTime = new Intl.DateTimeFormat(language, {
  day: 'numeric',
  month: 'short',
  year: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
});
const exact = new Intl.DateTimeFormat(language, { dateStyle: 'full', timeStyle: 'long' });
const relative = new Intl.RelativeTimeFormat(language, { numeric: 'auto' });
const integer = new Intl.NumberFormat(language);
const decimal = new Intl.NumberFormat(language, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const month = new Intl.DateTimeFormat(language, { month: 'short', timeZone: 'UTC' });
const monthAndYear = new Intl.DateTimeFormat(language, { month: 'long', year: 'numeric', timeZone: 'UTC' });

export const formatNumber = (value: number): string => integer.format(value);
export const formatAmount = (value: number): string => decimal.format(value);
/** The name of a month such as 2026-09. */
export const monthName = (value: string, isLong = false): string =>
  (isLong ? monthAndYear : month).format(new Date(`${value}-01T00:00:00Z`));

function formatRelative(at: Date): string {
  const minutes = Math.round((at.getTime() - Date.now()) / 60_000);
  if (Math.abs(minutes) < 1) return 'just now';
  return Math.abs(minutes) < 60
    ? relative.format(minutes, 'minute')
    : relative.format(Math.round(minutes / 60), 'hour');
}

/**
 * A timestamp in the operator's time zone, with the exact time as a tooltip. `relative` shows times within a day as
 * "5 minutes ago".
 */
export function Timestamp({ at, format = 'day' }: { at: string; format?: 'day' | 'time' | 'relative' }) {
  const date = new Date(at);
  const isWithinADay = Math.abs(date.getTime() - Date.now()) < 86_400_000;
  return (
    <time dateTime={at} title={exact.format(date)}>
      {format === 'relative' && isWithinADay
        ? formatRelative(date)
        : (format === 'day' ? day : dayAndTime).format(date)}
    </time>
  );
}

/** Converts a timestamp to the value of a datetime-local input, in the operator's time zone. */
export function toLocalInput(at: string | null): string {
  if (at === null) return '';
  const date = new Date(at);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** Converts the value of a datetime-local input to a timestamp. */
export const fromLocalInput = (value: string): string | null => (value === '' ? null : new Date(value).toISOString());

const features: Record<string, string> = {
  attendance: 'Attendance',
  fees_management: 'Fees and finance',
  timetable: 'Timetable',
  transport: 'Transport',
  notifications: 'Notifications',
};
export const featureNames = Object.keys(features);
export const featureName = (name: string): string => features[name] ?? name;

export const channelNames = { in_app: 'In-app', push: 'Push', email: 'Email' } as const;

const objects: Record<string, string> = {
  tenant: 'school',
  plan: 'plan',
  notification_template: 'notification template',
  notification_settings: 'notification settings',
  audit_log: 'audit log',
  operator: 'operator',
};
const verbs: Record<string, string> = {
  create: 'Created',
  update: 'Updated',
  delete: 'Deleted',
  suspend: 'Suspended',
  activate: 'Activated',
  restore: 'Restored',
  purge: 'Purged',
  import: 'Imported',
  export: 'Exported',
};
const sentences: Record<string, string> = {
  'operator.login': 'Logged in',
  'operator.update': 'Updated their profile',
  'operator.password': 'Changed their password',
  'operator.picture': 'Changed their picture',
  'subscription.upgrade': 'Upgraded the subscription',
  'subscription.update': 'Changed the subscription',
  'subscription.lapse': 'Subscription became past due',
  'subscription.cancel': 'Subscription was cancelled after the grace period',
  'tenant.impersonate': 'Logged in as a school admin',
};

/** The action of an audit log entry as a phrase. */
export function actionName(action: string): string {
  const sentence = sentences[action];
  if (sentence) return sentence;
  const [object = '', verb = ''] = action.split('.');
  if (object === 'impersonation') return `As school admin: ${verb.replaceAll('_', ' ')}`;
  return verbs[verb]
    ? `${verbs[verb]} ${objects[object] ?? object.replaceAll('_', ' ')}`
    : action.replaceAll('_', ' ').replace('.', ': ');
}
