import { pixel, type Registered, type OpenApi, sampleRequest } from './registry.ts';
import { send } from './wire.ts';
import type { School, TestService } from './service.ts';

/**
 * Fills a school so that its record number `base + 1` exists in every table that the API can fill: every sequence of its
 * schema jumps to `base`, then each create endpoint is sent a sample that refers to `base + 1`, until nothing new comes
 * of it. Every text holds the marker. Answers the endpoints that made nothing, with their last answer.
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
  // What makes one record comes before what makes many: its record has the number.
  let open = endpoints
    .filter(({ route, operation }) => route.isCreate && operation.access === 'tenant')
    .sort((a, b) => Number(a.operation.record === null) - Number(b.operation.record === null))
    .map((endpoint) => ({ endpoint, last: '' }));
  for (let before = -1; open.length !== before;) {
    before = open.length;
    const left: typeof open = [];
    for (const { endpoint } of open) {
      let last = '';
      // With every reference it can have; where some exclude each other, with those it must have.
      for (const withReferences of [true, false]) {
        const answer = await send(service.url, { ...sampleRequest(document, endpoint, { id, marker, withReferences }), token: school.admin.token });
        last = answer.status < 300 ? '' : `${endpoint.name} ${answer.text.slice(0, 300)}`;
        if (last === '') break;
      }
      if (last !== '') left.push({ endpoint, last });
    }
    open = left;
  }
  await database.query(
    `with picture as (insert into ${school.schema}.file (content, content_type) values ($1, 'image/png') returning id)
     update ${school.schema}.user_account set profile_picture_id = picture.id from picture where user_account.id = $2`,
    [pixel, id],
  );
  return open.map(({ last }) => last);
}
