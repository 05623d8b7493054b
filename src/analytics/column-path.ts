/** Fields that only hold the rows or the values below them. They are no part of the name of a column. */
const containers = new Set(['nodes', 'edges', 'node', 'aggregates', 'groupedAggregates']);

/** The name of the column of a field below others. */
export const columnPath = (before: string, name: string): string =>
  containers.has(name) ? before : before === '' ? name : `${before} ${name}`;
