import { beforeAll, describe, expect, test } from '@jest/globals';
import { type School, serviceWithSchool } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { FeeStructure as FeeStructureSchema } from '../../src/endpoints/fee-structures.ts';

const { service, school } = await serviceWithSchool();
const path = '/api/finance/fee-structures';

type Structure = OutputOf<typeof FeeStructureSchema>;

let serial = 0;
const unique = (prefix: string) => `${prefix} ${++serial}`;
const tuition = { name: 'Tuition', amount: 1200.5, frequency: 'annual' };
const bus = { name: 'Bus', amount: 30.1, frequency: 'monthly' };

let yearId: number;
let classId: number;
beforeAll(async () => {
  ({ yearId, classId } = await school.classroom('Alpha'));
});

const createStructure = async (fields: Record<string, unknown> = {}, at: School = school) =>
  (await at.admin.post<Structure>(path, { name: unique('Fees'), academic_year_id: yearId, ...fields }, 201)).data;
const getStructure = async (id: number) => (await school.admin.get<Structure>(`${path}/${id}`)).data;

/** A fee structure with which one student has been billed. */
async function createBilledStructure(components = [tuition, bus]) {
  const { classId: class_id } = await school.classroom(unique('Billed'));
  await school.admin.post('/api/students', { first_name: 'Bill', last_name: 'Ed', class_id }, 201);
  const structure = await createStructure({ components, class_ids: [class_id] });
  const { data } = await school.admin.post<{ created: number }>('/api/finance/student-fees/generate', {
    fee_structure_id: structure.id,
  });
  expect(data.created).toBe(1);
  return { ...structure, class_id };
}

let pastYear = new Date().getUTCFullYear() - 19;

/** An academic year in the past, with a class. */
async function createPastYear() {
  const { data } = await school.admin.post<{ id: number }>(
    '/api/academics/years',
    { name: unique('Past'), start_date: `${++pastYear}-01-01`, end_date: `${pastYear}-12-31` },
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
  test('is created with components and classes, read, partly updated, listed and deleted', async () => {
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
    expect(await getStructure(added.data.id)).toEqual(added.data);
    const { data: changed } = await school.admin.put<Structure>(`${path}/${added.data.id}`, { due_date: null });
    expect(changed).toMatchObject({ ...sent, due_date: null, components: added.data.components });
    expect(
      (await school.admin.get<Structure[]>(`${path}?search=all%20of&class_id=${classId}&academic_year_id=${yearId}`))
        .data,
    ).toEqual([changed]);
    await school.admin.delete(`${path}/${added.data.id}`);
    await school.admin.get(`${path}/${added.data.id}`, 404);
  });

  test('has a name that is unique within its academic year, ignoring case', async () => {
    const { name } = await createStructure();
    expect(await school.admin.post(path, { name: name.toUpperCase(), academic_year_id: yearId }, 409)).toMatchObject({
      details: [{ path: 'name' }],
    });
    await createStructure({ name, academic_year_id: (await createPastYear()).yearId });
  });

  test.each([[0], [-1], [1.001], [0.1 + 0.2], [1e10], [1e-7], ['five'], [null]])(
    'refuses a component with the amount %p',
    async (amount) => {
      const answer = await school.admin.post(
        path,
        { name: unique('X'), academic_year_id: yearId, components: [{ ...tuition, amount }] },
        400,
      );
      expect(answer.details).toMatchObject([{ path: 'components.0.amount' }]);
    },
  );

  test('stores the largest and the smallest amount exactly', async () => {
    const { components, total } = await createStructure({
      components: [
        { ...tuition, amount: 9_999_999_999.99 },
        { ...bus, amount: 0.01 },
      ],
    });
    expect([...components.map(({ amount }) => amount), total]).toEqual([9_999_999_999.99, 0.01, 10_000_000_000]);
  });
});

