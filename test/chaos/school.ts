import type { SendRequest } from './client.ts';
import { nothing } from './acknowledged.ts';
import { day } from './random.ts';
import { password } from './cluster.ts';
import type { World } from './world.ts';

const components = [
  [
    { name: 'Tuition', amount: 333.33, frequency: 'monthly' },
    { name: 'Bus', amount: 17.01, frequency: 'quarterly' },
    { name: 'Admission', amount: 50, frequency: 'one_time' },
  ],
  [
    { name: 'Tuition', amount: 99.99, frequency: 'term' },
    { name: 'Lab', amount: 0.03, frequency: 'annual' },
  ],
  [{ name: 'Lunch', amount: 41.5, frequency: 'monthly' }],
];

/** The state that all clients share: a school and its records. */
export type SharedWorld = Omit<World, 'request' | 'client' | 'unique'>;

export const adminEmail = 'admin@chaos.example';

/** Creates a school. @returns its id */
export async function createSchool(operator: SendRequest, subdomain: string): Promise<number> {
  const body = {
    name: 'Chaos',
    subdomain,
    contact_email: adminEmail,
    plan_id: 3,
    admin_password: password,
    feature_flags: {},
  };
  return (await operator<{ id: number }>([201], 'POST', '/platform/tenants', body, subdomain)).data.id;
}

/** Fills the school: two years, classes, students, teachers, subjects, users, fee structures and bus routes. */
export async function fillSchool(admin: SendRequest): Promise<SharedWorld> {
  const world: SharedWorld = {
    students: [],
    residents: [],
    fees: [],
    invoices: [],
    payments: [],
    structures: [],
    years: [],
    subjects: [],
    teachers: [],
    users: [],
    routes: [],
    slots: [],
    rides: [],
    acknowledged: nothing(),
  };
  let serial = 0;
  const make = async (path: string, body: object) =>
    (await admin<{ id: number }>([201], 'POST', path, body, `made-${String(++serial)}`)).data.id;

  const gradeId = await make('/grades', { name: 'One' });
  const now = new Date();
  /** The first or last day of a month, counted from the start of this year of the school. */
  const monthStart = (offset: number) => new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 6 + offset, 1));
  const monthEnd = (offset: number) => new Date(monthStart(offset + 1).getTime() - 86_400_000);
  for (const year of [0, 1]) {
    const [first, last] = [12 * year, 12 * year + 11];
    const yearId = await make('/academics/years', {
      name: `Year ${String(year)}`,
      start_date: day(monthStart(first)),
      end_date: day(monthEnd(last)),
      is_current: year === 0,
    });
    for (const [name, from, to] of [
      ['First term', first, first + 5],
      ['Second term', first + 6, last],
    ] as const)
      await make('/academic-terms', {
        academic_year_id: yearId,
        name,
        start_date: day(monthStart(from)),
        end_date: day(monthEnd(to)),
      });
    const classes: number[] = [];
    for (const name of ['A', 'B', 'C'])
      classes.push(await make('/classes', { name, grade_id: gradeId, academic_year_id: yearId }));
    world.years.push({ id: yearId, start: monthStart(first), classes });
    for (const [n, parts] of components.entries()) {
      const fees = { name: `Fees ${String(n)}`, academic_year_id: yearId, components: parts, class_ids: classes };
      world.structures.push({ id: await make('/finance/fee-structures', fees), yearId });
    }
  }
  const classes = world.years[0]?.classes ?? [];
  for (let n = 0; n < 15; n++) {
    const classId = classes[n % classes.length] ?? 0;
    const id = await make('/students', {
      first_name: 'Stu',
      last_name: `Resident ${String(n)}`,
      class_id: classId,
      parent_email: `parent-${String(n)}@home.example`,
    });
    world.students.push(id);
    world.residents.push({ id, classId });
  }
  for (const name of ['Mathematics', 'Physics', 'Music'])
    world.subjects.push(await make('/subjects', { name, code: name.slice(0, 3) }));
  for (let n = 0; n < 4; n++)
    world.teachers.push(await make('/teachers', { first_name: 'Tea', last_name: `Cher ${String(n)}` }));
  for (let n = 0; n < 4; n++)
    world.users.push(
      await make('/users', {
        email: `user${String(n)}@chaos.example`,
        first_name: 'Uma',
        last_name: `User ${String(n)}`,
        password,
        role_ids: [],
      }),
    );
  for (let n = 0; n < 2; n++) {
    const bus_id = await make('/transport/buses', { registration_number: `BUS ${String(n)}`, capacity: 4 });
    const id = await make('/transport/routes', { name: `Route ${String(n)}`, bus_id });
    world.routes.push({ id, stopId: await make('/transport/stops', { route_id: id, name: 'Stop' }) });
  }
  return world;
}
