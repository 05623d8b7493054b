import type {} from '@graphile/pg-aggregates/dist/InflectionPlugin.js';
import type {} from 'postgraphile';
import {
  type ArgumentNode,
  type DocumentNode,
  getNamedType,
  GraphQLError,
  type GraphQLInputType,
  type GraphQLNamedType,
  type GraphQLSchema,
  isInputObjectType,
  isListType,
  isNonNullType,
  type OperationDefinitionNode,
  type SelectionSetNode,
  valueFromAST,
} from 'postgraphile/graphql';
import { fieldReader } from './limits.ts';

/** A measure whose sum over several values of a column counts the same things again. db/analytics/views.sql has them. */
interface Stock {
  /** The field of the measure. */
  field: string;
  /** The field of the column, for example `month`, and its name in `groupBy`. */
  dimension: string;
  key: string;
  /** Filters that select one value of the column, besides `dimension`: `academicYear.isCurrent`. */
  filters: string[];
}

/** The stocks of the schema. */
interface Stocks {
  /** By the types of their sums: in answers, in `having`, and in filters by related rows. */
  byType: Map<string, Stock[]>;
  /** The stocks of the values of `orderBy` that sort by a sum over related rows. */
  byOrder: Map<string, Stock>;
  /** Fields with the related rows of one row, like `AcademicYear.classes`, with the columns that these have in common. */
  relations: Map<string, Set<string>>;
}

/** Collects the columns with the tag `@stock` in the extensions of the schema. */
export const StocksPlugin: GraphileConfig.Plugin = {
  name: 'StocksPlugin',
  version: '1.0.0',
  schema: {
    hooks: {
      finalize(schema, build) {
        const { inflection } = build;
        const stocks: Stocks = { byType: new Map(), byOrder: new Map(), relations: new Map() };
        const sum = build.pgAggregateSpecs.find(({ id }) => id === 'sum');
        const { pgResources } = build.input.pgRegistry;
        for (const resource of Object.values(pgResources)) {
          const { codec } = resource;
          const ofView: (Stock & { attributeName: string })[] = [];
          for (const [attributeName, attribute] of Object.entries(codec.attributes)) {
            const tag = (attribute.extensions as { tags?: { stock?: unknown } } | undefined)?.tags?.stock;
            if (typeof tag !== 'string') continue;
            const [column = '', ...filters] = tag.split('|');
            if (!codec.attributes[column]) throw new Error(`@stock of ${codec.name} names no column: ${column}`);
            ofView.push({
              attributeName,
              field: inflection.attribute({ attributeName, codec: codec }),
              dimension: inflection.attribute({ attributeName: column, codec: codec }),
              key: inflection.constantCase(column),
              filters,
            });
          }
          if (ofView.length === 0 || !sum) continue;
          for (const type of [
            inflection.aggregateType({ resource: resource as never, aggregateSpec: sum }),
            inflection.aggregateHavingAggregateInputType({ resource: resource as never, aggregateSpec: sum }),
            inflection.filterTableAggregateType(resource as never, sum),
          ])
            stocks.byType.set(type, ofView);
          for (const other of Object.values(pgResources)) {
            for (const [relationName, relation] of Object.entries(other.getRelations())) {
              if (!relation.isReferencee || relation.remoteResource !== resource) continue;
              const details = { registry: other.registry, codec: other.codec, relationName } as never;
              const type = inflection.tableType(other.codec);
              const shared = new Set(
                relation.remoteAttributes.map((attributeName) => inflection.attribute({ attributeName, codec: codec })),
              );
              stocks.relations.set(`${type}.${inflection.manyRelationConnection(details)}`, shared);
              for (const stock of ofView) {
                if (shared.has(stock.dimension)) continue;
                const name = inflection.orderByAttributeAggregateOfManyRelationByKeys({
                  ...(details as object),
                  attributeName: stock.attributeName,
                  aggregateSpec: sum,
                } as never);
                for (const direction of ['ASC', 'DESC'])
                  stocks.byOrder.set(`${inflection.orderByType(type)}.${name}_${direction}`, stock);
              }
            }
          }
        }
        const { byType, byOrder, relations } = stocks;
        // As JSON, because graphile-export cannot write an object that occurs twice.
        const extension: Stocks = {
          byType: build.EXPORTABLE(
            (json: string) => new Map(JSON.parse(json) as [string, Stock[]][]),
            [JSON.stringify([...byType])],
          ),
          byOrder: build.EXPORTABLE(
            (json: string) => new Map(JSON.parse(json) as [string, Stock][]),
            [JSON.stringify([...byOrder])],
          ),
          relations: build.EXPORTABLE(
            (json: string) =>
              new Map((JSON.parse(json) as [string, string[]][]).map(([name, columns]) => [name, new Set(columns)])),
            [JSON.stringify([...relations].map(([name, columns]) => [name, [...columns]]))],
          ),
        };
        Object.assign(schema.extensions, { stocks: extension });
        return schema;
      },
    },
  },
};

type Value = Record<string, unknown>;
const isObject = (value: unknown): value is Value => typeof value === 'object' && value !== null;

