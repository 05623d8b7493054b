import {
  type ASTNode,
  type DocumentNode,
  type FieldNode,
  type FragmentDefinitionNode,
  getNamedType,
  GraphQLError,
  type GraphQLField,
  type GraphQLNamedType,
  type GraphQLSchema,
  isCompositeType,
  isInterfaceType,
  isObjectType,
  Kind,
  type OperationDefinitionNode,
  type SelectionSetNode,
  TypeInfo,
  visit,
  visitWithTypeInfo,
} from 'postgraphile/graphql';

/** Limits of a query. */
export const limits = {
  /** Characters and tokens of the query text. */
  characters: 20_000,
  tokens: 3_000,
  /** Nested fields; also nested lists and objects in arguments. */
  depth: 12,
  /** Fields. Those of a fragment count each time that it is used. */
  fields: 400,
  aliases: 40,
  /** Characters of an alias, which the response repeats for each row. */
  alias: 60,
  /** Keys that a list is grouped or ordered by. */
  keys: 10,
  /** Maximum rows of a page, and the rows of a page without `first` or `last`. */
  page: 1_000,
  defaultPage: 100,
  /** Maximum cost, see `checkCost`. */
  cost: 20_000,
};

const refuse = (code: string, message: string, node?: ASTNode) =>
  new GraphQLError(message, { nodes: node ?? null, extensions: { code } });

/** Introspection has its own limits in GraphQL.js, and does not use the database. */
const isIntrospection = ({ name: { value } }: FieldNode) => value.startsWith('__');

export interface Size {
  fields: number;
  aliases: number;
  depth: number;
  /** Characters of the aliases, each with 8 for the punctuation around it in the response. */
  characters: number;
}
const emptySize: Size = { fields: 0, aliases: 0, depth: 0, characters: 0 };

/**
 * Maximum bytes that the database may return for a request. The response repeats aliases for each row, and one value
 * may have many. A query with longer aliases may read less, so that the response fits in the memory of the process.
 */
export const maxBytes = ({ characters }: Size) =>
  Math.min(8 * 1024 * 1024, Math.floor((64 * 1024 * 1024) / (3 + characters / 8)));
/** Maximum characters of a response. */
export const maxCharacters = 16 * 1024 * 1024;

/** How deep lists and objects nest in a value. */
function depthOfValue(value: unknown): number {
  let level: unknown[] = [value];
  for (let depth = 0; ; depth++) {
    level = level.flatMap((item) =>
      typeof item === 'object' && item !== null ? (Object.values(item) as unknown[]) : [],
    );
    if (level.length === 0) return depth;
  }
}

/**
 * Refuses a document that nests too deeply or has too many fields or aliases. Visits each node once, so that nested
 * fragments cannot multiply the work.
 * @returns the size of the operation with the most characters in aliases
 * @throws GraphQLError
 */
