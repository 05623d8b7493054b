import { type DocumentNode, Kind, parse, type SelectionSetNode } from 'postgraphile/graphql';
import { columnPath } from './column-path.ts';

/** `DATE_TRUNCATED_TO_MONTH` as `date (month)`. */
const readable = (groupBy: string) =>
  groupBy
    .toLowerCase()
    .replace(/_truncated_to_(.*)$/, ' ($1)')
    .replaceAll('_', ' ');

/** The values of the argument `groupBy`, which is one value or a list, in the query or in a variable. */
function groupByOf(value: unknown): string[] {
  return (Array.isArray(value) ? value : [value]).filter((each) => typeof each === 'string');
}

/**
 * The readable names of the columns `keys 1`, `keys 2` and so on: what the query groups by.
 * @param isOneField  the table has only the one field of the query, and its name is no part of the columns
 */
export function keyNames(query: string, variables: Record<string, unknown>, isOneField: boolean): Map<string, string> {
  const names = new Map<string, string>();
  const { definitions }: DocumentNode = parse(query);
  const fragments = new Map(
    definitions.flatMap((each) => (each.kind === Kind.FRAGMENT_DEFINITION ? [[each.name.value, each] as const] : [])),
  );

  function visit({ selections }: SelectionSetNode, above: string, groupBy: string[], isRoot: boolean): void {
    for (const selection of selections) {
      if (selection.kind === Kind.FRAGMENT_SPREAD) {
        const fragment = fragments.get(selection.name.value);
        if (fragment) visit(fragment.selectionSet, above, groupBy, isRoot);
      } else if (selection.kind === Kind.INLINE_FRAGMENT) visit(selection.selectionSet, above, groupBy, isRoot);
      else {
        const column = isRoot && isOneField ? '' : columnPath(above, (selection.alias ?? selection.name).value);
        if (selection.name.value === 'keys')
          for (const [n, key] of groupBy.entries())
            names.set(columnPath(column, String(n + 1)), columnPath(above, readable(key)));
        const argument = selection.arguments?.find(({ name }) => name.value === 'groupBy')?.value;
        const values =
          argument?.kind === Kind.VARIABLE
            ? variables[argument.name.value]
            : argument?.kind === Kind.LIST
              ? argument.values.map((each) => (each.kind === Kind.ENUM ? each.value : undefined))
              : argument?.kind === Kind.ENUM && argument.value;
        if (selection.selectionSet) visit(selection.selectionSet, column, groupByOf(values), false);
      }
    }
  }

  for (const definition of definitions)
    if (definition.kind === Kind.OPERATION_DEFINITION) visit(definition.selectionSet, '', [], true);
  return names;
}
