import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { withRole, type BareTenant, provision } from '../support/database/tenants.ts';

let database: TestDatabase;
let school: BareTenant;

beforeAll(async () => {
  database = await testDatabase();
  school = await provision(database);
});
afterAll(() => database.drop());

/** The privileges on each object, except the owner's. An object without an access list has the defaults of Postgres. */
async function grants(objects: string, kind: 'f' | 'n'): Promise<Record<string, string[]>> {
  const rows = await database.query<{ name: string; grants: string[] }>(
    `select o.name, array_agg(distinct coalesce(r.rolname, 'PUBLIC') || ' ' || x.privilege_type order by coalesce(r.rolname, 'PUBLIC') || ' ' || x.privilege_type) as grants
     from (${objects}) o (name, acl, owner)
     cross join lateral aclexplode(coalesce(o.acl, acldefault($1, o.owner))) x
     left join pg_roles r on r.oid = x.grantee
     where x.grantee <> o.owner
     group by o.name`,
    [kind],
  );
  return Object.fromEntries(rows.map((row) => [row.name, row.grants]));
}

const functionsOf = (schema: string) =>
  `select proname::text, proacl, proowner from pg_proc where pronamespace = '${schema}'::regnamespace`;

/** All functions of core and platform that a role other than the owner can execute. */
const granted: Record<string, string[]> = {
  school_api: [
    'accounts_at',
    'admit',
    'backend_memory_mb',
    'call',
    'call_impersonated',
    'call_forwarded',
    'is_copied',
    'prepare_at_home',
    'undo_at_home',
    'wal_position',
    'count_requests',
    'end_operator_sessions',
    'ended_operator_sessions',
    'has_analysts',
    'impersonation_note',
    'impersonators',
    'record_operation_times',
    'record_requests',
    'schools_of_sessions',
    'second_factor_reencrypt',
    'second_factor_secrets',
    'server_id',
    'stream_check',
    'stream_read',
    'stream_system',
  ],
  school_analyst: ['analytics_jobs'],
  // And what the jobs call, see below.
  school_worker: ['job_give_up', 'jobs', 'outbox_schools', 'outbox_write', 'tenant_lock_key', 'unlock_jobs'],
  school_tenant: [
    'attending',
    'class_staff',
    'has_not_ended',
    'enrolled',
    'class_roll',
    'given_left_on',
    'has_left',
    'left_on_faults',
    'rides',
    'with_left_on',
    'is_impersonation_allowed',
    'is_second_factor_required',
    'school_require_second_factor',
    'notify',
    'send_message',
    'can_see_teacher_details',
    'has_whole_school_scope',
    'has_own_scope',
    'hides_contacts',
    'sees_guardian_details',
    'is_visible_student',
    'is_linked',
    'children',
    'require_whole_school',
    'school_allow_impersonation',
    'roles_of_inactive_people',
    'school_rename',
    'setup_complete',
    'subscription_plans',
    'subscription_status',
    'subscription_upgrade',
    'require_also',
    'widen_scope',
    'restore_scope',
    'teachers_on_leave',
    'timetable_lease',
    'tenant_usage',
    'enforce_plan_limits',
    'audit_school',
    'limit_to_reader',
    'read_in_scope',
    'may_compare',
    'scope_of',
  ],
  'school_platform and school_tenant and school_worker': ['lock_key', 'unknown_lock'],
  'school_api and school_worker': ['analytics_age', 'node_queues', 'node_reachability', 'queue', 'readiness'],
  'school_api and school_platform and school_tenant': ['search_path_of'],
  school_platform: [
    'audit',
    'refuse_school_elsewhere',
    'require_current_server',
    'server_refusal',
    'school_take_id',
    'change_jobs',
    'failed_jobs',
    'impersonation_begin',
    'operator_set',
    'message_admins',
    'is_reserved_subdomain',
    'may_receive_answers',
    'next_question_run',
    'passkey_add',
    'passkey_begin',
    'passkey_remove',
    'price_currency',
    'require_plan_fits',
    'status',
    'subscription_lapse',
    'subscription_period',
    'subscription_period_end',
    'tenant_provision',
  ],
  'school_platform and school_tenant': [
    'max_api_keys_per_user',
    'calendar_feeds_end',
    'operator_access',
    'webhook_secret_overlap',
    'clean_message',
    'clean_title',
    'day_at_school',
    'day_begins',
    'diff',
    'api_key_id',
    'claim_idempotency_key',
    'keep_idempotent_answer',
    'own_idempotency_key',
    'evict_prepared_statements',
    'deleted_record',
    'device_remember',
    'effective_rights',
    'enabled_features',
    'enqueue',
    'enqueue_all',
    'fail',
    'fail_missing',
    'file_content',
    'fill_placeholders',
    'full_name',
    'has_permission',
    'permission_scope',
    'has_second_factor',
    'is_enrollment',
    'login_challenge',
    'login_challenge_use',
    'name_key',
    'needs_second_factor',
    'recovery_codes_replace',
    'second_factor_attempt',
    'second_factor_delete',
    'second_factor_remove',
    'second_factor_summary',
    'second_factor_use',
    'totp_begin',
    'totp_confirm',
    'idempotency_key_lifetime',
    'has_permission_for_all',
    'impersonator',
    'is_feature_enabled',
    'is_restore',
    'lock_rights',
    'login_attempt',
    'login_refusal',
    'login_unlock',
    'own_password_attempt',
    'session_revoke',
    'sessions_of',
    'login_succeeded',
    'max_prepared_statements',
    'prepare',
    'json_page',
    'permissions',
    'recipient_variables',
    'record_delete',
    'record_export_page',
    'record_insert',
    'record_lock',
    'record_sort_keys',
    'has_narrow_condition',
    'is_search_prepared',
    'name_key',
    'narrow_to_scope',
    'scope_rank',
    'sees_children',
    'grants_children',
    'record_page',
    'record_page_query',
    'record_update',
    'record_where',
    'refresh_rights',
    'refuse_deleted_reference',
    'refuse_field',
    'refuse_impersonator',
    'is_as_read',
    'refuse_read_only',
    'refuse_unread',
    'check_values',
    'is_stored',
    'order_fault',
    'range_fault',
    'value_faults',
    'with_school_days',
    'run_operation',
    'run_write',
    'may_read',
    'is_wide_enough',
    'search_patterns',
    'sort_key',
    'render',
    'parameters',
    'require_match',
    'require_unchanged',
    'run_prepared_in_write',
    'run_unprepared',
    'run_prepared',
    'session_end',
    'session_id',
    'session_open',
    'session_set_rights',
    'session_rotate',
    'sessions_revoke',
    'set_row_scope',
    'student_id',
    'teacher_id',
    'template_format',
    'picture_url',
    'picture_file_id',
    'queue_webhooks',
    'wake_webhooks',
    'as_amount',
    'currency_decimals',
    'decimals_fault',
    'own_currency',
    'school_currency',
    'placeholder_names',
    'tenant_features',
    'tenant_id',
    'tenant_summary',
    'time_zone',
    'today',
    'token_is_recent',
    'token_use',
    'tokens_void',
    'user_id',
    'version_of',
    'version_for',
    'version_of_answer',
    'require_version',
    'names_version',
    'versioned_fields',
    'as_timestamp',
    'repeats',
    'chosen',
    'refuse_untrue',
    'is_set_by_service',
    'fixed_names',
    'record_values',
    'unchanged_answer',
    'unchanged_deleted_answer',
    'may_see_deleted',
    'with_present_moments',
    'written_amount',
    'written_day',
  ],
};

