import { inDays, pick, upTo } from '../random.ts';
import type { Step } from '../world.ts';

const statuses = ['present', 'absent', 'late'] as const;

/** Marks a class on a day that only this client marks, so that the last acknowledged mark is the current one. */
const markAttendance: Step = async (world, n) => {
  const class_id = pick(world.years[0]?.classes ?? [], n);
  const date = inDays(-(1 + world.client + 10 * Math.floor(n() * 2)));
  const marked = world.residents.filter(({ classId }) => classId === class_id && n() < 0.8);
  if (marked.length === 0) return;
  const records = marked.map(({ id }) => ({ student_id: id, status: pick(statuses, n) ?? 'present' }));
  const body = { class_id, date, records };
  const { status } = await world.request([200, 201, 409, 422], 'POST', '/attendance/mark', body, world.unique('mark'));
  if (status > 201) return;
  for (const record of records) world.acknowledged.marks[`${String(record.student_id)} ${date}`] = record.status;
};

const addSlot: Step = async (world, n) => {
  const body = {
    class_id: pick(world.years[0]?.classes ?? [], n),
    subject_id: pick(world.subjects, n),
    teacher_id: n() < 0.9 ? pick(world.teachers, n) : null,
    day_of_week: upTo(5, n),
    period: upTo(4, n),
  };
  const { status, data } = await world.request<{ id: number }>(
    [201, 409, 422],
    'POST',
    '/timetable/slots',
    body,
    world.unique('slot'),
  );
  if (status !== 201) return;
  world.slots.push(data.id);
  world.acknowledged.slots.push(data.id);
};

const moveSlot: Step = async (world, n) => {
  const id = pick(world.slots, n);
  if (!id) return;
  const body = { day_of_week: upTo(5, n), period: upTo(4, n) };
  await world.request([200, 404, 409, 422], 'PATCH', `/timetable/slots/${String(id)}/move`, body);
};

const removeSlot: Step = async (world, n) => {
  const id = pick(world.slots, n);
  if (!id) return;
  const { status } = await world.request([200, 404], 'DELETE', `/timetable/slots/${String(id)}`);
  world.acknowledged[status === 0 ? 'slotsMayBeRemoved' : 'slotsRemoved'].push(id);
  world.slots.splice(world.slots.indexOf(id), 1);
};

/** Notifies some users, or everybody, in the app and by email. */
const notify: Step = async (world, n) => {
  const title = world.unique('News');
  const user_ids = world.users.filter(() => n() < 0.5);
  const isForAll = n() < 0.2 || user_ids.length === 0;
  const body = {
    ...(isForAll ? { all: true } : { user_ids }),
    title,
    message: 'School ends at noon.',
    channels: n() < 0.5 ? ['in_app', 'email'] : ['in_app'],
  };
  const { data } = await world.request<{ sent: number }>([200, 201], 'POST', '/notifications/send', body, title);
  world.acknowledged.notified.push({ title, recipients: data.sent });
};

const ride: Step = async (world, n) => {
  const route = pick(world.routes, n);
  const body = {
    student_id: pick(world.residents, n)?.id,
    route_id: route?.id,
    stop_id: route?.stopId,
    enrollment_type: pick(['pickup', 'drop', 'both'], n),
  };
  const { status, data } = await world.request<{ id: number }>(
    [201, 409, 422],
    'POST',
    '/transport/enroll',
    body,
    world.unique('ride'),
  );
  if (status !== 201) return;
  world.rides.push(data.id);
  world.acknowledged.rides.push(data.id);
};

const cancelRide: Step = async (world, n) => {
  const id = pick(world.rides, n);
  if (!id) return;
  const { status } = await world.request([200, 404, 409], 'DELETE', `/transport/enroll/${String(id)}`);
  if (status === 200) world.acknowledged.ridesCancelled.push(id);
  world.rides.splice(world.rides.indexOf(id), 1);
};

export const schoolDaySteps: Record<string, [Step, number]> = {
  markAttendance: [markAttendance, 18],
  addSlot: [addSlot, 8],
  moveSlot: [moveSlot, 4],
  removeSlot: [removeSlot, 5],
  notify: [notify, 8],
  ride: [ride, 8],
  cancelRide: [cancelRide, 5],
};
