import type pg from 'pg';
import { migrate } from '../../database/migrate/migrate.ts';
import { withOwner } from '../../database/pool/pool.ts';
import { asReplica } from '../../database/transaction.ts';
import { homeSubscription, nodeSubscription } from '../replication/names.ts';
import { dropSlot, unsubscribe } from '../replication/subscriptions.ts';
import { adoptAsSuccessor } from '../tokens.ts';

/** The tables of the platform that nodes copy, those that others refer to first. */
const platformTables = ['plan', 'user_account', 'setting', 'notification_setting', 'notification_template'];

/** Copies the tables of the platform from a node to a home that has no schools yet. Passwords are not among them. */
async function copyPlatform(home: pg.Client, node: pg.Client): Promise<void> {
  const { rowCount } = await home.query('select from platform.tenant union all select from platform.node limit 1');
  if (rowCount) return;
  await asReplica(home, async () => {
    for (const table of platformTables.toReversed()) await home.query(`delete from platform.${table}`);
    for (const table of platformTables) {
      const { rows } = await node.query<{ rows: string }>(
        `select coalesce(json_agg(t), '[]')::text as rows from platform.${table} t`,
      );
      await home.query(
        `insert into platform.${table} select * from json_populate_recordset(null::platform.${table}, $1)`,
        [rows[0]?.rows],
      );
    }
    for (const table of ['plan', 'user_account'])
      await home.query(
        `select setval(pg_get_serial_sequence($1, 'id'), (select greatest(max(id), 1) from platform.${table}))`,
        [`platform.${table}`],
      );
  });
}

/**
 * Enters a node whose home is lost at another home, under the id that it has. `school node reconcile` then enters its
 * schools in the directory. The first node also gives the home plans, settings and operators, who need new passwords.
 * @throws if the database is not a node of this name, or the home has another node with its id
 */
export async function takeOver(home: pg.Client, name: string, url: string): Promise<void> {
  await withOwner(url, async (node) => {
    const { rows } = await node.query<{ id: string }>('select id from platform.node where is_this and name = $1', [
      name,
    ]);
    const id = rows[0]?.id;
    if (id === undefined) throw new Error(`This database is not a node ${name}.`);
    const { rows: known } = await home.query<{ name: string; status: string }>(
      'select name, status from platform.node where id = $1',
      [id],
    );
    // An earlier attempt has stopped.
    if (known[0]?.name === name && known[0].status === 'joining') return;
    if (known[0]) throw new Error(`The home has the node ${known[0].name} with the id of this one already.`);
    await migrate({ ownerUrl: url });
    await copyPlatform(home, node);
    await unsubscribe(node, nodeSubscription(Number(id)));
    await dropSlot(node, homeSubscription(Number(id)));
    await adoptAsSuccessor(node, url);
    await home.query(`insert into platform.node (id, name, url, status) values ($1, $2, $3, 'joining')`, [
      id,
      name,
      url,
    ]);
    await home.query(
      "select setval(pg_get_serial_sequence('platform.node', 'id'), (select max(id) from platform.node))",
    );
  });
}