/** All privileges on tables of core and platform, except the owner's. */
const grantedTables: Record<string, string[]> = {
  'core.currency': ['school_platform SELECT', 'school_tenant SELECT'],
  'core.current_subscription': ['school_analyst SELECT', 'school_platform SELECT'],
  'core.error': ['school_platform SELECT', 'school_tenant SELECT'],
  'core.notification_event': ['school_platform SELECT', 'school_tenant SELECT'],
  'core.school_audit_log': ['school_tenant SELECT'],
  'core.webhook_event_type': ['school_platform SELECT', 'school_tenant SELECT'],
  'core.job_type': ['school_worker SELECT'],
  'core.operation': ['school_api SELECT'],
  'core.permission': ['school_platform SELECT', 'school_tenant SELECT'],
  'core.record': ['school_platform SELECT', 'school_tenant SELECT'],
  'platform.api_key': [
    'school_platform DELETE',
    'school_platform INSERT (user_id, name, role, tenant_ids, is_read_only, prefix, key_hash, expires_at)',
    'school_platform SELECT',
    'school_platform UPDATE (name, role, tenant_ids, is_read_only, expires_at, updated_at)',
  ],
  'platform.audit_log': ['school_platform SELECT'],
  'platform.file': [
    'school_platform DELETE',
    'school_platform INSERT (content, content_type, name)',
    'school_platform SELECT',
  ],
  'platform.idempotency_key': [
    'school_platform INSERT (user_id, key, operation, request_hash)',
    'school_platform SELECT',
    'school_platform UPDATE (operation, request_hash, answer, created_at, updated_at)',
  ],
  'platform.node': ['school_platform SELECT (id, is_this, unreachable_since)'],
  'platform.notification_setting': [
    'school_platform SELECT',
    'school_platform UPDATE (in_app, push, email, sender_name, quiet_from, quiet_until, push_per_user_per_day, emails_per_user_per_day, updated_at)',
  ],
  'platform.notification_template': [
    'school_platform DELETE',
    'school_platform INSERT (key, channel, subject, body, is_active)',
    'school_platform SELECT',
    'school_platform UPDATE (key, channel, subject, body, is_active, updated_at)',
  ],
  'platform.saved_question': [
    'school_platform DELETE',
    'school_platform INSERT (owner_id, name, description, query, variables, schedule, recipient_ids, next_run_at)',
    'school_platform SELECT',
    'school_platform UPDATE (name, description, query, variables, schedule, recipient_ids, next_run_at, updated_at)',
  ],
  'platform.plan': [
    'school_analyst SELECT (id, name, price_monthly)',
    'school_platform DELETE',
    'school_platform INSERT (name, price_monthly, max_students, max_teachers, features, is_public)',
    'school_platform SELECT',
    'school_platform UPDATE (name, price_monthly, max_students, max_teachers, features, updated_at, is_public)',
  ],
  'platform.setting': ['school_platform SELECT', 'school_platform UPDATE (currency, updated_at)'],
  'platform.state_transition': ['school_platform SELECT'],
  'platform.subscription': [
    'school_analyst SELECT (tenant_id, plan_id, status, started_at, current_period_end, grace_days, is_final)',
    'school_platform INSERT (tenant_id, plan_id, status, current_period_end)',
    'school_platform SELECT',
    'school_platform UPDATE (plan_id, status, started_at, current_period_end, updated_at, grace_days, is_final)',
  ],
  'platform.tenant': [
    'school_analyst SELECT (id, name, subdomain, status, plan_id, trial_ends_at, is_setup_complete, time_zone, created_at)',
    'school_platform INSERT (name, subdomain, plan_id, contact_email, trial_ends_at, feature_flags, time_zone)',
    'school_platform SELECT',
    'school_platform UPDATE (name, subdomain, status, plan_id, contact_email, trial_ends_at, feature_flags, is_impersonation_allowed, time_zone, suspended_at, deleted_at, updated_at)',
  ],
  'platform.tenant_usage': [
    'school_analyst SELECT (tenant_id, students, teachers, classes)',
    'school_platform SELECT',
    'school_platform UPDATE (updated_at)',
  ],
  'platform.usage_day': ['school_platform SELECT'],
  'platform.user_account': [
    'school_platform INSERT (email, first_name, last_name, role, analyst_tenant_ids)',
    'school_platform SELECT',
    'school_platform UPDATE (password_hash, first_name, last_name, phone, email_verified_at, profile_picture_id, last_login_at, updated_at)',
  ],
  'platform.webhook': [
    'school_platform DELETE',
    'school_platform INSERT (url, description, events, is_active, created_by)',
    'school_platform SELECT',
    'school_platform UPDATE (url, description, events, is_active, failing_since, failures, retry_at, disabled_at, created_by, updated_at)',
  ],
  'platform.webhook_delivery': [
    'school_platform INSERT (webhook_id, event_id)',
    'school_platform SELECT',
    'school_platform UPDATE (status, reason, next_attempt_at, updated_at)',
  ],
  'platform.webhook_event': ['school_platform INSERT (type, key, body)', 'school_platform SELECT'],
  'platform.webhook_secret': [
    'school_platform DELETE',
    'school_platform INSERT (webhook_id, secret)',
    'school_platform SELECT (id, webhook_id, expires_at)',
    'school_platform UPDATE (expires_at, updated_at)',
  ],
};

