import { network, sink, source } from './flow.ts';
import { bits, type Model } from './model.ts';
import type { CapacityReason, OverCapacity } from './problem.ts';

/** Periods by class or teacher. */
type Shares = Map<number, number>;

/** A model with sums of lessons and available periods. */
interface Loads {
  model: Model;
  classes: number[];
  teachers: number[];
  days: number[];
  /** Masks of the periods of a day in which a class has school, and a teacher is available. */
  open: (classIndex: number, day: number) => number;
  free: (teacher: number, day: number) => number;
  /** Maximum number of lessons of a teacher on a day. */
  maxOnDay: (teacher: number, day: number) => number;
  /** By class its teachers, by teacher their classes. */
  withTeacher: Shares[];
  withClass: Shares[];
  classLoad: number[];
  teacherLoad: number[];
  openPeriods: number[];
  freePeriods: number[];
  maxLessons: number[];
}

interface Finding {
  kind?: OverCapacity['kind'];
  id?: OverCapacity['id'];
  day?: number;
  period?: number;
  reason: CapacityReason;
  required: number;
  available: number;
  message: string;
}
type Report = (finding: Finding, classes?: number[], teachers?: number[], rooms?: number[]) => void;

const sum = (numbers: number[]) => numbers.reduce((total, n) => total + n, 0);

function loadsOf(model: Model): Loads {
  const { classIds, teacherIds, classOf, teacherOf, count } = model;
  const allPeriods = (1 << model.length) - 1;
  const classes = [...classIds.keys()];
  const teachers = [...teacherIds.keys()];
  const days = Array.from({ length: model.days }, (_, day) => day);
  const open = (index: number, day: number) => allPeriods & ~model.classClosed[index * model.days + day]!;
  const free = (index: number, day: number) =>
    allPeriods & ~(model.teacherAway[index * model.days + day]! | model.teacherBusy[index * model.days + day]!);
  const maxOnDay = (index: number, day: number) =>
    Math.min(model.dayLimit[index * model.days + day]!, bits(free(index, day)));
  const withTeacher = classes.map((): Shares => new Map());
  const withClass = teachers.map((): Shares => new Map());
  for (let kind = 0; kind < count.length; kind++) {
    const [index, teacher] = [classOf[kind]!, teacherOf[kind]!];
    withTeacher[index]!.set(teacher, (withTeacher[index]!.get(teacher) ?? 0) + count[kind]!);
    withClass[teacher]!.set(index, (withClass[teacher]!.get(index) ?? 0) + count[kind]!);
  }
  return {
    model,
    classes,
    teachers,
    days,
    open,
    free,
    maxOnDay,
    withTeacher,
    withClass,
    classLoad: withTeacher.map((shares) => sum([...shares.values()])),
    teacherLoad: withClass.map((shares) => sum([...shares.values()])),
    openPeriods: classes.map((index) => sum(days.map((day) => bits(open(index, day))))),
    freePeriods: teachers.map((index) => sum(days.map((day) => bits(free(index, day))))),
    maxLessons: teachers.map((index) => sum(days.map((day) => maxOnDay(index, day)))),
  };
}

/** Reports classes and teachers with more lessons than periods. Later checks skip them. */
function counts(loads: Loads, report: Report): { classes: Set<number>; teachers: Set<number> } {
  const { model, classLoad, teacherLoad, openPeriods, freePeriods, maxLessons } = loads;
  const refused = { classes: new Set<number>(), teachers: new Set<number>() };
  for (const index of loads.classes) {
    const [required, available] = [classLoad[index]!, openPeriods[index]!];
    if (required <= available) continue;
    refused.classes.add(index);
    const message = `{class} has ${required} lessons a week but only ${available} periods.`;
    report({ kind: 'class', id: model.classIds[index]!, reason: 'class_periods', required, available, message }, [
      index,
    ]);
  }
  for (const index of loads.teachers) {
    const required = teacherLoad[index]!;
    const refuse = (reason: CapacityReason, available: number, why: string) => {
      if (required <= available) return;
      refused.teachers.add(index);
      const message = `{teacher} has ${required} lessons a week but ${why}.`;
      report({ kind: 'teacher', id: model.teacherIds[index]!, reason, required, available, message }, [], [index]);
    };
    const room = Math.max(0, model.weekLimit[index]!);
    refuse('teacher_week_limit', room, `the week limit allows only ${room}`);
    if (required > freePeriods[index]!)
      refuse('teacher_periods', freePeriods[index]!, `is available in only ${freePeriods[index]!} periods`);
    else
      refuse(
        'teacher_day_limit',
        maxLessons[index]!,
        `the day limit allows only ${maxLessons[index]!} in the available periods`,
      );
  }
  return refused;
}

