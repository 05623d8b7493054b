import type { Login, SpecificationClient } from '../client.ts';
import { day } from './days.ts';

/** The admin runs the buses. */
export async function runBuses(client: SpecificationClient, { admin: as, aminaId }: { admin: Login; aminaId: number }) {
  /** Adds two records, changes the first, lists both and deletes the second. Answers the id of the first. */
  async function keep(path: string, name: string, fields: object, spare: object, change: object): Promise<number> {
    const { id } = await client.call(`POST ${path}`, { as, bodyNotShown: fields });
    const { id: spareId } = await client.call(`POST ${path}`, { as, bodyNotShown: { ...fields, ...spare } });
    await client.call(`PUT ${path}/{id}`, { as, path: { id }, bodyNotShown: change });
    await client.list(`GET ${path}`, { as, search: name });
    await client.call(`DELETE ${path}/{id}`, { as, path: { id: spareId } });
    return id;
  }
  const busId = await keep(
    '/api/transport/buses',
    'LAG-1',
    { registration_number: 'LAG-1', capacity: 40 },
    { registration_number: 'LAG-2' },
    { model: 'Coaster' },
  );
  const driverId = await keep(
    '/api/transport/drivers',
    'Dele',
    { name: 'Dele', license_number: 'L-1' },
    { license_number: 'L-2' },
    { phone: '+234 1 234' },
  );
  const routeId = await keep(
    '/api/transport/routes',
    'North',
    { name: 'North' },
    { name: 'South' },
    { bus_id: busId, driver_id: driverId },
  );
  const stop = { route_id: routeId, name: 'Market' };
  const stopId = await keep('/api/transport/stops', 'Market', stop, { name: 'Spare' }, { pickup_time: '07:15' });
  const nextStop = await client.call('POST /api/transport/stops', { as, bodyNotShown: { ...stop, name: 'Church' } });
  await client.call('GET /api/transport/buses/{id}', { as, path: { id: busId } });
  await client.call('GET /api/transport/routes/{id}', { as, path: { id: routeId } });
  await client.call('POST /api/transport/routes/{id}/stops/reorder', {
    as,
    path: { id: routeId },
    bodyNotShown: { stop_ids: [nextStop.id, stopId] },
  });
  await client.list('GET /api/transport/routes/{id}/stops', { as, path: { id: routeId }, search: 'Church' });

  const { id: staffId } = await client.call('POST /api/transport/staff', {
    as,
    bodyNotShown: { name: 'Sade', role: 'attendant' },
  });
  await client.list('GET /api/transport/staff', { as, search: 'Sade' });
  await client.call('POST /api/transport/bus-assignments', {
    as,
    bodyNotShown: { bus_id: busId, route_id: routeId, driver_id: driverId, staff_id: staffId },
  });
  await client.list('GET /api/transport/bus-assignments', { as, search: 'North' });
  await client.call('GET /api/transport/staff/{id}/workload', { as, path: { id: staffId } });

  const enrollment = { student_id: aminaId, route_id: routeId, stop_id: stopId };
  for (const enrollment_type of ['pickup', 'Drop', 'pick-up', 'two way', 'Both']) {
    const { id } = await client.call('POST /api/transport/enroll', { as, body: { ...enrollment, enrollment_type } });
    await client.call('DELETE /api/transport/enroll/{id}', { as, path: { id } });
  }
  await client.call('POST /api/transport/enroll', { as, body: { ...enrollment, enrollment_type: 'both' } });
  await client.list('GET /api/transport/enrollments', {
    as,
    search: 'Amina',
    filters: [{ route_id: routeId }, { student_id: aminaId }],
  });
  await client.call('GET /api/transport/buses/{id}/details', { as, path: { id: busId } });
  await client.call('POST /api/transport/schedules/exceptions', {
    as,
    bodyNotShown: { route_id: routeId, date: day(3), kind: 'cancelled' },
  });
  // No route runs on a day without school, and the specification shows no endpoint that adds a fee plan.
  await client.list('GET /api/transport/schedules', { as, search: 'North', mayBeEmpty: true });
  await client.list('GET /api/transport/fee-plans', { as, search: 'North', mayBeEmpty: true });
  await client.call('GET /api/transport/schedules/conflict-check', { as });
  await client.call('GET /api/transport/dashboard', { as });
  await client.call('GET /api/transport/export/contact-sheet', { as });
}