/** The privileges on the tables of schemas, except the owner's. A column grant lists its columns. */
async function tableGrants(...schemas: string[]): Promise<Record<string, string[]>> {
  const rows = await database.query<{ name: string; holding: string; columns: string | null }>(
    `select o.name, coalesce(r.rolname, 'PUBLIC') || ' ' || x.privilege_type as holding, string_agg(o.attname, ', ' order by o.attnum) as columns
     from (select c.oid::regclass::text as name, c.relacl as acl, c.relowner as owner, null::name as attname, 0 as attnum from pg_class c
             where c.relnamespace = any ($1::regnamespace[]) and c.relkind in ('r', 'p', 'v', 'm', 'f')
           union all
           select c.oid::regclass::text, a.attacl, c.relowner, a.attname, a.attnum from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attacl is not null
             where c.relnamespace = any ($1::regnamespace[])) o
     cross join lateral aclexplode(o.acl) x left join pg_roles r on r.oid = x.grantee
     where x.grantee <> o.owner
     group by 1, 2, o.attname is null order by 1, 2`,
    [schemas],
  );
  const found: Record<string, string[]> = {};
  for (const { name, holding, columns } of rows)
    (found[name] ??= []).push(columns === null ? holding : `${holding} (${columns})`);
  return found;
}

