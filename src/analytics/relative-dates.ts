/** A relative date in the variables of a query: `@month`, `@month-1`, `@day-7`. */
const relativeDate = /^@(day|month|year)(?:([+-])(\d{1,4}))?$/;

/**
 * Replaces relative dates in the variables of a query, so that a saved question can ask for the current month:
 * `@month` is the first day of this month, `@month-1` that of the last, `@day` today and `@year` January 1. In UTC.
 */
export function withDates(variables: Record<string, unknown>, now = new Date()): Record<string, unknown> {
  const replace = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(replace);
    if (typeof value === 'object' && value !== null)
      return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, replace(inner)]));
    const [, unit, sign, count = '0'] = (typeof value === 'string' ? relativeDate.exec(value) : null) ?? [];
    if (unit === undefined) return value;
    const distance = Number(count) * (sign === '-' ? -1 : 1);
    const year = now.getUTCFullYear() + (unit === 'year' ? distance : 0);
    const month = unit === 'year' ? 0 : now.getUTCMonth() + (unit === 'month' ? distance : 0);
    const day = unit === 'day' ? now.getUTCDate() + distance : 1;
    return new Date(Date.UTC(year, month, day)).toISOString().slice(0, 10);
  };
  return replace(variables) as Record<string, unknown>;
}
