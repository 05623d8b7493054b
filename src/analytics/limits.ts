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

/** What a query may be, before it is asked whether it is worth its cost. */
export const limits = {
  /** Characters of the query, and its tokens. */
  characters: 20_000,
  tokens: 3_000,
  /** Fields in one another; of values given as arguments, lists and objects in one another. */
  depth: 12,
  /** Fields, with those of fragments as often as they are used. */
  fields: 400,
  aliases: 40,
  /** Characters of an alias: it stands in the answer once for each row. */
  alias: 60,
  /** What one list is grouped or ordered by. */
  keys: 10,
  /** Rows of one page, and those of a page that does not say how many. */
  page: 1_000,
  defaultPage: 100,
  /** Rows that may come, see `costOf`. */
  cost: 20_000,
};

const refuse = (code: string, message: string, node?: ASTNode) =>
  new GraphQLError(message, { nodes: node ?? null, extensions: { code } });

/** Introspection has limits of its own in GraphQL.js, and takes nothing from the database. */
const isIntrospection = ({ name: { value } }: FieldNode) => value.startsWith('__');

export interface Size {
  fields: number;
  aliases: number;
  depth: number;
  /** Characters of its aliases, with what stands around each in an answer. */
  characters: number;
}
const nothing: Size = { fields: 0, aliases: 0, depth: 0, characters: 0 };

/**
 * Bytes that the database may answer to all of a request. Aliases are told once more for each row, and of one value there may be many: what has
 * more of them may read less, so that no answer is too large for the process.
 */
export const maxBytes = ({ characters }: Size) =>
  Math.min(8 * 1024 * 1024, Math.floor((64 * 1024 * 1024) / (3 + characters / 8)));
/** Characters of an answer. */
export const maxCharacters = 16 * 1024 * 1024;

/** The lists and objects in one another in a value. */
function depthOfValue(value: unknown): number {
  let level: unknown[] = [value];
  for (let depth = 0; ; depth++) {
    level = level.flatMap((one) => (typeof one === 'object' && one !== null ? (Object.values(one) as unknown[]) : []));
    if (level.length === 0) return depth;
  }
}

/**
 * Refuses a document that is too deep or too long for anybody to go through it. Looks at each of its nodes once, whatever its fragments
 * make of them.
 * @returns the size of its largest operation
 * @throws GraphQLError
 */
