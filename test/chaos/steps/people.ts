import { pick, type Random, upTo } from '../random.ts';
import type { Step } from '../world.ts';

const addStudent: Step = async (world, n) => {
  const last_name = world.unique('Dent');
  const class_id = pick(world.years[0]?.classes ?? [], n);
  const { data } = await world.request<{ id: number }>(
    [201],
    'POST',
    '/students',
    { first_name: 'Stu', last_name, class_id },
    last_name,
  );
  world.students.push(data.id);
  world.acknowledged.students.push({ id: data.id, last_name });
};

const isAdded = (world: Parameters<Step>[0], id: number) => !world.residents.some((resident) => resident.id === id);

const removeStudent: Step = async (world, n) => {
  const id = pick(world.students, n);
  if (!id || !isAdded(world, id)) return;
  const { status } = await world.request([200, 404], 'DELETE', `/students/${String(id)}`);
  if (status === 200) world.students.splice(world.students.indexOf(id), 1);
};

const promote: Step = async (world, n) => {
  const year = world.years[1];
  const chosen = Array.from({ length: upTo(3, n) }, () => pick(world.students, n));
  const student_ids = [...new Set(chosen)].filter((id) => id !== undefined && isAdded(world, id));
  if (!year || student_ids.length === 0) return;
  const body = { student_ids, to_class_id: pick(year.classes, n), to_academic_year_id: year.id };
  await world.request([200, 409, 422], 'POST', '/students/promote', body, world.unique('promote'));
};

interface Report {
  created: number;
  ids: number[];
}

/** A file of students. Some files have an error in one row, so that none of their students may be created. */
const importStudents: Step = async (world, n: Random) => {
  const names = Array.from({ length: upTo(12, n) }, () => world.unique('Import'));
  const isWrong = n() < 0.25;
  const rows = names.map(
    (name, index) => `Stu,${name},${isWrong && index === names.length - 1 ? 'No such class' : ''}`,
  );
  const { status, data } = await world.request<Report>(
    [201, 400, 422],
    'POST',
    '/students/import',
    { csv: ['first_name,last_name,class', ...rows].join('\n') },
    names[0],
  );
  if (status !== 201) return;
  if (data.created !== names.length || data.ids.length !== names.length)
    throw new Error(`An import of ${String(names.length)} rows created ${String(data.created)}.`);
  world.students.push(...data.ids);
  world.acknowledged.students.push(...data.ids.map((id, index) => ({ id, last_name: names[index] ?? '' })));
};

export const peopleSteps: Record<string, [Step, number]> = {
  addStudent: [addStudent, 6],
  removeStudent: [removeStudent, 2],
  promote: [promote, 3],
  importStudents: [importStudents, 3],
};