describe('roles', () => {
  test('the API, worker and analytics roles can log in, request roles cannot, and none has or inherits server privileges', async () => {
    const roles = await database.query(
      `select rolname::text as role, rolcanlogin as login, rolinherit as inherits, rolsuper or rolcreaterole or rolcreatedb or rolbypassrls or rolreplication as special
       from pg_roles where rolname like 'school\\_%' order by rolname`,
    );
    expect(roles).toEqual([
      { role: 'school_analyst', login: false, inherits: false, special: false },
      { role: 'school_api', login: true, inherits: false, special: false },
      { role: 'school_graphql', login: true, inherits: false, special: false },
      { role: 'school_platform', login: false, inherits: false, special: false },
      { role: 'school_sql', login: false, inherits: false, special: false },
      { role: 'school_tenant', login: false, inherits: false, special: false },
      { role: 'school_worker', login: true, inherits: false, special: false },
    ]);
  });

  test('only the API can switch to request roles, and only the analytics server to the analyst role', async () => {
    const members = await database.query(
      // Before Postgres 16 the member decides whether it inherits, and the column does not exist.
      `select m.member::regrole::text as member, m.roleid::regrole::text as role, m.admin_option,
         coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, r.rolinherit) as inherit_option
       from pg_auth_members m join pg_roles r on r.oid = m.member
       where m.member::regrole::text like 'school\\_%' order by 2`,
    );
    expect(members).toEqual([
      { member: 'school_graphql', role: 'school_analyst', admin_option: false, inherit_option: false },
      { member: 'school_api', role: 'school_platform', admin_option: false, inherit_option: false },
      { member: 'school_api', role: 'school_tenant', admin_option: false, inherit_option: false },
    ]);
  });
});

