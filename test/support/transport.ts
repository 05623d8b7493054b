import type { School, TestService } from './service.ts';

/** A stop, as far as the tests read it. */
export interface Stop {
  id: number;
  route_id: number;
  name: string;
  sequence: number;
  pickup_time: string | null;
  drop_time: string | null;
  student_count: number | null;
}

/** An enrolment, as far as the tests read it. */
export interface Enrollment {
  id: number;
  student_id: number;
  student_name: string;
  class_id: number | null;
  class_name: string | null;
  route_id: number;
  route_name: string;
  stop_id: number;
  stop_name: string;
  stop_sequence: number | null;
  pickup_time: string | null;
  enrollment_type: string;
  status: string;
  bus_id: number | null;
  bus_registration_number: string | null;
  driver_name: string | null;
  cancelled_at: string | null;
  cancelled_by_name: string | null;
  cancel_reason: string | null;
}

/** What runs a route today. */
interface Run {
  status: string;
  bus_id: number | null;
  bus_registration_number: string | null;
  driver_id: number | null;
  driver_name: string | null;
  staff_id: number | null;
}

/** A route, as far as the tests read it. */
export interface Route {
  id: number;
  name: string;
  bus_id: number | null;
  bus_registration_number: string | null;
  driver_id: number | null;
  today: Run | null;
  stop_count: number;
  capacity: number | null;
  student_count: number | null;
  pickup_count: number | null;
  drop_count: number | null;
}

let serial = 0;

/** A name that no other call in this test file answers; names come in the order of their numbers. */
const unique = (what: string) => `${what} ${String(++serial).padStart(5, '0')}`;

/** The day so many days from today, in UTC as schools of tests are. */
export const day = (fromToday = 0) => new Date(Date.now() + fromToday * 86_400_000).toISOString().slice(0, 10);

/** A school with a class whose academic year has 100 days behind it and 265 before it, and school on all seven days of the week. */
export async function transportSchool(service: TestService) {
  const school: School = await service.school();
  const { admin, schema } = school;
  await service.database.query(`update ${schema}.timetable_config set working_days = '{1,2,3,4,5,6,7}'`);
  const yearId = await school.insert('academic_year', { name: 'This year', start_date: day(-100), end_date: day(265), is_current: true });
  const { classId } = await school.classroom(unique('Class'));
  const make = async (path: string, body: object) => (await admin.post<{ id: number }>(`/api/transport${path}`, body, 201)).data.id;
  const addStudent = (fields: Record<string, unknown> = {}) =>
    school.insert('student', { first_name: 'Stu', last_name: unique('Dent'), admission_number: unique('ADM'), class_id: classId, ...fields });
  const enroll = (student_id: number, route_id: number, stop_id: number, enrollment_type = 'both', who = admin) =>
    who.send<Enrollment>('POST', '/api/transport/enroll', { body: { student_id, route_id, stop_id, enrollment_type } });
  return {
    school,
    admin,
    schema,
    yearId,
    classId,
    addBus: (fields: object = {}) => make('/buses', { registration_number: unique('BUS'), capacity: 40, ...fields }),
    addDriver: (fields: object = {}) => make('/drivers', { name: unique('Driver'), license_number: unique('LIC'), ...fields }),
    addStaff: (fields: object = {}) => make('/staff', { name: unique('Helper'), role: 'attendant', ...fields }),
    addRoute: (fields: object = {}) => make('/routes', { name: unique('Route'), ...fields }),
    addStop: (route_id: number, fields: object = {}) => make('/stops', { route_id, name: unique('Stop'), ...fields }),
    addStudent,
    enroll,
    /** A route with a bus of its own, a stop, and so many students on it. */
    async ridden(students: number, bus: object = {}, type = 'both') {
      const busId = await make('/buses', { registration_number: unique('BUS'), capacity: 40, ...bus });
      const routeId = await make('/routes', { name: unique('Route'), bus_id: busId });
      const stopId = await make('/stops', { route_id: routeId, name: unique('Stop') });
      const enrollments: Enrollment[] = [];
      for (let n = 0; n < students; n++) enrollments.push((await enroll(await addStudent(), routeId, stopId, type)).data);
      return { busId, routeId, stopId, enrollments };
    },
    assign: (body: object, status = 201) =>
      admin.post<{ id: number; starts_on: string; ends_on: string | null }>('/api/transport/bus-assignments', body, status),
    except: (body: object, status = 201) => admin.post<{ id: number }>('/api/transport/schedules/exceptions', body, status),
    route: async (id: number) => (await admin.get<Route>(`/api/transport/routes/${String(id)}`)).data,
    stops: async (id: number) => (await admin.get<Stop[]>(`/api/transport/routes/${String(id)}/stops?pageSize=100`)).data,
  };
}