export function checkSize(document: DocumentNode): Size {
  const fragments = new Map(
    document.definitions.flatMap((definition) =>
      definition.kind === Kind.FRAGMENT_DEFINITION ? [[definition.name.value, definition] as const] : [],
    ),
  );
  const sizes = new Map<string, Size>();
  const sizeOfFragment = (name: string): Size => {
    let size = sizes.get(name);
    if (!size) {
      // Ends the recursion of a fragment that contains itself. Validation reports it.
      sizes.set(name, emptySize);
      const fragment = fragments.get(name);
      size = fragment ? sizeOf(fragment.selectionSet) : emptySize;
      sizes.set(name, size);
    }
    return size;
  };
  function sizeOf({ selections }: SelectionSetNode): Size {
    const total = { ...emptySize };
    for (const selection of selections) {
      let size: Size;
      if (selection.kind === Kind.FRAGMENT_SPREAD) size = sizeOfFragment(selection.name.value);
      else if (selection.kind === Kind.INLINE_FRAGMENT) size = sizeOf(selection.selectionSet);
      else {
        const below = selection.selectionSet ? sizeOf(selection.selectionSet) : emptySize;
        const key = (selection.alias ?? selection.name).value;
        if (selection.alias && key.length > limits.alias)
          throw refuse(
            'TOO_LONG',
            `An alias has ${String(key.length)} characters. The maximum is ${String(limits.alias)}.`,
            selection,
          );
        size = {
          fields: below.fields + 1,
          aliases: below.aliases + (selection.alias ? 1 : 0),
          depth: isIntrospection(selection) ? 1 : below.depth + 1,
          characters: below.characters + (selection.alias ? key.length + 8 : 0),
        };
      }
      total.fields += size.fields;
      total.aliases += size.aliases;
      total.characters += size.characters;
      total.depth = Math.max(total.depth, size.depth);
    }
    return total;
  }
  let valueDepth = 0;
  const enter = (node: ASTNode) => {
    if (++valueDepth > limits.depth)
      throw refuse('TOO_DEEP', `Arguments may nest at most ${String(limits.depth)} levels deep.`, node);
  };
  const leave = () => {
    valueDepth--;
  };
  visit(document, { ObjectValue: { enter, leave }, ListValue: { enter, leave } });
  let largest = emptySize;
  for (const definition of document.definitions) {
    if (definition.kind !== Kind.OPERATION_DEFINITION) continue;
    const size = sizeOf(definition.selectionSet);
    const { fields, aliases, depth } = size;
    if (size.characters > largest.characters) largest = size;
    if (depth > limits.depth)
      throw refuse(
        'TOO_DEEP',
        `The query has ${String(depth)} levels. The maximum is ${String(limits.depth)}.`,
        definition,
      );
    if (fields > limits.fields)
      throw refuse(
        'TOO_MANY_FIELDS',
        `The query has ${String(fields)} fields. The maximum is ${String(limits.fields)}.`,
        definition,
      );
    if (aliases > limits.aliases)
      throw refuse(
        'TOO_MANY_ALIASES',
        `The query has ${String(aliases)} aliases. The maximum is ${String(limits.aliases)}.`,
        definition,
      );
  }
  return largest;
}

/** @throws GraphQLError */
export function checkVariables(variables: unknown): void {
  if (depthOfValue(variables) > limits.depth + 1)
    throw refuse('TOO_DEEP', `Variables may nest at most ${String(limits.depth)} levels deep.`);
}

const isPaged = (field: Pick<GraphQLField<unknown, unknown>, 'args'>) =>
  field.args.some(({ name }) => name === 'first');
const argument = (node: FieldNode, name: string) =>
  node.arguments?.find((candidate) => candidate.name.value === name)?.value;

/** Adds the default `first` to each list without `first` or `last`. */
export function withPages(schema: GraphQLSchema, document: DocumentNode): DocumentNode {
  const types = new TypeInfo(schema);
  return visit(
    document,
    visitWithTypeInfo(types, {
      Field(node) {
        const field = types.getFieldDef();
        if (!field || !isPaged(field) || argument(node, 'first') || argument(node, 'last')) return undefined;
        const first = {
          kind: Kind.ARGUMENT,
          name: { kind: Kind.NAME, value: 'first' },
          value: { kind: Kind.INT, value: String(limits.defaultPage) },
        } as const;
        return { ...node, arguments: [...(node.arguments ?? []), first] };
      },
    }),
  );
}

/** The page size that a list asks for. @throws GraphQLError */
function pageSize(node: FieldNode, variables: Record<string, unknown>): number {
  let rows = 0;
  for (const name of ['first', 'last']) {
    const requested = argument(node, name);
    if (!requested) continue;
    const value =
      requested.kind === Kind.VARIABLE
        ? variables[requested.name.value]
        : requested.kind === Kind.INT
          ? Number(requested.value)
          : undefined;
    if (typeof value !== 'number' || value < 0 || value > limits.page) {
      const actual = typeof value === 'number' ? String(value) : 'not a number';
      throw refuse(
        'PAGE_TOO_LARGE',
        `${name} of ${node.name.value} must be a number from 0 to ${String(limits.page)}, but is ${actual}.`,
        node,
      );
    }
    rows = Math.max(rows, value);
  }
  return rows;
}