/**
 * Checks one class with its teachers, or one teacher with their classes: every lesson needs a separate period in
 * which both are available, within the day limits of the teachers.
 * @param shares  how many lessons with each of the others
 * @param both    the periods of a day in which both are available
 * @param maxOfOne, maxOfOther  the maximum number of lessons on a day: of the one, and of each of the others with it
 * @returns the number of lessons without a period, and the classes or teachers that cause it
 */
function oneToMany(
  { model: { length }, days }: Loads,
  shares: [other: number, lessons: number][],
  both: (other: number, day: number) => number,
  maxOfOne: (day: number) => number,
  maxOfOther: (other: number, day: number) => number,
) {
  const net = network();
  const slots = days.flatMap((day) => {
    const onDay = net.node();
    net.pipe(onDay, sink, maxOfOne(day));
    return Array.from({ length }, () => {
      const slot = net.node();
      net.pipe(slot, onDay, 1);
      return slot;
    });
  });
  const nodes = shares.map(([other, lessons]) => {
    const node = net.node();
    net.pipe(source, node, lessons);
    for (const day of days) {
      const onDay = net.node();
      net.pipe(node, onDay, maxOfOther(other, day));
      for (let period = 0; period < length; period++)
        if (both(other, day) & (1 << period)) net.pipe(onDay, slots[day * length + period]!, 1);
    }
    return node;
  });
  const lacking = sum(shares.map(([, lessons]) => lessons)) - net.maxFlow();
  const blamed = shares.filter((_, index) => net.isBeforeCut(nodes[index]!));
  const required = sum(blamed.map(([, lessons]) => lessons));
  return { lacking, required, available: required - lacking, blamed: blamed.map(([other]) => other) };
}

/** Checks each class with its teachers, and each teacher with their classes. */
function eachAlone(loads: Loads, refused: ReturnType<typeof counts>, report: Report): void {
  const { model, open, free, maxOnDay } = loads;
  for (const index of loads.classes) {
    if (refused.classes.has(index)) continue;
    const shares = [...loads.withTeacher[index]!].filter(([teacher]) => !refused.teachers.has(teacher));
    const { lacking, required, available, blamed } = oneToMany(loads, shares, (teacher, day) => open(index, day) & free(teacher, day), () => model.length, maxOnDay); // prettier-ignore
    if (lacking === 0) continue;
    const message = `{class} has ${required} lessons a week with {teachers}, but they are available in only ${available} of its periods.`;
    report(
      { kind: 'class', id: model.classIds[index]!, reason: 'class_teachers', required, available, message },
      [index],
      blamed,
    );
  }
  for (const index of loads.teachers) {
    if (refused.teachers.has(index)) continue;
    const shares = [...loads.withClass[index]!].filter(([inClass]) => !refused.classes.has(inClass));
    const both = (inClass: number, day: number) => open(inClass, day) & free(index, day);
    const { lacking, required, available, blamed } = oneToMany(loads, shares, both, (day) => maxOnDay(index, day), () => model.length); // prettier-ignore
    if (lacking === 0) continue;
    const message = `{teacher} has ${required} lessons a week in {classes}, but the teacher and these classes have only ${available} periods in common.`;
    report(
      { kind: 'teacher', id: model.teacherIds[index]!, reason: 'teacher_classes', required, available, message },
      blamed,
      [index],
    );
  }
}

