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
const currencyNames = new Intl.DisplayNames(language, { type: 'currency' });
const month = new Intl.DateTimeFormat(language, { month: 'short', timeZone: 'UTC' });
const monthAndYear = new Intl.DateTimeFormat(language, { month: 'long', year: 'numeric', timeZone: 'UTC' });

const compact = new Intl.NumberFormat(language, { notation: 'compact' });
const dayAndMonth = new Intl.DateTimeFormat(language, { day: 'numeric', month: 'long', timeZone: 'UTC' });
/** By the power of 1000. */
const byteUnits = ['byte', 'kilobyte', 'megabyte', 'gigabyte', 'terabyte'].map((unit) => ({
  exact: new Intl.NumberFormat(language, { style: 'unit', unit, maximumSignificantDigits: 3 }),
  compact: new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay: 'narrow', maximumSignificantDigits: 3 }),
}));
const bytesAs = (kind: 'exact' | 'compact') => (bytes: number) => {
  const power = Math.min(byteUnits.length - 1, Math.floor(Math.log10(Math.max(bytes, 1)) / 3));
  return byteUnits[power]?.[kind].format(bytes / 1000 ** power) ?? '';
};

/** A size such as `1.2 GB`, and for the axis of a chart `1.2GB`. */
export const formatBytes = bytesAs('exact');
export const formatCompactBytes = bytesAs('compact');
/** A number for the axis of a chart, such as `10K`. */
export const formatCompact = (value: number): string => compact.format(value);
export const formatNumber = (value: number): string => integer.format(value);
/** The price of a plan with its currency. A price with more decimals than the currency is shown with all of them. */
export const formatPrice = (plan: { price_monthly: number; currency: string; currency_decimals: number }): string =>
  new Intl.NumberFormat(language, {
    style: 'currency',
    currency: plan.currency,
    minimumFractionDigits: plan.currency_decimals,
    maximumFractionDigits: 4,
  }).format(plan.price_monthly);
/** A currency such as `EUR, Euro`. */
export const currencyName = (code: string): string => `${code}, ${currencyNames.of(code) ?? code}`;
/** The name of a month such as 2026-09. */
export const monthName = (value: string, isLong = false): string =>
  (isLong ? monthAndYear : month).format(new Date(`${value}-01T00:00:00Z`));

/** The name of a day such as 2026-09-01. */
export const dayName = (value: string): string => dayAndMonth.format(new Date(`${value}T00:00:00Z`));

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
  platform_settings: 'platform settings',
  audit_log: 'audit log',
  operator: 'operator',
  job: 'job',
  api_key: 'API key',
  webhook: 'webhook',
  student_fee_discount: 'discount',
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
  retry: 'Retried',
  cancel: 'Cancelled',
  revoke: 'Revoked',
  test: 'Tested',
};
const sentences: Record<string, string> = {
  'operator.login': 'Logged in',
  'operator.update': 'Updated their profile',
  'operator.password': 'Changed their password',
  'operator.picture': 'Changed their picture',
  'operator.session': 'Ended one of their sessions',
  'operator.create': 'Invited an operator',
  'operator.invite': 'Sent an invitation again',
  'operator.disable': 'Disabled an operator',
  'operator.enable': 'Enabled an operator',
  'operator.set_role': 'Changed the role of an operator',
  'operator.set_tenants': 'Changed the schools of an analyst',
  'operator.second_factor': 'Set up an authenticator app',
  'operator.second_factor_off': 'Turned their second factor off',
  'operator.recovery_codes': 'Created new recovery codes',
  'operator.passkey': 'Added a passkey',
  'operator.passkey_delete': 'Deleted a passkey',
  'second_factor.reset': 'Reset a second factor',
  'subscription.upgrade': 'Upgraded the subscription',
  'subscription.update': 'Changed the subscription',
  'subscription.lapse': 'Subscription became past due',
  'subscription.cancel': 'Subscription was cancelled after the grace period',
  'webhook.rotate_secret': 'Replaced the secret of a webhook',
  'webhook.replay': 'Sent a message of a webhook again',
  'schools.export': 'Exported the list of schools',
  'tenant.message': 'Sent a message to the admins of a school',
  'tenant.sql': 'Ran SQL statements for a school',
  'tenant.sql_commit': 'Changed data of a school with SQL statements',
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