describe('grants', () => {
  test('schema privileges are exactly those of this list', async () => {
    const schemas =
      "select nspname::text, nspacl, nspowner from pg_namespace where nspname not like 'pg\\_%' and nspname <> 'information_schema'";
    expect(await grants(schemas, 'n')).toEqual({
      analytics: ['school_analyst USAGE'],
      api: ['school_api USAGE', 'school_platform USAGE', 'school_tenant USAGE'],
      core: ['school_api USAGE', 'school_platform USAGE', 'school_tenant USAGE', 'school_worker USAGE'],
      graphile_worker: ['school_worker USAGE'],
      platform: ['school_platform USAGE', 'school_tenant USAGE'],
      public: ['PUBLIC USAGE'],
      [school.schema]: ['school_tenant USAGE'],
    });
  });

  test('execute privileges on core functions are exactly those of this list and those that jobs declare', async () => {
    const expected = Object.entries(granted).flatMap(([roles, names]) =>
      names.map((name): [string, string[]] => [name, roles.split(' and ').map((role) => `${role} EXECUTE`)]),
    );
    const calls = await database.query<{ name: string }>('select unnest(calls) as name from core.job_type');
    const ofJobs = calls.map(({ name }): [string, string[]] => [name, ['school_worker EXECUTE']]);
    expect(await grants(functionsOf('core'), 'f')).toEqual(Object.fromEntries([...ofJobs, ...expected]));
  });

  test('search_normal is the only executable function of platform', async () => {
    expect(await grants(functionsOf('platform'), 'f')).toEqual({
      search_normal: ['school_platform EXECUTE', 'school_sql EXECUTE', 'school_tenant EXECUTE'],
    });
  });

  test('the role of a school can execute only the functions for row policies, timetable conflicts and bus seats', async () => {
    const names = [
      ...['scope_class_ids', 'taught_class_ids', 'visible_class_ids', 'child_ids', 'children_without_contacts'],
      ...['visible_student_ids', 'visible_guardian_ids'],
      ...['class_require_places', 'school_today'],
      ...['route_buses', 'timetable_conflicts', 'timetable_refuse_conflicts', 'transport_require_seats'],
    ];
    expect(await grants(functionsOf(school.schema), 'f')).toEqual(
      Object.fromEntries(names.map((name) => [name, ['school_tenant EXECUTE']])),
    );
  });

  test('helper functions of api can be executed by both request roles, and operations only by their own', async () => {
    const functions = await database.query<{ name: string; access: string | null }>(
      `select p.proname::text as name, o.access from pg_proc p left join core.operation o on o.name = p.proname where p.pronamespace = 'api'::regnamespace order by 1`,
    );
    expect(functions.length).toBeGreaterThan(60);
    const expected = functions.map(({ name, access }): [string, string[]] => [
      name,
      access === 'platform' || access === 'analyst'
        ? ['school_platform EXECUTE']
        : access === 'tenant'
          ? ['school_tenant EXECUTE']
          : ['school_platform EXECUTE', 'school_tenant EXECUTE'],
    ]);
    expect(await grants(functionsOf('api'), 'f')).toEqual(Object.fromEntries(expected));
  });

  test('table privileges in core and platform are exactly those of this list', async () => {
    expect(await tableGrants('core', 'platform', 'public')).toEqual(grantedTables);
  });

  test('analysts can only read the fact tables and their views', async () => {
    const tables = await tableGrants('analytics', 'mart');
    expect(Object.keys(tables).length).toBeGreaterThan(20);
    const { 'mart.school': state, ...others } = tables;
    expect(state).toEqual(['school_analyst SELECT (tenant_id, refreshed_at)']);
    expect([...new Set(Object.values(others).flat())]).toEqual(['school_analyst SELECT']);
  });

  test('only the role of a school can use its tables, and only the worker the queue tables', async () => {
    const grantees = async (schema: string) => [
      ...new Set(Object.values(await tableGrants(schema)).flatMap((list) => list.map((grant) => grant.split(' ')[0]))),
    ];
    expect(await grantees(school.schema)).toEqual(['school_tenant']);
    expect(await grantees('graphile_worker')).toEqual(['school_worker']);
    expect(await grantees('graphile_migrate')).toEqual([]);
  });

  test('a role that inserts can use sequences, and no role can set them', async () => {
    const sequences = await database.query<{ grants: string }>(
      `select distinct c.relnamespace::regnamespace::text || ': ' || coalesce(r.rolname, 'PUBLIC') || ' ' || x.privilege_type as grants
       from pg_class c cross join lateral aclexplode(c.relacl) x left join pg_roles r on r.oid = x.grantee
       where c.relkind = 'S' and x.grantee <> c.relowner order by 1`,
    );
    expect(sequences.map((row) => row.grants)).toEqual([
      'graphile_worker: school_worker USAGE',
      'platform: school_platform USAGE',
      `${school.schema}: school_tenant USAGE`,
    ]);
  });

  test('there are no default privileges', async () => {
    expect(await database.query('select defaclrole::regrole::text, defaclobjtype from pg_default_acl')).toEqual([]);
  });
});

