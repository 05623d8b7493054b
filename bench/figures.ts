import { withOwner } from '../src/database/pool/pool.ts';
import type { Tokens } from '../src/http/credentials/tokens.ts';
import { schoolYear } from './cases.ts';
import type { Rig } from './measure.ts';
import { median, timed } from './statistics.ts';

type FiguresRig = Pick<Rig, 'database' | 'service' | 'tokens'>;

/** Sends a request as a user of a school or as an operator. @throws unless the response has this `status` */
async function send(
  rig: FiguresRig,
  claims: Parameters<Tokens['sign']>[0],
  status: number,
  method: string,
  path: string,
  body?: object | FormData,
): Promise<{ id: number }> {
  const response = await fetch(`${rig.service.url}/api${path}`, {
    method,
    headers: {
      authorization: `Bearer ${rig.tokens.sign(claims)}`,
      ...(body instanceof FormData ? {} : { 'content-type': 'application/json' }),
    },
    body: body instanceof FormData ? body : body ? JSON.stringify(body) : null,
  });
  const text = await response.text();
  if (response.status !== status)
    throw new Error(`${method} ${path} returned ${response.status}: ${text.slice(0, 500)}`);
  return (JSON.parse(text) as { data: { id: number } }).data;
}

/** Creates a school by POST /api/platform/tenants. */
function newSchool(rig: FiguresRig): Promise<{ id: number }> {
  const { operator } = rig.database;
  const name = `bench-${crypto.randomUUID().slice(0, 8)}`;
  return send(
    rig,
    { session_id: operator.sessionId, user_id: operator.userId, tenant_id: null },
    201,
    'POST',
    '/platform/tenants',
    {
      name,
      subdomain: name,
      contact_email: 'new@bench.example',
      plan_id: 3,
      admin_password: 'a new password',
    },
  );
}

/** Measures plain inserts of the fees and fee items of a school, in ms: the baseline of billing. */
function measureFees(rig: FiguresRig, tenantId: number): Promise<number> {
  return withOwner(rig.database.url, async (owner) => {
    await owner.query(
      `set search_path = tenant_${tenantId}, public;
       select set_config('app.tenant_id', '${tenantId}', false), set_config('app.scope', 'all', false);
       create temporary table fee as select * from student_fee; create temporary table item as select * from student_fee_item; delete from student_fee;
       grant select on fee, item to school_tenant; grant insert on student_fee to school_tenant; set role school_tenant`,
    );
    const columns = 'student_id, fee_component_id, name, amount, period_start, period_end';
    return timed(() =>
      owner.query(
        `begin; insert into student_fee (id, student_id, fee_structure_id, class_id, amount, due_date, billed_on, items_digest)
           select id, student_id, fee_structure_id, class_id, amount, due_date, billed_on, items_digest from fee order by id;
         insert into student_fee_item (student_fee_id, ${columns}) select student_fee_id, ${columns} from item order by id; commit`,
      ),
    );
  });
}

/**
 * Imports 5,000 students into a new school, bills them and promotes 500 of them. @returns the median times
 * in ms
 */