describe('components', () => {
  test('are matched by their exact name if their stored names differ only in spaces', async () => {
    const { id, components } = await createStructure({ components: [tuition, bus] });
    const [first, second] = components;
    // As an earlier version stored them.
    await school.database.query(`update ${school.schema}.fee_component set name = 'School  bus' where id = $1`, [
      first?.id,
    ]);
    await school.database.query(`update ${school.schema}.fee_component set name = 'School bus' where id = $1`, [
      second?.id,
    ]);
    const { data } = await school.admin.put<Structure>(`${path}/${id}`, {
      components: [{ ...bus, name: 'School bus' }],
    });
    expect(data.components).toEqual([{ ...bus, name: 'School bus', id: second?.id }]);
  });

  test('are added and deleted one by one, only through their own fee structure', async () => {
    const [one, other] = [await createStructure(), await createStructure()];
    const { data: created } = await school.admin.post<{ id: number }>(`${path}/${one.id}/components`, bus, 201);
    expect(created).toMatchObject({ ...bus, fee_structure_id: one.id });
    expect(await school.admin.post(`${path}/${one.id}/components`, { ...bus, name: 'BUS' }, 409)).toMatchObject({
      details: [{ path: 'name' }],
    });
    await school.admin.delete(`${path}/${other.id}/components/${created.id}`, 404);
    expect((await getStructure(one.id)).components).toEqual([{ id: created.id, ...bus }]);
    await school.admin.delete(`${path}/${one.id}/components/${created.id}`);
    await school.admin.delete(`${path}/${one.id}/components/${created.id}`, 404);
    await school.admin.post(`${path}/999999/components`, bus, 404);
  });

  test('in an update match by id, else by name ignoring case; those not listed are removed', async () => {
    const { id, components } = await createStructure({ components: [tuition, bus] });
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

  test('can swap names in one update', async () => {
    const { id, components } = await createStructure({ components: [tuition, bus] });
    const [first, second] = components;
    const swapped = [
      { ...first, name: 'Bus' },
      { ...second, name: 'Tuition' },
    ];
    expect((await school.admin.put<Structure>(`${path}/${id}`, { components: swapped })).data.components).toEqual(
      swapped,
    );
  });

  test('with a duplicate name are a 400, with the id of a component of another structure a 422', async () => {
    const [one, other] = [
      await createStructure({ components: [tuition] }),
      await createStructure({ components: [tuition] }),
    ];
    expect(
      (await school.admin.put(`${path}/${one.id}`, { components: [tuition, { ...bus, name: 'tuition' }] }, 400))
        .details,
    ).toMatchObject([{ path: 'components.1.name' }]);
    const foreign = { ...bus, id: other.components[0]?.id };
    expect(await school.admin.put(`${path}/${one.id}`, { components: [tuition, foreign] }, 422)).toMatchObject({
      details: [{ path: 'components.1.id' }],
    });
    expect(await getStructure(one.id)).toEqual(one);
  });

  test('cannot be removed or get another frequency once billed; a new name or amount does not change existing fees', async () => {
    const structure = await createBilledStructure();
    const at = `${path}/${structure.id}`;
    const [first] = structure.components;
    expect((await school.admin.delete(`${at}/components/${first?.id ?? 0}`, 409)).error).toBe('in_use');
    await school.admin.delete(`${path}/${(await createStructure()).id}/components/${first?.id ?? 0}`, 404);
    expect(await school.admin.put(at, { components: [bus] }, 409)).toMatchObject({
      error: 'in_use',
      message: 'Tuition has been billed and cannot be removed.',
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
  test('are replaced as a whole; a class of another academic year is a 422', async () => {
    const { id } = await createStructure({ class_ids: [classId] });
    const { classId: beta } = await school.classroom('Beta');
    const assign = (class_ids: number[], status = 200) =>
      school.admin.post<Structure>(`${path}/${id}/assign-classes`, { class_ids }, status);
    expect((await assign([beta, beta])).data.classes).toEqual([{ id: beta, name: 'Beta' }]);
    const past = await createPastYear();
    expect(await assign([beta, past.classId], 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'class_ids' }],
    });
    expect((await getStructure(id)).classes).toEqual([{ id: beta, name: 'Beta' }]);
    expect((await assign([])).data.classes).toEqual([]);
  });

  test('must be replaced when the academic year changes; after billing the year cannot change', async () => {
    const past = await createPastYear();
    const { id } = await createStructure({ class_ids: [classId] });
    await school.admin.put(`${path}/${id}`, { academic_year_id: past.yearId }, 422);
    expect(
      (await school.admin.put<Structure>(`${path}/${id}`, { academic_year_id: past.yearId, class_ids: [past.classId] }))
        .data,
    ).toMatchObject({
      academic_year_id: past.yearId,
      classes: [{ id: past.classId }],
    });
    const { id: used } = await createBilledStructure();
    expect(
      await school.admin.put(`${path}/${used}`, { academic_year_id: past.yearId, class_ids: [] }, 409),
    ).toMatchObject({
      error: 'in_use',
      details: [{ path: 'academic_year_id' }],
    });
  });

  test('can neither be deleted nor move to another year while assigned; the academic year cannot be deleted either', async () => {
    const past = await createPastYear();
    const { id } = await createStructure({ academic_year_id: past.yearId, class_ids: [past.classId] });
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

test('an accountant manages fee structures; a teacher and a school without the feature get a 403', async () => {
  const accountant = await school.user(['accountant']);
  const { data } = await accountant.post<Structure>(
    path,
    { name: unique('Accounting'), academic_year_id: yearId },
    201,
  );
  await accountant.delete(`${path}/${data.id}`);
  await (await school.user(['teacher'])).get(path, 403);
  const plain = await service.school({ feature_flags: { fees_management: false } });
  expect((await plain.admin.get(path, 403)).error).toBe('feature_disabled');
});