/** @throws GraphQLError when a list is grouped or ordered by too many keys, which are expensive for the database */
function checkKeys(node: FieldNode, variables: Record<string, unknown>): void {
  for (const name of ['groupBy', 'orderBy']) {
    const keys = argument(node, name);
    const value =
      keys?.kind === Kind.VARIABLE ? variables[keys.name.value] : keys?.kind === Kind.LIST ? keys.values : undefined;
    if (Array.isArray(value) && value.length > limits.keys)
      throw refuse(
        'TOO_MANY_KEYS',
        `${name} has ${String(value.length)} keys. The maximum is ${String(limits.keys)}.`,
        node,
      );
  }
}

/** A field of a query with its definition. */
interface SelectedField {
  node: FieldNode;
  field: GraphQLField<unknown, unknown>;
}

/** Returns a function that reads the fields of a selection, also those of its fragments. */
export function fieldReader(
  schema: GraphQLSchema,
  document: DocumentNode,
): (set: SelectionSetNode, type: GraphQLNamedType) => Generator<SelectedField> {
  const fragments = new Map<string, FragmentDefinitionNode>();
  for (const definition of document.definitions)
    if (definition.kind === Kind.FRAGMENT_DEFINITION) fragments.set(definition.name.value, definition);

  return function* fieldsOf(set, type): Generator<SelectedField> {
    for (const selection of set.selections) {
      if (selection.kind === Kind.FIELD) {
        const field = isObjectType(type) || isInterfaceType(type) ? type.getFields()[selection.name.value] : undefined;
        if (field) yield { node: selection, field };
      } else {
        const part = selection.kind === Kind.INLINE_FRAGMENT ? selection : fragments.get(selection.name.value);
        const condition = part?.typeCondition?.name.value;
        if (part)
          yield* fieldsOf(part.selectionSet, condition === undefined ? type : (schema.getType(condition) ?? type));
      }
    }
  };
}

/**
 * Limits the cost of a query. Each row that it can return costs 1; a nested list is multiplied by the page size of the
 * outer list. A count or a sum over a list costs 10, its groups 100, each multiplied by the rows of the outer list.
 * @throws GraphQLError when the cost is too high, a page is too large, or a list has too many keys
 */
export function checkCost(
  schema: GraphQLSchema,
  document: DocumentNode,
  operation: OperationDefinitionNode,
  variables: Record<string, unknown>,
): void {
  const fieldsOf = fieldReader(schema, document);
  const costBelow = (node: FieldNode, field: GraphQLField<unknown, unknown>) =>
    node.selectionSet ? costOf(node.selectionSet, getNamedType(field.type)) : 0;

  function costOfList(node: FieldNode, field: GraphQLField<unknown, unknown>): number {
    const rows = pageSize(node, variables);
    let cost = 0;
    for (const part of node.selectionSet ? fieldsOf(node.selectionSet, getNamedType(field.type)) : []) {
      checkKeys(part.node, variables);
      switch (part.node.name.value) {
        case 'nodes':
        case 'edges':
        case 'pageInfo':
          cost += rows * (1 + costBelow(part.node, part.field));
          break;
        case 'groupedAggregates':
          cost += 100;
          break;
        default:
          cost += 10;
      }
    }
    return cost;
  }

  function costOf(set: SelectionSetNode, type: GraphQLNamedType): number {
    let cost = 0;
    for (const { node, field } of fieldsOf(set, type)) {
      checkKeys(node, variables);
      if (isPaged(field)) cost += costOfList(node, field);
      else if (isCompositeType(getNamedType(field.type))) cost += 1 + costBelow(node, field);
    }
    return cost;
  }

  const root = schema.getQueryType();
  const cost = root ? costOf(operation.selectionSet, root) : 0;
  if (cost > limits.cost) {
    const message =
      `The query costs ${String(cost)}. The maximum is ${String(limits.cost)}, and nested pages multiply. ` +
      'Ask for fewer rows with `first`, or for groups and sums.';
    throw refuse('TOO_EXPENSIVE', message, operation);
  }
}
