/** The locale of a school that has not chosen one. */
export const defaultLocale = 'en-GB';

/** Units of account and VED, which ISO 4217 lists but `Intl.supportedValuesOf` leaves out. */
const furtherCurrencies = ['BOV', 'CHE', 'CHW', 'CLF', 'COU', 'MXV', 'USN', 'UYI', 'UYW', 'VED'];

/** The codes of currencies. Their decimals are in `core.currency`, because those of `Intl.NumberFormat` deviate. */
export const currencies: readonly string[] = [
  ...new Set([...Intl.supportedValuesOf('currency'), ...furtherCurrencies]),
].sort();

/** Formats amounts of a currency (ISO 4217) with its usual decimals, but up to 2 where an amount has them. */
export function moneyFormat(currency: string, locale: string): (amount: number) => string {
  const options = { style: 'currency', currency } as const;
  const { maximumFractionDigits = 2 } = new Intl.NumberFormat(locale, options).resolvedOptions();
  const format = new Intl.NumberFormat(locale, {
    ...options,
    maximumFractionDigits: Math.max(2, maximumFractionDigits),
  });
  return (amount) => format.format(amount);
}

/** Formats days: `2026-09-01` in `en-GB` as `1 September 2026`. */
export function dayFormat(locale: string): (day: string) => string {
  const format = new Intl.DateTimeFormat(locale, { dateStyle: 'long', timeZone: 'UTC' });
  return (day) => format.format(new Date(`${day}T00:00:00Z`));
}
