import { checkNodes } from '../../src/servers/nodes/check.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import type { TaskContext } from '../task-context.ts';

/**
 * Stores which nodes of the home answer, and since when the others do not, and which servers were restored to an earlier
 * moment. Does nothing on a node and on a single server.
 */
export async function check_nodes(
  _payload: unknown,
  { pool, ownerUrl, logger }: Pick<TaskContext, 'pool' | 'ownerUrl' | 'logger'>,
): Promise<void> {
  const { rows } = await pool.query<{ names: string[] }>(
    'select array(select json_object_keys(core.node_reachability())) as names',
  );
  if (!rows[0]?.names.length) return;
  for (const { name, error, isChanged, tokens } of await withOwner(ownerUrl, checkNodes)) {
    if (tokens !== undefined && tokens !== 'accepted')
      logger.error({
        message:
          tokens === 'home behind'
            ? 'This database is older than a node remembers it, so its worker stops. See: school node verify'
            : 'A node is older than the home remembers it, so its worker stops. See: school node verify',
        node: name,
      });
    if (!isChanged) continue;
    if (error === undefined) logger.info({ message: 'A node answers again.', node: name });
    else
      logger.error({ message: 'A node does not answer. Requests of its schools get 503.', node: name, cause: error });
  }
}