describe('refusals', () => {
  const denied = '42501';
  const context = () => ({
    'app.tenant_id': String(school.id),
    'app.scope': 'all',
    search_path: `${school.schema}, public`,
  });

  test('the API can read no table except core.operation', async () => {
    const tables = await database.query<{ name: string }>(
      `select oid::regclass::text as name from pg_class where relkind in ('r', 'p', 'v')
         and relnamespace in (select oid from pg_namespace where nspname in ('core', 'platform', 'graphile_worker', 'graphile_migrate', $1)) order by 1`,
      [school.schema],
    );
    expect(tables.length).toBeGreaterThan(30);
    await withRole(database.url, 'school_api', context(), async ({ attempt }) => {
      const open: string[] = [];
      for (const { name } of tables) if ((await attempt(`select from ${name} limit 1`)) !== denied) open.push(name);
      expect(open).toEqual(['core.operation']);
    });
  });

  test('the API can call operations only through the dispatcher', async () => {
    const operations = await database.query<{ name: string }>('select name from core.operation order by name');
    await withRole(database.url, 'school_api', context(), async ({ attempt }) => {
      for (const { name } of operations)
        expect({ name, outcome: await attempt(`select api.${name}('{}')`) }).toEqual({ name, outcome: denied });
    });
  });

  test("a school's role cannot call operator or internal functions, read platform tables, or create tables", async () => {
    const operations = await database.query<{ name: string }>(
      "select name from core.operation where access = 'platform' order by name",
    );
    expect(operations.length).toBeGreaterThan(10);
    await withRole(database.url, 'school_tenant', context(), async ({ attempt }) => {
      for (const { name } of operations)
        expect({ name, outcome: await attempt(`select api.${name}('{}')`) }).toEqual({ name, outcome: denied });
      for (const call of [
        'core.tenant_migrate(1)',
        'core.tenant_secure(1)',
        "core.tenant_provision(1, '{}')",
        'core.tenant_seed(1)',
        'core.tenant_lock_key(1)',
        "core.email_prepare(1, 1, 'password_reset')",
        'core.clean_up()',
        'core.refresh_token_new(1)',
        "core.feed_owner(1, '')",
        'core.enter_tenant(1)',
        'core.purge_drop(1)',
        'core.archive_open(1)',
        "core.audit('tenant.suspend', 'tenant', 1, 1, '{}')",
        "core.call('auth_profile', 1, '{}', '{}')",
        "core.stream_read(1, '{1}', '{0}', 1, 1)",
        "core.stream_check('{1}')",
        "core.schools_of_sessions('{1}')",
        "core.admit('auth_profile', 1, '{}', '{}')",
        'core.queue()',
        'core.jobs()',
        'core.failed_jobs(null, 1)',
        'core.job(1)',
        "core.change_jobs('cancel', '{1}', null, false)",
        'core.analytics_refresh(1, true)',
        'core.analytics_jobs()',
      ]) {
        expect({ call, outcome: await attempt(`select ${call}`) }).toEqual({ call, outcome: denied });
      }
      for (const table of [
        'tenant',
        'plan',
        'session',
        'user_account',
        'audit_log',
        'one_time_token',
        'refresh_token',
      ]) {
        expect({ table, outcome: await attempt(`select from platform.${table}`) }).toEqual({ table, outcome: denied });
      }
      for (const statement of ['create table x ()', `create table ${school.schema}.x ()`, 'create table public.x ()']) {
        expect({ statement, outcome: await attempt(statement) }).toEqual({ statement, outcome: denied });
      }
    });
  });

  test('the worker cannot read the tables of schools or sessions', async () => {
    await withRole(database.url, 'school_worker', context(), async ({ attempt }) => {
      expect(await attempt(`select from ${school.schema}.student`)).toBe(denied);
      expect(await attempt('select from platform.session')).toBe(denied);
      expect(await attempt("select core.call('students_list', 1, '{}', '{}')")).toBe(denied);
      expect(await attempt('select core.clean_up()')).toBe(1);
    });
  });

  test('the audit log accepts inserts, and nobody, not even its owner, can change or delete entries', async () => {
    await database.query("insert into platform.audit_log (action, target_type) values ('test', 'test')");
    const append = 'S403A';
    await withRole(database.url, 'postgres', {}, async ({ attempt }) => {
      expect(await attempt("update platform.audit_log set action = 'other'")).toBe(append);
      expect(await attempt('delete from platform.audit_log')).toBe(append);
      expect(await attempt('truncate platform.audit_log')).toBe(append);
      expect(
        await attempt(
          "insert into platform.audit_log (id, action, target_type) values (1, 'x', 'x') on conflict (id) do update set action = excluded.action",
        ),
      ).toBe(append);
    });
    for (const role of ['school_platform', 'school_tenant', 'school_worker', 'school_api']) {
      await withRole(database.url, role, {}, async ({ attempt }) => {
        for (const statement of [
          "update platform.audit_log set action = 'other'",
          'delete from platform.audit_log',
          'truncate platform.audit_log',
        ]) {
          expect({ role, statement, outcome: await attempt(statement) }).toEqual({ role, statement, outcome: denied });
        }
      });
    }
    expect(await database.query("select action from platform.audit_log where action = 'test'")).toEqual([
      { action: 'test' },
    ]);
  });
});
