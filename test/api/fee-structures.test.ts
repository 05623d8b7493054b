import { beforeAll, describe, expect, test } from '@jest/globals';
import { type School, serviceWithSchool } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { FeeStructure as FeeStructureSchema } from '../../src/endpoints/fee-structures.ts';

const { service, school } = await serviceWithSchool();
const path = '/api/finance/fee-structures';

type Structure = OutputOf<typeof FeeStructureSchema>;

let serial = 0;
const unique = (what: string) => `${what} ${++serial}`;
const tuition = { name: 'Tuition', amount: 1200.5, frequency: 'annual' };
const bus = { name: 'Bus', amount: 30.1, frequency: 'monthly' };

let yearId: number;
let classId: number;
beforeAll(async () => {
  ({ yearId, classId } = await school.classroom('Alpha'));
});

const add = async (fields: Record<string, unknown> = {}, at: School = school) =>
  (await at.admin.post<Structure>(path, { name: unique('Fees'), academic_year_id: yearId, ...fields }, 201)).data;
const read = async (id: number) => (await school.admin.get<Structure>(`${path}/${id}`)).data;

/** A structure with a student in its class, billed. */
async function billed(components = [tuition, bus]) {
  const { classId: class_id } = await school.classroom(unique('Billed'));
  await school.admin.post('/api/students', { first_name: 'Bill', last_name: 'Ed', class_id }, 201);
  const structure = await add({ components, class_ids: [class_id] });
  const { data } = await school.admin.post<{ created: number }>('/api/finance/student-fees/generate', {
    fee_structure_id: structure.id,
  });
  expect(data.created).toBe(1);
  return { ...structure, class_id };
}

/** An academic year of long ago with a class. */
async function pastYear() {
  const { data } = await school.admin.post<{ id: number }>(
    '/api/academics/years',
    { name: unique('Past'), start_date: `${1900 + ++serial}-01-01`, end_date: `${1900 + serial}-12-31` },
    201,
  );
  const { gradeId } = await school.classroom(unique('Grade of the past'));
  const past = await school.admin.post<{ id: number }>(
    '/api/classes',
    { name: unique('Past'), grade_id: gradeId, academic_year_id: data.id },
    201,
  );
  return { yearId: data.id, classId: past.data.id };
}

describe('a fee structure', () => {
  test('is added with components and classes, read, changed in part, listed, and removed', async () => {
    const sent = { name: 'Year fees', academic_year_id: yearId, description: 'All of it', due_date: '2026-09-30' };
    const added = await school.admin.post<Structure>(
      path,
      { ...sent, components: [tuition, bus], class_ids: [classId] },
      201,
    );
    expect(added.headers.get('location')).toBe(`${path}/${added.data.id}`);
    expect(added.data).toMatchObject({
      ...sent,
      components: [tuition, bus],
      classes: [{ id: classId, name: 'Alpha' }],
      total: 1230.6,
    });
    expect(await read(added.data.id)).toEqual(added.data);
    const { data: changed } = await school.admin.put<Structure>(`${path}/${added.data.id}`, { due_date: null });
    expect(changed).toMatchObject({ ...sent, due_date: null, components: added.data.components });
    expect(
      (await school.admin.get<Structure[]>(`${path}?search=all%20of&class_id=${classId}&academic_year_id=${yearId}`))
        .data,
    ).toEqual([changed]);
    await school.admin.delete(`${path}/${added.data.id}`);
    await school.admin.get(`${path}/${added.data.id}`, 404);
  });

  test('has a name once in its year, whatever its case; another year may have it too', async () => {
    const { name } = await add();
    expect(await school.admin.post(path, { name: name.toUpperCase(), academic_year_id: yearId }, 409)).toMatchObject({
      details: [{ path: 'name' }],
    });
    await add({ name, academic_year_id: (await pastYear()).yearId });
  });

  test('that was read may be sent back as it came, and a field that only the service sets can not be changed', async () => {
    const structure = await add({ components: [tuition], class_ids: [classId] });
    const { data } = await school.admin.put<Structure & { updated_at: string }>(`${path}/${structure.id}`, structure);
    expect(data).toEqual({ ...structure, updated_at: data.updated_at });
    expect((await school.admin.put(`${path}/${structure.id}`, { ...structure, total: 1 }, 400)).details).toMatchObject([
      { path: 'total' },
    ]);
  });

  test.each([[0], [-1], [1.001], [0.1 + 0.2], [1e10], [1e-7], ['5'], [null]])(
    'costs no amount like %p',
    async (amount) => {
      const answer = await school.admin.post(
        path,
        { name: unique('X'), academic_year_id: yearId, components: [{ ...tuition, amount }] },
        400,
      );
      expect(answer.details).toMatchObject([{ path: 'components.0.amount' }]);
    },
  );

  test('keeps the largest amount and the smallest to the cent', async () => {
    const { components, total } = await add({
      components: [
        { ...tuition, amount: 9_999_999_999.99 },
        { ...bus, amount: 0.01 },
      ],
    });
    expect([...components.map(({ amount }) => amount), total]).toEqual([9_999_999_999.99, 0.01, 10_000_000_000]);
  });

  test('an older version than If-Match names is a 412', async () => {
    const { id } = await add();
    const { headers } = await school.admin.get(`${path}/${id}`);
    await school.admin.post(`${path}/${id}/components`, bus, 201);
    await school.admin.send(
      'PUT',
      `${path}/${id}`,
      { body: { name: unique('New') }, headers: { 'If-Match': headers.get('etag') ?? '' } },
      412,
    );
  });
});