/** Compares the minimum number of lessons of classes on a day with the capacity of their teachers, and vice versa. */
function perDay(loads: Loads, report: Report): void {
  const { open, free, maxOnDay, classLoad, teacherLoad, openPeriods, maxLessons } = loads;
  const flow = (
    needs: [index: number, need: number][],
    shares: Shares[],
    room: (other: number) => number,
    both: (index: number, other: number) => number,
  ) => {
    const net = network();
    const rooms = new Map<number, number>();
    const needing = needs.filter(([, need]) => need > 0).map(([index, need]) => ({ index, need, node: net.node() })); // prettier-ignore
    for (const { index, need, node } of needing) {
      net.pipe(source, node, need);
      for (const [other, lessons] of shares[index]!) {
        let roomNode = rooms.get(other);
        if (roomNode === undefined) {
          roomNode = net.node();
          rooms.set(other, roomNode);
          net.pipe(roomNode, sink, room(other));
        }
        net.pipe(node, roomNode, Math.min(lessons, bits(both(index, other))));
      }
    }
    const lacking = sum(needing.map(({ need }) => need)) - net.maxFlow();
    const blamed = needing.filter(({ node }) => net.isBeforeCut(node));
    const required = sum(blamed.map(({ need }) => need));
    const others = [...rooms].filter(([, node]) => net.isBeforeCut(node)).map(([index]) => index);
    return { lacking, required, available: required - lacking, blamed: blamed.map(({ index }) => index), others };
  };
  for (const day of loads.days) {
    const at = { kind: 'day', id: day + 1, day: day + 1 } as const;
    const classNeeds = loads.classes.map((index): [number, number] => [
      index,
      classLoad[index]! - (openPeriods[index]! - bits(open(index, day))),
    ]);
    const byClass = flow(classNeeds, loads.withTeacher, (index) => maxOnDay(index, day), (index, other) => open(index, day) & free(other, day)); // prettier-ignore
    if (byClass.lacking > 0) {
      const { required, available, blamed, others } = byClass;
      const message = `On {day}, {classes} need ${required} lessons, but their teachers can teach only ${available}.`;
      report({ ...at, reason: 'day_teachers', required, available, message }, blamed, others);
    }
    const teacherNeeds = loads.teachers.map((index): [number, number] => [
      index,
      teacherLoad[index]! - (maxLessons[index]! - maxOnDay(index, day)),
    ]);
    const byTeacher = flow(teacherNeeds, loads.withClass, (index) => bits(open(index, day)), (index, other) => open(other, day) & free(index, day)); // prettier-ignore
    if (byTeacher.lacking > 0) {
      const { required, available, blamed, others } = byTeacher;
      const message = `On {day}, {teachers} have to teach ${required} lessons that do not fit on other days, but their classes can have only ${available}.`;
      report({ ...at, reason: 'day_classes', required, available, message }, others, blamed);
    }
  }
}

/**
 * Checks each period: fully booked classes need a teacher each, and fully booked teachers need a class each.
 * @returns the maximum number of lessons by day and period
 */
function perPeriod(loads: Loads, report: Report): number[] {
  const { model, open, free, maxOnDay, withTeacher, withClass, classLoad, teacherLoad, openPeriods, freePeriods } =
    loads;
  const isFull = (index: number) => classLoad[index] === openPeriods[index];
  const isAlwaysTeaching = (index: number) => teacherLoad[index] === freePeriods[index];
  const match = (some: number[], others: number[], shares: Shares[]) => {
    const pairs = network();
    const otherNodes = new Map(others.map((index) => [index, pairs.node()]));
    for (const node of otherNodes.values()) pairs.pipe(node, sink, 1);
    const nodes = some.map((index) => {
      const node = pairs.node();
      pairs.pipe(source, node, 1);
      for (const other of shares[index]!.keys()) if (otherNodes.has(other)) pairs.pipe(node, otherNodes.get(other)!, 1);
      return node;
    });
    const matched = pairs.maxFlow();
    const blamed = some.filter((_, index) => pairs.isBeforeCut(nodes[index]!));
    const required = blamed.length;
    const lacking = some.length - matched;
    return { matched, lacking, required, available: required - lacking, blamed, others: [...otherNodes].filter(([, node]) => pairs.isBeforeCut(node)).map(([index]) => index) }; // prettier-ignore
  };
  const maxByPeriod: number[] = [];
  for (const day of loads.days) {
    for (let period = 0; period < model.length; period++) {
      const bit = 1 << period;
      const inSchool = loads.classes.filter((index) => open(index, day) & bit && classLoad[index]! > 0);
      const present = loads.teachers.filter(
        (index) => free(index, day) & bit && maxOnDay(index, day) > 0 && teacherLoad[index]! > 0,
      );
      maxByPeriod.push(match(inSchool, present, withTeacher).matched);
      const at = { kind: 'period', day: day + 1, period: model.periods[period]! } as const;
      const when = `On {day} in period ${model.periods[period]!}`;
      const full = match(inSchool.filter(isFull), present, withTeacher);
      if (full.lacking > 0) {
        const { required, available, blamed, others } = full;
        const message = `${when}, {classes} need ${required} teachers because they have a lesson in every period, but only ${available} of their teachers are available.`;
        report({ ...at, reason: 'period_teachers', required, available, message }, blamed, others);
      }
      const always = match(present.filter(isAlwaysTeaching), inSchool, withClass);
      if (always.lacking > 0) {
        const { required, available, blamed, others } = always;
        const message = `${when}, {teachers} need ${required} classes because they teach in every period in which they are available, but only ${available} of their classes have school.`;
        report({ ...at, reason: 'period_classes', required, available, message }, others, blamed);
      }
    }
  }
  return maxByPeriod;
}

