/** Formats amounts of a currency (ISO 4217) with its usual decimals, but up to 2 where an amount has them. */
export function moneyFormat(currency: string): (amount: number) => string {
  const options = { style: 'currency', currency } as const;
  const { maximumFractionDigits = 2 } = new Intl.NumberFormat('en', options).resolvedOptions();
  const format = new Intl.NumberFormat('en', { ...options, maximumFractionDigits: Math.max(2, maximumFractionDigits) });
  return (amount) => format.format(amount);
}

const longDate = new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeZone: 'UTC' });

/** Formats `2026-09-01` as `1 September 2026`. */
export const writtenDay = (day: string): string => longDate.format(new Date(`${day}T00:00:00Z`));