describe('components', () => {
  test('are added and removed one by one, in the structure of the path alone', async () => {
    const [one, other] = [await add(), await add()];
    const { data: made } = await school.admin.post<{ id: number }>(`${path}/${one.id}/components`, bus, 201);
    expect(made).toMatchObject({ ...bus, fee_structure_id: one.id });
    expect(await school.admin.post(`${path}/${one.id}/components`, { ...bus, name: 'BUS' }, 409)).toMatchObject({
      details: [{ path: 'name' }],
    });
    await school.admin.delete(`${path}/${other.id}/components/${made.id}`, 404);
    expect((await read(one.id)).components).toEqual([{ id: made.id, ...bus }]);
    await school.admin.delete(`${path}/${one.id}/components/${made.id}`);
    await school.admin.delete(`${path}/${one.id}/components/${made.id}`, 404);
    await school.admin.post(`${path}/999999/components`, bus, 404);
  });

  test('are replaced by name: who has the name changes in place, an id renames, what is not named goes', async () => {
    const { id, components } = await add({ components: [tuition, bus] });
    const [first, second] = components;
    const { data } = await school.admin.put<Structure>(`${path}/${id}`, {
      components: [
        { name: 'TUITION', amount: 7, frequency: 'term' },
        { ...bus, id: second?.id, name: 'Coach' },
        { name: 'Lab', amount: 1, frequency: 'one_time' },
      ],
    });
    expect(data.components).toMatchObject([
      { id: first?.id, name: 'TUITION', amount: 7, frequency: 'term' },
      { id: second?.id, name: 'Coach' },
      { name: 'Lab' },
    ]);
    expect((await school.admin.put<Structure>(`${path}/${id}`, { components: [] })).data).toMatchObject({
      components: [],
      total: 0,
    });
  });

  test('take the names of each other in one change', async () => {
    const { id, components } = await add({ components: [tuition, bus] });
    const [first, second] = components;
    const swapped = [
      { ...first, name: 'Bus' },
      { ...second, name: 'Tuition' },
    ];
    expect((await school.admin.put<Structure>(`${path}/${id}`, { components: swapped })).data.components).toEqual(
      swapped,
    );
  });

  test('named twice are a 400, and the id of another structure a 422', async () => {
    const [one, other] = [await add({ components: [tuition] }), await add({ components: [tuition] })];
    expect(
      (await school.admin.put(`${path}/${one.id}`, { components: [tuition, { ...bus, name: 'tuition' }] }, 400))
        .details,
    ).toMatchObject([{ path: 'components.1.name' }]);
    const foreign = { ...bus, id: other.components[0]?.id };
    expect(await school.admin.put(`${path}/${one.id}`, { components: [tuition, foreign] }, 422)).toMatchObject({
      details: [{ path: 'components.1.id' }],
    });
    expect(await read(one.id)).toEqual(one);
  });

  test('that were billed are not removed and keep their frequency, by either way; name and amount may change for what comes', async () => {
    const structure = await billed();
    const at = `${path}/${structure.id}`;
    const [first] = structure.components;
    expect((await school.admin.delete(`${at}/components/${first?.id ?? 0}`, 409)).error).toBe('in_use');
    await school.admin.delete(`${path}/${(await add()).id}/components/${first?.id ?? 0}`, 404);
    expect(await school.admin.put(at, { components: [bus] }, 409)).toMatchObject({
      error: 'in_use',
      message: "Tuition was billed: it can't be removed.",
    });
    expect(await school.admin.put(at, { components: [{ ...tuition, frequency: 'monthly' }, bus] }, 409)).toMatchObject({
      error: 'in_use',
      details: [{ path: 'components.0.frequency' }],
    });
    await school.admin.put(at, { components: [{ ...tuition, id: first?.id, name: 'Teaching', amount: 1 }, bus] });
    const { data: fees } = await school.admin.get<{ id: number; amount: number }[]>(
      `/api/finance/student-fees?fee_structure_id=${structure.id}`,
    );
    expect(fees).toMatchObject([{ amount: 1230.6 }]);
    const { data: fee } = await school.admin.get<{ items: unknown[] }>(`/api/finance/student-fees/${fees[0]?.id ?? 0}`);
    expect(fee.items).toMatchObject([{ name: 'Tuition', amount: 1200.5 }, { name: 'Bus' }]);
    expect((await school.admin.delete(at, 409)).error).toBe('in_use');
  });
});

