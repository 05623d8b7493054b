/** How amounts of a currency (ISO 4217) are written: with the decimals that it has, and no fewer than an amount needs. */
export function moneyFormat(currency: string): (amount: number) => string {
  const options = { style: 'currency', currency } as const;
  const { maximumFractionDigits = 2 } = new Intl.NumberFormat('en', options).resolvedOptions();
  const format = new Intl.NumberFormat('en', { ...options, maximumFractionDigits: Math.max(2, maximumFractionDigits) });
  return (amount) => format.format(amount);
}

const longDate = new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeZone: 'UTC' });

/** A day, `2026-09-01`, as people write it: 1 September 2026. */
export const writtenDay = (day: string): string => longDate.format(new Date(`${day}T00:00:00Z`));