export function checkSize(document: DocumentNode): Size {
  const fragments = new Map(
    document.definitions.flatMap((one) =>
      one.kind === Kind.FRAGMENT_DEFINITION ? [[one.name.value, one] as const] : [],
    ),
  );
  const sizes = new Map<string, Size>();
  const sizeOfFragment = (name: string): Size => {
    let size = sizes.get(name);
    if (!size) {
      // Fragments that contain themselves are for the validation to tell.
      sizes.set(name, nothing);
      const fragment = fragments.get(name);
      size = fragment ? sizeOf(fragment.selectionSet) : nothing;
      sizes.set(name, size);
    }
    return size;
  };
  function sizeOf({ selections }: SelectionSetNode): Size {
    const total = { ...nothing };
    for (const selection of selections) {
      let size: Size;
      if (selection.kind === Kind.FRAGMENT_SPREAD) size = sizeOfFragment(selection.name.value);
      else if (selection.kind === Kind.INLINE_FRAGMENT) size = sizeOf(selection.selectionSet);
      else {
        const below = selection.selectionSet ? sizeOf(selection.selectionSet) : nothing;
        const key = (selection.alias ?? selection.name).value;
        if (selection.alias && key.length > limits.alias)
          throw refuse(
            'TOO_LONG',
            `An alias may have ${String(limits.alias)} characters, and one has ${String(key.length)}.`,
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
  let inValue = 0;
  const into = (node: ASTNode) => {
    if (++inValue > limits.depth)
      throw refuse('TOO_DEEP', `Values of arguments may have ${String(limits.depth)} levels.`, node);
  };
  const out = () => {
    inValue--;
  };
  visit(document, { ObjectValue: { enter: into, leave: out }, ListValue: { enter: into, leave: out } });
  let largest = nothing;
  for (const definition of document.definitions) {
    if (definition.kind !== Kind.OPERATION_DEFINITION) continue;
    const size = sizeOf(definition.selectionSet);
    const { fields, aliases, depth } = size;
    if (size.characters > largest.characters) largest = size;
    if (depth > limits.depth)
      throw refuse(
        'TOO_DEEP',
        `The query may have ${String(limits.depth)} levels, and has ${String(depth)}.`,
        definition,
      );
    if (fields > limits.fields)
      throw refuse(
        'TOO_MANY_FIELDS',
        `The query may have ${String(limits.fields)} fields, and has ${String(fields)}.`,
        definition,
      );
    if (aliases > limits.aliases)
      throw refuse(
        'TOO_MANY_ALIASES',
        `The query may have ${String(limits.aliases)} aliases, and has ${String(aliases)}.`,
        definition,
      );
  }
  return largest;
}

/** @throws GraphQLError */
export function checkVariables(variables: unknown): void {
  if (depthOfValue(variables) > limits.depth + 1)
    throw refuse('TOO_DEEP', `Values of variables may have ${String(limits.depth)} levels.`);
}

const takesPages = (field: Pick<GraphQLField<unknown, unknown>, 'args'>) =>
  field.args.some(({ name }) => name === 'first');
const argument = (node: FieldNode, name: string) => node.arguments?.find((one) => one.name.value === name)?.value;

/** Gives each list that does not say how many rows it wants a `first`. */
export function withPages(schema: GraphQLSchema, document: DocumentNode): DocumentNode {
  const types = new TypeInfo(schema);
  return visit(
    document,
    visitWithTypeInfo(types, {
      Field(node) {
        const field = types.getFieldDef();
        if (!field || !takesPages(field) || argument(node, 'first') || argument(node, 'last')) return undefined;
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

/** How many rows a list asks for. @throws GraphQLError */
function pageOf(node: FieldNode, variables: Record<string, unknown>): number {
  let rows = 0;
  for (const name of ['first', 'last']) {
    const given = argument(node, name);
    if (!given) continue;
    const value =
      given.kind === Kind.VARIABLE
        ? variables[given.name.value]
        : given.kind === Kind.INT
          ? Number(given.value)
          : undefined;
    if (typeof value !== 'number' || value < 0 || value > limits.page) {
      const has = typeof value === 'number' ? String(value) : 'nothing';
      throw refuse(
        'PAGE_TOO_LARGE',
        `${name} of ${node.name.value} must be a number from 0 to ${String(limits.page)}, not ${has}.`,
        node,
      );
    }
    rows = Math.max(rows, value);
  }
  return rows;
}

/** @throws GraphQLError when a list is grouped or ordered by too much: each costs the database, and each group tells all its keys */
function checkKeys(node: FieldNode, variables: Record<string, unknown>): void {
  for (const name of ['groupBy', 'orderBy']) {
    const given = argument(node, name);
    const value =
      given?.kind === Kind.VARIABLE
        ? variables[given.name.value]
        : given?.kind === Kind.LIST
          ? given.values
          : undefined;
    if (Array.isArray(value) && value.length > limits.keys)
      throw refuse(
        'TOO_MANY_KEYS',
        `${name} may name ${String(limits.keys)}, and names ${String(value.length)}.`,
        node,
      );
  }
}

/**
 * What a query may cost: one for each row that it can answer at most, a page in a page multiplied; 10 for what is counted or summed over all
 * rows of a list, 100 for its groups, once for each row that the list belongs to.
 * @throws GraphQLError when it is more than allowed, or a page is too large, or keys are too many
 */
export function checkCost(
  schema: GraphQLSchema,
  document: DocumentNode,
  operation: OperationDefinitionNode,
  variables: Record<string, unknown>,
): void {
  const fragments = new Map<string, FragmentDefinitionNode>();
  for (const one of document.definitions) if (one.kind === Kind.FRAGMENT_DEFINITION) fragments.set(one.name.value, one);

  function* fieldsOf(
    set: SelectionSetNode,
    type: GraphQLNamedType,
  ): Generator<{ node: FieldNode; field: GraphQLField<unknown, unknown> }> {
    for (const selection of set.selections) {
      if (selection.kind === Kind.FIELD) {
        const field = isObjectType(type) || isInterfaceType(type) ? type.getFields()[selection.name.value] : undefined;
        if (!field) continue;
        checkKeys(selection, variables);
        yield { node: selection, field };
      } else {
        const part = selection.kind === Kind.INLINE_FRAGMENT ? selection : fragments.get(selection.name.value);
        const condition = part?.typeCondition?.name.value;
        if (part)
          yield* fieldsOf(part.selectionSet, condition === undefined ? type : (schema.getType(condition) ?? type));
      }
    }
  }
  const below = (node: FieldNode, field: GraphQLField<unknown, unknown>) =>
    node.selectionSet ? costOf(node.selectionSet, getNamedType(field.type)) : 0;

  function costOfList(node: FieldNode, field: GraphQLField<unknown, unknown>): number {
    const rows = pageOf(node, variables);
    let cost = 0;
    for (const part of node.selectionSet ? fieldsOf(node.selectionSet, getNamedType(field.type)) : []) {
      switch (part.node.name.value) {
        case 'nodes':
        case 'edges':
        case 'pageInfo':
          cost += rows * (1 + below(part.node, part.field));
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
      if (takesPages(field)) cost += costOfList(node, field);
      else if (isCompositeType(getNamedType(field.type))) cost += 1 + below(node, field);
    }
    return cost;
  }

  const root = schema.getQueryType();
  const cost = root ? costOf(operation.selectionSet, root) : 0;
  if (cost > limits.cost) {
    const message = `The query may cost ${String(limits.cost)}, and would cost ${String(cost)}: pages in pages multiply. Ask for fewer rows by first, or for groups and sums.`;
    throw refuse('TOO_EXPENSIVE', message, operation);
  }
}
