/** The reader’s own English, or British English. */
const language = navigator.languages.find((one) => one.startsWith('en')) ?? 'en-GB';

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
const count = new Intl.NumberFormat(language);
const price = new Intl.NumberFormat(language, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const month = new Intl.DateTimeFormat(language, { month: 'short', timeZone: 'UTC' });
const monthAndYear = new Intl.DateTimeFormat(language, { month: 'long', year: 'numeric', timeZone: 'UTC' });

export const number = (value: number): string => count.format(value);
export const amount = (value: number): string => price.format(value);
/** The name of a month like 2026-09. */
export const monthName = (value: string, isLong = false): string =>
  (isLong ? monthAndYear : month).format(new Date(`${value}-01T00:00:00Z`));

function ago(at: Date): string {
  const minutes = Math.round((at.getTime() - Date.now()) / 60_000);
  if (Math.abs(minutes) < 1) return 'just now';
  return Math.abs(minutes) < 60
    ? relative.format(minutes, 'minute')
    : relative.format(Math.round(minutes / 60), 'hour');
}

/** A moment in the zone of the reader: how long ago where that is less than a day; the exact one is told on pointing at it. */
export function Moment({ at, form = 'day' }: { at: string; form?: 'day' | 'time' | 'ago' }) {
  const date = new Date(at);
  const isNear = Math.abs(date.getTime() - Date.now()) < 86_400_000;
  return (
    <time dateTime={at} title={exact.format(date)}>
      {form === 'ago' && isNear ? ago(date) : (form === 'day' ? day : dayAndTime).format(date)}
    </time>
  );
}

/** A moment as a field for date and time has it, in the zone of the reader. */
export function toLocal(moment: string | null): string {
  if (moment === null) return '';
  const date = new Date(moment);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** What a field for date and time has, as a moment. */
export const fromLocal = (local: string): string | null => (local === '' ? null : new Date(local).toISOString());

const features: Record<string, string> = {
  attendance: 'Attendance',
  fees_management: 'Fees and finance',
  timetable: 'Timetable',
  transport: 'Transport',
  notifications: 'Notifications',
};
export const featureNames = Object.keys(features);
export const featureName = (name: string): string => features[name] ?? name;

export const channelNames = { in_app: 'In the app', push: 'Push', email: 'E-mail' } as const;

const objects: Record<string, string> = {
  tenant: 'school',
  plan: 'plan',
  notification_template: 'notification words',
  notification_settings: 'notification settings',
  audit_log: 'audit log',
  operator: 'operator',
};
const verbs: Record<string, string> = {
  create: 'Created',
  update: 'Changed',
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
  'operator.update': 'Changed their profile',
  'operator.password': 'Changed their password',
  'operator.picture': 'Changed their picture',
  'subscription.upgrade': 'Upgraded the subscription',
  'tenant.impersonate': 'Logged in as an admin of the school',
};

/** What an entry of the audit trail says, in words. */
export function actionName(action: string): string {
  const sentence = sentences[action];
  if (sentence) return sentence;
  const [object = '', verb = ''] = action.split('.');
  if (object === 'impersonation') return `As an admin: ${verb.replaceAll('_', ' ')}`;
  return verbs[verb]
    ? `${verbs[verb]} ${objects[object] ?? object.replaceAll('_', ' ')}`
    : action.replaceAll('_', ' ').replace('.', ': ');
}