describe('the classes of a structure', () => {
  test('are replaced as a whole, and none of another year is taken', async () => {
    const { id } = await add({ class_ids: [classId] });
    const { classId: beta } = await school.classroom('Beta');
    const assign = (class_ids: number[], status = 200) =>
      school.admin.post<Structure>(`${path}/${id}/assign-classes`, { class_ids }, status);
    expect((await assign([beta, beta])).data.classes).toEqual([{ id: beta, name: 'Beta' }]);
    const past = await pastYear();
    expect(await assign([beta, past.classId], 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'class_ids' }],
    });
    expect((await read(id)).classes).toEqual([{ id: beta, name: 'Beta' }]);
    expect((await assign([])).data.classes).toEqual([]);
  });

  test('go with it into another year, or it stays; with fees it stays in any case', async () => {
    const past = await pastYear();
    const { id } = await add({ class_ids: [classId] });
    await school.admin.put(`${path}/${id}`, { academic_year_id: past.yearId }, 422);
    expect(
      (await school.admin.put<Structure>(`${path}/${id}`, { academic_year_id: past.yearId, class_ids: [past.classId] }))
        .data,
    ).toMatchObject({
      academic_year_id: past.yearId,
      classes: [{ id: past.classId }],
    });
    const { id: used } = await billed();
    expect(
      await school.admin.put(`${path}/${used}`, { academic_year_id: past.yearId, class_ids: [] }, 409),
    ).toMatchObject({
      error: 'in_use',
      details: [{ path: 'academic_year_id' }],
    });
  });

  test('are in use by it, and so is its year; a class stays in its year', async () => {
    const past = await pastYear();
    const { id } = await add({ academic_year_id: past.yearId, class_ids: [past.classId] });
    expect((await school.admin.delete(`/api/classes/${past.classId}`, 409)).error).toBe('in_use');
    expect(
      (await school.admin.put(`/api/classes/${past.classId}`, { academic_year_id: yearId }, 409)).details,
    ).toMatchObject([{ path: 'academic_year_id' }]);
    await school.admin.post(`${path}/${id}/assign-classes`, { class_ids: [] });
    await school.admin.delete(`/api/classes/${past.classId}`);
    expect((await school.admin.delete(`/api/academics/years/${past.yearId}`, 409)).error).toBe('in_use');
    await school.admin.delete(`${path}/${id}`);
    await school.admin.delete(`/api/academics/years/${past.yearId}`);
  });
});

test('an accountant keeps structures, a teacher sees none, and without the feature there are none', async () => {
  const accountant = await school.user(['accountant']);
  const { data } = await accountant.post<Structure>(
    path,
    { name: unique('By the book'), academic_year_id: yearId },
    201,
  );
  await accountant.delete(`${path}/${data.id}`);
  await (await school.user(['teacher'])).get(path, 403);
  const plain = await service.school({ feature_flags: { fees_management: false } });
  expect((await plain.admin.get(path, 403)).error).toBe('feature_disabled');
});