/** The fields for which a filter admits only one value, as paths: `month`, `academicYear.isCurrent`. */
function fixedFields(filter: unknown, path = ''): string[] {
  if (!isObject(filter)) return [];
  return Object.entries(filter).flatMap(([name, value]) => {
    if (name === 'and' && Array.isArray(value)) return value.flatMap((part) => fixedFields(part, path));
    if (name === 'or' || name === 'not' || !isObject(value)) return [];
    const values = value['in'];
    const isFixed = 'equalTo' in value || 'notDistinctFrom' in value || (Array.isArray(values) && values.length === 1);
    // `isCurrent: { equalTo: false }` admits many years.
    const isYes = typeof value['equalTo'] !== 'boolean' || value['equalTo'];
    return isFixed && isYes ? [path + name] : fixedFields(value, `${path}${name}.`);
  });
}

/** @throws GraphQLError when the sum of a stock is not limited to one value of its column */
function refuseSum({ field, dimension, key, filters }: Stock, node: ArgumentNode | SelectionSetNode): never {
  const [shortest = dimension] = filters;
  const filter = shortest
    .split('.')
    .reduceRight(
      (inner, name) => `{ ${name}: ${inner} }`,
      shortest === dimension ? '{ equalTo: … }' : '{ equalTo: true }',
    );
  throw new GraphQLError(
    `A sum of ${field} over several values of ${dimension} counts the same ones again. ` +
      `Filter by one ${dimension} (filter: ${filter}), or group by ${key}.`,
    { nodes: node, extensions: { code: 'SUM_OF_STOCK' } },
  );
}

/**
 * Refuses sums of stocks over several values of their column, in answers, `having`, filters and `orderBy`. Otherwise 20
 * students would silently be 300 after 15 months.
 * @throws GraphQLError
 */
export function checkStocks(
  schema: GraphQLSchema,
  document: DocumentNode,
  operation: OperationDefinitionNode,
  variables: Value,
): void {
  const { byType, byOrder, relations } = schema.extensions['stocks'] as Stocks;
  const fieldsOf = fieldReader(schema, document);
  const isFixedBy = ({ dimension, filters }: Stock, fixed: ReadonlySet<string>) =>
    fixed.has(dimension) || filters.some((path) => fixed.has(path));

  /** Checks the names of summed fields. */
  function checkSums(type: string, names: string[], fixed: ReadonlySet<string>, node: ArgumentNode | SelectionSetNode) {
    for (const stock of byType.get(type) ?? [])
      if (names.includes(stock.field) && !isFixedBy(stock, fixed)) refuseSum(stock, node);
  }

  /** Checks the sums in a value of an argument. */
  function checkValue(type: GraphQLInputType, value: unknown, fixed: ReadonlySet<string>, node: ArgumentNode): void {
    if (isNonNullType(type)) checkValue(type.ofType, value, fixed, node);
    else if (isListType(type)) {
      for (const item of Array.isArray(value) ? value : [value]) checkValue(type.ofType, item, fixed, node);
    } else if (isInputObjectType(type) && isObject(value)) {
      checkSums(type.name, Object.keys(value), fixed, node);
      for (const [name, inner] of Object.entries(value)) {
        const field = type.getFields()[name];
        if (!field) continue;
        const shared = relations.get(`${type.name.replace(/Filter$/, '')}.${name}`) ?? fixed;
        const selected = name === 'aggregates' && isObject(inner) ? fixedFields(inner['filter']) : [];
        checkValue(field.type, inner, new Set([...shared, ...selected]), node);
      }
    } else if (typeof value === 'string') {
      const stock = byOrder.get(`${getNamedType(type).name}.${value}`);
      if (stock) refuseSum(stock, node);
    }
  }

  /** @param fixed  the fields that have one value in the rows of the list around this selection */
  function check(set: SelectionSetNode, type: GraphQLNamedType, fixed: ReadonlySet<string>): void {
    for (const { node, field } of fieldsOf(set, type)) {
      if (!node.selectionSet) continue;
      const below = getNamedType(field.type);
      const isList = field.args.some(({ name }) => name === 'first');
      const inside = new Set(isList ? relations.get(`${type.name}.${field.name}`) : fixed);
      const values = (node.arguments ?? []).flatMap((argument) => {
        const definition = field.args.find(({ name }) => name === argument.name.value);
        return definition
          ? [{ argument, type: definition.type, value: valueFromAST(argument.value, definition.type, variables) }]
          : [];
      });
      for (const { argument, value } of values) {
        if (argument.name.value === 'filter') for (const name of fixedFields(value)) inside.add(name);
        if (argument.name.value === 'groupBy' && Array.isArray(value))
          for (const stocks of byType.values())
            for (const { key, dimension } of stocks) if (value.includes(key)) inside.add(dimension);
      }
      for (const { argument, type: expected, value } of values) checkValue(expected, value, inside, argument);
      checkSums(
        below.name,
        [...fieldsOf(node.selectionSet, below)].map((selected) => selected.field.name),
        inside,
        node.selectionSet,
      );
      check(node.selectionSet, below, isList || below.name.endsWith('Aggregates') ? inside : new Set());
    }
  }
  const root = schema.getQueryType();
  if (root) check(operation.selectionSet, root, new Set());
}