export async function measureSchoolYear(
  rig: FiguresRig,
  rounds: number,
): Promise<{ importing: number; billing: number; billingBaseline: number; billingAgain: number; promoting: number }> {
  const importing: number[] = [];
  const billing: number[] = [];
  const billingBaseline: number[] = [];
  const billingAgain: number[] = [];
  const promoting: number[] = [];
  for (let n = 0; n < rounds; n++) {
    const { id } = await newSchool(rig);
    const sessionId = await withOwner(rig.database.url, async (owner) => {
      const { rows } = await owner.query<{ id: string }>(
        `insert into platform.session (tenant_id, user_id, email, permissions, roles, expires_at)
         select $1, 1, 'new@bench.example', (select array_agg(name) from core.permission), '{admin}', now() + interval '1 hour' returning id`,
        [id],
      );
      return Number(rows[0]?.id);
    });
    const admin = { session_id: sessionId, user_id: 1, tenant_id: id };
    const add = (path: string, body: object) => send(rig, admin, 201, 'POST', path, body);
    const grade = await add('/grades', { name: 'One' });
    const year = await add('/academics/years', {
      name: 'Now',
      start_date: `${schoolYear}-08-01`,
      end_date: `${schoolYear + 1}-07-31`,
      is_current: true,
    });
    const nextYear = await add('/academics/years', {
      name: 'Next',
      start_date: `${schoolYear + 1}-08-01`,
      end_date: `${schoolYear + 2}-07-31`,
    });
    const present = await add('/classes', { name: 'Now', grade_id: grade.id, academic_year_id: year.id });
    const next = await add('/classes', { name: 'Next', grade_id: grade.id, academic_year_id: nextYear.id });
    const lines = Array.from(
      { length: 5000 },
      (_, row) => `Benedikt,Benchmark ${row},2015-04-01,male,Berta Benchmark,${present.id}`,
    );
    const form = new FormData();
    form.append(
      'file',
      new Blob([['first_name,last_name,date_of_birth,gender,parent_name,class_id', ...lines].join('\n')]),
      'students.csv',
    );
    importing.push(await timed(() => send(rig, admin, 201, 'POST', '/students/import', form)));
    const structure = await add('/finance/fee-structures', {
      name: 'Fees',
      academic_year_id: year.id,
      class_ids: [present.id],
      components: ['one_time', 'monthly', 'quarterly', 'annual'].map((frequency) => ({
        name: frequency,
        amount: 100,
        frequency,
      })),
    });
    const bill = () =>
      timed(() =>
        send(rig, admin, 200, 'POST', '/finance/student-fees/generate', {
          fee_structure_id: structure.id,
          date: `${schoolYear + 1}-07-31`,
        }),
      );
    billing.push(await bill());
    billingBaseline.push(await measureFees(rig, id));
    billingAgain.push(await bill());
    const student_ids = Array.from({ length: 500 }, (_, student) => student + 1);
    promoting.push(
      await timed(() =>
        send(rig, admin, 200, 'POST', '/students/promote', {
          student_ids,
          to_class_id: next.id,
          to_academic_year_id: nextYear.id,
        }),
      ),
    );
  }
  await deleteCreatedSchools(rig);
  return {
    importing: median(importing),
    billing: median(billing),
    billingBaseline: median(billingBaseline),
    billingAgain: median(billingAgain),
    promoting: median(promoting),
  };
}

/** Deletes the schools that a measurement created. */
async function deleteCreatedSchools(rig: FiguresRig): Promise<void> {
  await withOwner(rig.database.url, async (owner) => {
    const { rows } = await owner.query<{ id: string }>("select id from platform.tenant where subdomain like 'bench-%'");
    for (const { id } of rows)
      await owner.query(`drop schema tenant_${id} cascade; delete from platform.tenant where id = ${id}`);
  });
}

/**
 * Creates schools by POST /api/platform/tenants and deletes them. All ready schools exist before the first creation;
 * after each one, the one that was taken is created again, as the worker does.
 * @returns the median times in ms
 */
export async function measureProvisioning(
  rig: FiguresRig,
  count: number,
): Promise<{ request: number; tablesInAdvance: number }> {
  const requests: number[] = [];
  const tables: number[] = [];
  await withOwner(rig.database.url, async (owner) => {
    const make = async () => {
      const { rows } = await owner.query<{ has_more: boolean }>('select core.ready_schools_step() as has_more');
      return rows[0]?.has_more;
    };
    while (await make());
    for (let n = 0; n < count; n++) {
      requests.push(await timed(() => newSchool(rig)));
      tables.push(await timed(make));
    }
    await owner.query('select core.ready_school_drop(id) from platform.ready_school');
  });
  await deleteCreatedSchools(rig);
  return { request: median(requests), tablesInAdvance: median(tables) };
}
