import { pixel, type Registered, type OpenApi, sampleRequest } from './registry.ts';
import { send } from './wire.ts';
import type { School, TestService } from './service.ts';

/**
 * Fills a school so that its record number `base + 1` exists in every table that the API can fill: every sequence of its
 * schema jumps to `base`, then each create endpoint is sent a sample that refers to `base + 1`, until nothing new comes
 * of it. Every text holds the marker; the setup is then complete. Answers the endpoints that made nothing, with their last answer.
 */
export async function populate(
  service: TestService,
  school: School,
  { endpoints, document }: { endpoints: readonly Registered[]; document: OpenApi },
  base: number,
  marker: string,
): Promise<string[]> {
  const { database } = service;
  await database.query(`select setval(c.oid, $2) from pg_class c where c.relnamespace = $1::regnamespace and c.relkind = 'S'`, [school.schema, base]);
  const id = base + 1;
  await school.classroom(`Class ${marker}`);
  await database.query(
    `insert into ${school.schema}.teacher (first_name, last_name, email) select $1, 'Teacher', $1 || '@school.example'
     where not exists (select from ${school.schema}.teacher where id = $2)`,
    [marker, id],
  );
  // The admin is a teacher too, of the class: what somebody reads of themself is there.
  await database.query(
    `with me as (
       insert into ${school.schema}.teacher (first_name, last_name, user_id)
       select $1, 'Admin', u.id from ${school.schema}.user_account u where u.email = $2 on conflict (user_id) do update set user_id = excluded.user_id returning id)
     update ${school.schema}.class set class_teacher_id = me.id from me
     where class.id = $3 and not exists (select from ${school.schema}.class led where led.class_teacher_id = me.id)`,
    [marker, school.adminEmail, id],
  );
  const creates = endpoints.filter(({ route, operation }) => route.isCreate && operation.access === 'tenant');
  // What makes one record comes before what makes many: its record has the number.
  const [single, many] = [true, false].map((isOne) =>
    creates.filter(({ operation }) => (operation.record !== null) === isOne).map((endpoint) => ({ endpoint, last: '' })),
  );
  let open = single ?? [];
  const sequences = `select c.oid, pg_sequence_last_value(c.oid) as value from pg_class c where c.relnamespace = $1::regnamespace and c.relkind = 'S'`;
  /** Sends samples until `atMost` of them made something, and leaves the others open; answers whether one did. */
  const attempt = async (withReferences: boolean, atMost: number) => {
    const before = open.length;
    for (const one of [...open]) {
      if (before - open.length === atMost) break;
      const numbers = await database.query<{ oid: number; value: string }>(sequences, [school.schema]);
      const answer = await send(service.url, { ...sampleRequest(document, one.endpoint, { id, marker, withReferences }), token: school.admin.token });
      if (answer.status < 300) {
        open = open.filter((other) => other !== one);
        continue;
      }
      one.last = `${one.endpoint.name} ${answer.text.slice(0, 300)}`;
      // What was refused must not have used the number up.
      await database.query(`select setval(oid, value) from jsonb_to_recordset($1) s (oid oid, value bigint)`, [JSON.stringify(numbers)]);
    }
    return open.length < before;
  };
  // With every reference they can have, as long as that makes something; where some exclude each other, with those they must have.
  while ((await attempt(true, Infinity)) || (await attempt(false, 1)));
  // What is owed, large enough for what the samples pay.
  await database.query(
    `with fee as (
       insert into ${school.schema}.student_fee (student_id, fee_structure_id, class_id, amount, due_date) select $1, $1, $1, 1000000, '2090-01-01'
       where exists (select from ${school.schema}.fee_component where id = $1) and not exists (select from ${school.schema}.student_fee where id = $1) returning id, student_id)
     insert into ${school.schema}.student_fee_item (student_fee_id, student_id, fee_component_id, name, amount, period_start, period_end)
     select id, student_id, $1, 'Tuition', 1000000, '2026-01-01', '2026-12-31' from fee`,
    [id],
  );
  open.push(...(many ?? []));
  while (await attempt(false, Infinity));
  // A mark that was corrected.
  await database.query(
    `with mark as (insert into ${school.schema}.attendance (student_id, class_id, date, status, marked_by_name) select s.id, s.class_id, current_date, 'late', $2
       from ${school.schema}.student s where s.id = $1 and s.class_id is not null returning *)
     insert into ${school.schema}.attendance_correction (attendance_id, student_id, class_id, status, marked_by_name, marked_at, corrected_by_name, corrected_at)
     select id, student_id, class_id, 'absent', $2, marked_at, $2, marked_at from mark`,
    [id, marker],
  );
  // The admin has a notification, whoever else was told of something before them.
  await database.query(
    `insert into ${school.schema}.notification (id, user_id, title, message) select $1, u.id, $2, $2 from ${school.schema}.user_account u where u.email = $3
     on conflict (id) do update set user_id = excluded.user_id, title = excluded.title, message = excluded.message`,
    [id, marker, school.adminEmail],
  );
  // Whom a class can still choose: a teacher who is nobody's class teacher, a student in no class.
  await database.query(`insert into ${school.schema}.teacher (first_name, last_name) values ('Free', 'Teacher')`);
  await database.query(`insert into ${school.schema}.student (first_name, last_name, admission_number, grade_id) values ('Free', 'Student', $2, $1)`, [
    id,
    `free ${base}`,
  ]);
  await database.query(
    `with picture as (insert into ${school.schema}.file (content, content_type) values ($1, 'image/png') returning id)
     update ${school.schema}.user_account set profile_picture_id = picture.id from picture where user_account.id = $2`,
    [pixel, id],
  );
  await database.query('update platform.tenant set is_setup_complete = true where id = $1', [school.id]);
  return open.map(({ last }) => last);
}
