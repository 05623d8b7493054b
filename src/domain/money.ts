/** The locale of a school that has not chosen one. */
export const defaultLocale = 'en-GB';

/** Units of account and VED, which ISO 4217 lists but `Intl.supportedValuesOf` leaves out. */
const furtherCurrencies = ['BOV', 'CHE', 'CHW', 'CLF', 'COU', 'MXV', 'USN', 'UYI', 'UYW', 'VED'];

/** The codes of currencies. Their decimals are in `core.currency`, because those of `Intl.NumberFormat` deviate. */
export const currencies: readonly string[] = [
  ...new Set([...Intl.supportedValuesOf('currency'), ...furtherCurrencies]),
].sort();

/** The most decimals that a currency of ISO 4217 has. */
export const maxDecimals = 4;

/**
 * Formats amounts of a currency (ISO 4217).
 * @param decimals  those of the currency. An amount with more of them is shown with all
 */
export function moneyFormat(currency: string, decimals: number, locale: string): (amount: number) => string {
  const format = new Intl.NumberFormat(locale, {
    style: 'currency',
    currency,
    minimumFractionDigits: decimals,
    maximumFractionDigits: maxDecimals,
  });
  return (amount) => format.format(amount);
}

/** Formats days: `2026-09-01` in `en-GB` as `1 September 2026`. */
export function dayFormat(locale: string): (day: string) => string {
  const format = new Intl.DateTimeFormat(locale, { dateStyle: 'long', timeZone: 'UTC' });
  return (day) => format.format(new Date(`${day}T00:00:00Z`));
}
