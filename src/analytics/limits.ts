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
  /** Rows of one page, and those of a page that does not say how many. */
  page: 1_000,
  defaultPage: 100,
  /** Rows that may come, see `costOf`. */
  cost: 20_000,
};

const refuse = (code: string, message: string, node?: ASTNode) => new GraphQLError(message, { nodes: node ?? null, extensions: { code } });

/** Introspection has limits of its own in GraphQL.js, and takes nothing from the database. */
const isIntrospection = ({ name: { value } }: FieldNode) => value.startsWith('__');

interface Size {
  fields: number;
  aliases: number;
  depth: number;
}

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
 * @throws GraphQLError
 */
export function checkSize(document: DocumentNode): void {
  const fragments = new Map(document.definitions.flatMap((one) => (one.kind === Kind.FRAGMENT_DEFINITION ? [[one.name.value, one] as const] : [])));
  const sizes = new Map<string, Size>();
  const sizeOfFragment = (name: string): Size => {
    let size = sizes.get(name);
    if (!size) {
      // Fragments that contain themselves are for the validation to tell.
      sizes.set(name, { fields: 0, aliases: 0, depth: 0 });
      const fragment = fragments.get(name);
      size = fragment ? sizeOf(fragment.selectionSet) : { fields: 0, aliases: 0, depth: 0 };
      sizes.set(name, size);
    }
    return size;
  };
  function sizeOf({ selections }: SelectionSetNode): Size {
    const total: Size = { fields: 0, aliases: 0, depth: 0 };
    for (const selection of selections) {
      let size: Size;
      if (selection.kind === Kind.FRAGMENT_SPREAD) size = sizeOfFragment(selection.name.value);
      else if (selection.kind === Kind.INLINE_FRAGMENT) size = sizeOf(selection.selectionSet);
      else {
        const below = selection.selectionSet ? sizeOf(selection.selectionSet) : { fields: 0, aliases: 0, depth: 0 };
        size = { fields: below.fields + 1, aliases: below.aliases + (selection.alias ? 1 : 0), depth: isIntrospection(selection) ? 1 : below.depth + 1 };
      }
      total.fields += size.fields;
      total.aliases += size.aliases;
      total.depth = Math.max(total.depth, size.depth);
    }
    return total;
  }
  let inValue = 0;
  const into = (node: ASTNode) => {
    if (++inValue > limits.depth) throw refuse('TOO_DEEP', `Values of arguments may have ${String(limits.depth)} levels.`, node);
  };
  const out = () => {
    inValue--;
  };
  visit(document, { ObjectValue: { enter: into, leave: out }, ListValue: { enter: into, leave: out } });
  for (const definition of document.definitions) {
    if (definition.kind !== Kind.OPERATION_DEFINITION) continue;
    const { fields, aliases, depth } = sizeOf(definition.selectionSet);
    if (depth > limits.depth) throw refuse('TOO_DEEP', `The query may have ${String(limits.depth)} levels, and has ${String(depth)}.`, definition);
    if (fields > limits.fields) throw refuse('TOO_MANY_FIELDS', `The query may have ${String(limits.fields)} fields, and has ${String(fields)}.`, definition);
    if (aliases > limits.aliases)
      throw refuse('TOO_MANY_ALIASES', `The query may have ${String(limits.aliases)} aliases, and has ${String(aliases)}.`, definition);
  }
}

/** @throws GraphQLError */
export function checkVariables(variables: unknown): void {
  if (depthOfValue(variables) > limits.depth + 1) throw refuse('TOO_DEEP', `Values of variables may have ${String(limits.depth)} levels.`);
}

const takesPages = (field: Pick<GraphQLField<unknown, unknown>, 'args'>) => field.args.some(({ name }) => name === 'first');
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
    const value = given.kind === Kind.VARIABLE ? variables[given.name.value] : given.kind === Kind.INT ? Number(given.value) : undefined;
    if (typeof value !== 'number' || value < 0 || value > limits.page) {
      const has = typeof value === 'number' ? String(value) : 'nothing';
      throw refuse('PAGE_TOO_LARGE', `${name} of ${node.name.value} must be a number from 0 to ${String(limits.page)}, not ${has}.`, node);
    }
    rows = Math.max(rows, value);
  }
  return rows;
}

/**
 * What a query may cost: one for each row that it can answer at most, a page in a page multiplied; 10 for what is counted or summed over all
 * rows of a list, 100 for its groups, once for each row that the list belongs to.
 * @throws GraphQLError when it is more than allowed, or a page is too large
 */
export function checkCost(schema: GraphQLSchema, document: DocumentNode, operation: OperationDefinitionNode, variables: Record<string, unknown>): void {
  const fragments = new Map<string, FragmentDefinitionNode>();
  for (const one of document.definitions) if (one.kind === Kind.FRAGMENT_DEFINITION) fragments.set(one.name.value, one);

  function* fieldsOf(set: SelectionSetNode, type: GraphQLNamedType): Generator<{ node: FieldNode; field: GraphQLField<unknown, unknown> }> {
    for (const selection of set.selections) {
      if (selection.kind === Kind.FIELD) {
        const field = isObjectType(type) || isInterfaceType(type) ? type.getFields()[selection.name.value] : undefined;
        if (field) yield { node: selection, field };
      } else {
        const part = selection.kind === Kind.INLINE_FRAGMENT ? selection : fragments.get(selection.name.value);
        const condition = part?.typeCondition?.name.value;
        if (part) yield* fieldsOf(part.selectionSet, condition === undefined ? type : (schema.getType(condition) ?? type));
      }
    }
  }
  const below = (node: FieldNode, field: GraphQLField<unknown, unknown>) => (node.selectionSet ? costOf(node.selectionSet, getNamedType(field.type)) : 0);

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
