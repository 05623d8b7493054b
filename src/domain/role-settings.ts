/** The roles that a process of the service logs in as, or switches to. */
export type LoginRole = 'school_api' | 'school_worker' | 'school_graphql';

/** For every statement of the service; see docs/decisions/0005-query-plans-under-row-security.md. */
const planner = { random_page_cost: '1.1', jit: 'off' };

/**
 * The settings of the roles. A migration sets them on the roles, unless an administrator has set other values, for
 * processes that log in as the role. Postgres ignores them when a process switches to the role, so that process sends
 * them when it connects.
 */
export const roleSettings: Record<LoginRole, Record<string, string>> = {
  school_api: { ...planner, statement_timeout: '15s', lock_timeout: '5s' },
  school_worker: planner,
  school_graphql: { ...planner, statement_timeout: '5s', default_transaction_read_only: 'on' },
};

/** The startup options of a connection that switches to a role: the role and its settings. */
export const switchToRole = (role: LoginRole): string =>
  Object.entries({ role, ...roleSettings[role] })
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ');
