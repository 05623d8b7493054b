/** The date this many days from today, in UTC, the time zone of a new school. */
export const day = (fromToday = 0) => new Date(Date.now() + fromToday * 86_400_000).toISOString().slice(0, 10);

/** The school year of the scenario contains today; the next one follows it. */
export const year = { start_date: day(-100), end_date: day(264) };
export const nextYear = { start_date: day(265), end_date: day(629) };
