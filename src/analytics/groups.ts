import {
  type ExecutionDetails,
  type FieldArgs,
  type FieldInfo,
  type GrafastResultsList,
  Step,
} from 'postgraphile/grafast';
import type { PgSelectRowsStep, PgSelectStep } from 'postgraphile/@dataplan/pg';

type Rows = readonly (readonly (string | null)[])[] | null;
interface Details {
  indicies: { index: number }[];
}

const compare = new Intl.Collator('en', { numeric: true }).compare;

/** Sorts groups by their keys. pg-aggregates returns them in the order of Postgres, which is undefined. */
export class GroupsStep extends Step<Rows> {
  static override $$export = { moduleName: 'groups', exportName: 'GroupsStep' };
  readonly #select: () => PgSelectStep;
  readonly #rows: () => PgSelectRowsStep;

  constructor($select: PgSelectStep) {
    super();
    const $rows = $select.items();
    this.addDependency($rows);
    this.addDependency($select.getGroupDetails());
    const select = this.addRef($select);
    const rows = this.addRef($rows);
    this.#select = () => this.getRef(select) as PgSelectStep;
    this.#rows = () => this.getRef(rows) as PgSelectRowsStep;
  }

  /** Field arguments apply to the select step. */
  apply($callback: Parameters<PgSelectStep['apply']>[0]) {
    this.#select().apply($callback);
  }

  listItem($item: Step) {
    return this.#rows().listItem($item as never);
  }

  override execute({
    indexMap,
    values: [lists, details],
  }: ExecutionDetails<[Rows, Details]>): GrafastResultsList<Rows> {
    return indexMap((index) => {
      const keys = details.at(index).indicies;
      return (
        lists.at(index)?.toSorted((a, b) => {
          for (const { index: key } of keys) {
            const order = compare(a[key] ?? '', b[key] ?? '');
            if (order !== 0) return order;
          }
          return 0;
        }) ?? null
      );
    });
  }
}

/** Sorts the groups of `groupedAggregates` by their keys. */
export const GroupsPlugin: GraphileConfig.Plugin = {
  name: 'GroupsPlugin',
  version: '1.0.0',
  schema: {
    hooks: {
      GraphQLObjectType_fields_field(field, build, { scope: { fieldName, isConnectionType } }) {
        const { plan } = field;
        if (fieldName !== 'groupedAggregates' || !(isConnectionType as boolean | undefined) || !plan) return field;
        return {
          ...field,
          plan: build.EXPORTABLE(
            (GroupsStep, plan) => ($connection: Step, args: FieldArgs, info: FieldInfo) =>
              new GroupsStep(plan($connection, args, info) as PgSelectStep),
            [GroupsStep, plan],
          ),
        };
      },
    },
  },
};