/** Checks the whole week with the maximum number of lessons per period. */
function wholeWeek(
  { model, teachers, days, free, maxOnDay, teacherLoad }: Loads,
  maxByPeriod: number[],
  report: Report,
): void {
  const net = network();
  const slots = maxByPeriod.map((lessons) => {
    const node = net.node();
    net.pipe(node, sink, lessons);
    return node;
  });
  for (const index of teachers) {
    const node = net.node();
    net.pipe(source, node, teacherLoad[index]!);
    for (const day of days) {
      const onDay = net.node();
      net.pipe(node, onDay, maxOnDay(index, day));
      for (let period = 0; period < model.length; period++)
        if (free(index, day) & (1 << period)) net.pipe(onDay, slots[day * model.length + period]!, 1);
    }
  }
  const available = net.maxFlow();
  if (available === model.required) return;
  const message = `There are ${model.required} lessons a week, but only ${available} fit into the periods in which their classes and teachers are both available.`;
  report({ reason: 'week_teachers', required: model.required, available, message });
}

/** Reports rooms in which more lessons take place than they have free periods. */
function eachRoom(model: Model, report: Report): void {
  for (const [limit, { rooms, capacity }] of model.roomLimits.entries()) {
    const kinds = [...model.count.keys()].filter((kind) => model.limitsOf[kind]!.includes(limit));
    const [required, available] = [sum(kinds.map((kind) => model.count[kind]!)), sum([...capacity])];
    if (required <= available) continue;
    const classes = [...new Set(kinds.map((kind) => model.classOf[kind]!))];
    const message = `The lessons in {rooms} need ${required} periods a week, but only ${available} are free.`;
    const id = model.roomIds[rooms[0]!]!;
    report({ kind: 'room', id, reason: 'room_periods', required, available, message }, classes, [], rooms);
  }
}

/**
 * Proves that no timetable exists, and names the cause. An empty result does not prove that one exists. The checks are
 * necessary conditions: counts, and flows that ignore some rules (Hall's condition, from the minimum cut). Classes and
 * teachers that fail a simple check are skipped by later ones.
 */
export function overCapacity(model: Model): OverCapacity[] {
  const loads = loadsOf(model);
  const found: OverCapacity[] = [];
  const report: Report = (finding, classes = [], teachers = [], rooms = []) => {
    found.push({
      kind: 'week',
      id: null,
      day: null,
      period: null,
      ...finding,
      classes: classes.map((index) => model.classIds[index]!),
      teachers: teachers.map((index) => model.teacherIds[index]!),
      rooms: rooms.map((index) => model.roomIds[index]!),
    });
  };
  eachAlone(loads, counts(loads, report), report);
  eachRoom(model, report);
  if (found.length > 0) return found;
  perDay(loads, report);
  if (found.length > 0) return found;
  const maxByPeriod = perPeriod(loads, report);
  if (found.length > 0) return found;
  wholeWeek(loads, maxByPeriod, report);
  return found;
}

/**
 * Reduces the lessons to the capacity. The reduction is spread over the subjects of the affected classes and teachers.
 * @returns the remaining number of lessons by kind
 */
export function withinCapacity(model: Model): Int32Array {
  const { classes, teachers, openPeriods, maxLessons } = loadsOf(model);
  const net = network();
  const classNodes = classes.map((index) => {
    const node = net.node();
    net.pipe(node, sink, openPeriods[index]!);
    return node;
  });
  const teacherNodes = teachers.map((index) => {
    const node = net.node();
    net.pipe(source, node, Math.min(maxLessons[index]!, Math.max(0, model.weekLimit[index]!)));
    return node;
  });
  // Round-robin, so that every subject gets one period before any gets two. Flow along a pipe is never reduced.
  const pipes = [...model.count.keys()].map((): number[] => []);
  for (let round = 0; round < Math.max(0, ...model.count); round++) {
    for (const [kind, n] of model.count.entries()) {
      if (round < n)
        pipes[kind]!.push(net.pipe(teacherNodes[model.teacherOf[kind]!]!, classNodes[model.classOf[kind]!]!, 1));
    }
    net.maxFlow();
  }
  return Int32Array.from(pipes, (own) => sum(own.map((pipe) => net.flowOf(pipe))));
}
