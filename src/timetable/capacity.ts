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
  open: (who: number, day: number) => number;
  free: (who: number, day: number) => number;
  /** Maximum number of lessons of a teacher on a day. */
  most: (who: number, day: number) => number;
  /** By class its teachers, by teacher their classes. */
  withTeacher: Shares[];
  withClass: Shares[];
  classLoad: number[];
  teacherLoad: number[];
  openPeriods: number[];
  freePeriods: number[];
  maxLessons: number[];
}

interface Given {
  kind?: OverCapacity['kind'];
  id?: OverCapacity['id'];
  day?: number;
  period?: number;
  reason: CapacityReason;
  required: number;
  available: number;
  message: string;
}
type Report = (given: Given, classes?: number[], teachers?: number[]) => void;

const sum = (numbers: number[]) => numbers.reduce((total, n) => total + n, 0);

function loadsOf(model: Model): Loads {
  const { classIds, teacherIds, classOf, teacherOf, count } = model;
  const allPeriods = (1 << model.length) - 1;
  const classes = [...classIds.keys()];
  const teachers = [...teacherIds.keys()];
  const days = Array.from({ length: model.days }, (_, day) => day);
  const open = (who: number, day: number) => allPeriods & ~model.classClosed[who * model.days + day]!;
  const free = (who: number, day: number) =>
    allPeriods & ~(model.teacherAway[who * model.days + day]! | model.teacherBusy[who * model.days + day]!);
  const most = (who: number, day: number) => Math.min(model.dayLimit[who * model.days + day]!, bits(free(who, day)));
  const withTeacher = classes.map((): Shares => new Map());
  const withClass = teachers.map((): Shares => new Map());
  for (let kind = 0; kind < count.length; kind++) {
    const [who, teacher] = [classOf[kind]!, teacherOf[kind]!];
    withTeacher[who]!.set(teacher, (withTeacher[who]!.get(teacher) ?? 0) + count[kind]!);
    withClass[teacher]!.set(who, (withClass[teacher]!.get(who) ?? 0) + count[kind]!);
  }
  return {
    model,
    classes,
    teachers,
    days,
    open,
    free,
    most,
    withTeacher,
    withClass,
    classLoad: withTeacher.map((shares) => sum([...shares.values()])),
    teacherLoad: withClass.map((shares) => sum([...shares.values()])),
    openPeriods: classes.map((who) => sum(days.map((day) => bits(open(who, day))))),
    freePeriods: teachers.map((who) => sum(days.map((day) => bits(free(who, day))))),
    maxLessons: teachers.map((who) => sum(days.map((day) => most(who, day)))),
  };
}

/** Reports classes and teachers with more lessons than periods. Later checks skip them. */
function counts(loads: Loads, report: Report): { classes: Set<number>; teachers: Set<number> } {
  const { model, classLoad, teacherLoad, openPeriods, freePeriods, maxLessons } = loads;
  const refused = { classes: new Set<number>(), teachers: new Set<number>() };
  for (const who of loads.classes) {
    const [required, available] = [classLoad[who]!, openPeriods[who]!];
    if (required <= available) continue;
    refused.classes.add(who);
    const message = `{class} has ${required} lessons a week, and ${available} periods.`;
    report({ kind: 'class', id: model.classIds[who]!, reason: 'class_periods', required, available, message }, [who]);
  }
  for (const who of loads.teachers) {
    const required = teacherLoad[who]!;
    const refuse = (reason: CapacityReason, available: number, why: string) => {
      if (required <= available) return;
      refused.teachers.add(who);
      const message = `{teacher} has ${required} lessons a week to give, and ${why}.`;
      report({ kind: 'teacher', id: model.teacherIds[who]!, reason, required, available, message }, [], [who]);
    };
    const room = Math.max(0, model.weekLimit[who]!);
    refuse('teacher_week_limit', room, `room for ${room} under the week limit`);
    if (required > freePeriods[who]!)
      refuse('teacher_periods', freePeriods[who]!, `is available in ${freePeriods[who]!} periods`);
    else
      refuse('teacher_day_limit', maxLessons[who]!, `may have ${maxLessons[who]!} under the day limit when available`);
  }
  return refused;
}

/**
 * Checks one class with its teachers, or one teacher with their classes: every lesson needs a separate period in
 * which both are available, within the day limits of the teachers.
 * @param shares  how many lessons with each of the others
 * @param both    the periods of a day in which both are there
 * @param maxOfOne, maxOfOther  the lessons of a day that the one may have, and each of the others with the one
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
  const { model, open, free, most } = loads;
  for (const who of loads.classes) {
    if (refused.classes.has(who)) continue;
    const shares = [...loads.withTeacher[who]!].filter(([teacher]) => !refused.teachers.has(teacher));
    const { lacking, required, available, blamed } = oneToMany(loads, shares, (teacher, day) => open(who, day) & free(teacher, day), () => model.length, most); // prettier-ignore
    if (lacking === 0) continue;
    const message = `{class} has ${required} lessons a week with {teachers}, and they can come in ${available} of its periods.`;
    report(
      { kind: 'class', id: model.classIds[who]!, reason: 'class_teachers', required, available, message },
      [who],
      blamed,
    );
  }
  for (const who of loads.teachers) {
    if (refused.teachers.has(who)) continue;
    const shares = [...loads.withClass[who]!].filter(([inClass]) => !refused.classes.has(inClass));
    const both = (inClass: number, day: number) => open(inClass, day) & free(who, day);
    const { lacking, required, available, blamed } = oneToMany(loads, shares, both, (day) => most(who, day), () => model.length); // prettier-ignore
    if (lacking === 0) continue;
    const message = `{teacher} has ${required} lessons a week to give in {classes}, and they fit in ${available} periods in which both are there.`;
    report(
      { kind: 'teacher', id: model.teacherIds[who]!, reason: 'teacher_classes', required, available, message },
      blamed,
      [who],
    );
  }
}

/** Compares the minimum number of lessons of classes on a day with the capacity of their teachers, and vice versa. */
function perDay(loads: Loads, report: Report): void {
  const { open, free, most, classLoad, teacherLoad, openPeriods, maxLessons } = loads;
  const flow = (
    needs: [who: number, need: number][],
    shares: Shares[],
    room: (other: number) => number,
    both: (who: number, other: number) => number,
  ) => {
    const net = network();
    const rooms = new Map<number, number>();
    const needing = needs.filter(([, need]) => need > 0).map(([who, need]) => ({ who, need, node: net.node() })); // prettier-ignore
    for (const { who, need, node } of needing) {
      net.pipe(source, node, need);
      for (const [other, lessons] of shares[who]!) {
        let there = rooms.get(other);
        if (there === undefined) {
          there = net.node();
          rooms.set(other, there);
          net.pipe(there, sink, room(other));
        }
        net.pipe(node, there, Math.min(lessons, bits(both(who, other))));
      }
    }
    const lacking = sum(needing.map(({ need }) => need)) - net.maxFlow();
    const blamed = needing.filter(({ node }) => net.isBeforeCut(node));
    const required = sum(blamed.map(({ need }) => need));
    const others = [...rooms].filter(([, node]) => net.isBeforeCut(node)).map(([who]) => who);
    return { lacking, required, available: required - lacking, blamed: blamed.map(({ who }) => who), others };
  };
  for (const day of loads.days) {
    const at = { kind: 'day', id: day + 1, day: day + 1 } as const;
    const classNeeds = loads.classes.map((who): [number, number] => [
      who,
      classLoad[who]! - (openPeriods[who]! - bits(open(who, day))),
    ]);
    const byClass = flow(classNeeds, loads.withTeacher, (who) => most(who, day), (who, other) => open(who, day) & free(other, day)); // prettier-ignore
    if (byClass.lacking > 0) {
      const { required, available, blamed, others } = byClass;
      const message = `On {day} {classes} need ${required} lessons, and their teachers can give ${available}.`;
      report({ ...at, reason: 'day_teachers', required, available, message }, blamed, others);
    }
    const teacherNeeds = loads.teachers.map((who): [number, number] => [
      who,
      teacherLoad[who]! - (maxLessons[who]! - most(who, day)),
    ]);
    const byTeacher = flow(teacherNeeds, loads.withClass, (who) => bits(open(who, day)), (who, other) => open(other, day) & free(who, day)); // prettier-ignore
    if (byTeacher.lacking > 0) {
      const { required, available, blamed, others } = byTeacher;
      const message = `On {day} {teachers} have to give ${required} lessons, since they can't on other days, and their classes can have ${available}.`;
      report({ ...at, reason: 'day_classes', required, available, message }, others, blamed);
    }
  }
}

/**
 * Checks each period: fully booked classes need a teacher each, and fully booked teachers need a class each.
 * @returns the maximum number of lessons by day and period
 */
function perPeriod(loads: Loads, report: Report): number[] {
  const { model, open, free, most, withTeacher, withClass, classLoad, teacherLoad, openPeriods, freePeriods } = loads;
  const isFull = (who: number) => classLoad[who] === openPeriods[who];
  const isAlwaysThere = (who: number) => teacherLoad[who] === freePeriods[who];
  const match = (some: number[], others: number[], shares: Shares[]) => {
    const pairs = network();
    const there = new Map(others.map((who) => [who, pairs.node()]));
    for (const node of there.values()) pairs.pipe(node, sink, 1);
    const nodes = some.map((who) => {
      const node = pairs.node();
      pairs.pipe(source, node, 1);
      for (const other of shares[who]!.keys()) if (there.has(other)) pairs.pipe(node, there.get(other)!, 1);
      return node;
    });
    const matched = pairs.maxFlow();
    const blamed = some.filter((_, index) => pairs.isBeforeCut(nodes[index]!));
    const required = blamed.length;
    const lacking = some.length - matched;
    return { matched, lacking, required, available: required - lacking, blamed, others: [...there].filter(([, node]) => pairs.isBeforeCut(node)).map(([who]) => who) }; // prettier-ignore
  };
  const atMost: number[] = [];
  for (const day of loads.days) {
    for (let period = 0; period < model.length; period++) {
      const bit = 1 << period;
      const inSchool = loads.classes.filter((who) => open(who, day) & bit && classLoad[who]! > 0);
      const there = loads.teachers.filter((who) => free(who, day) & bit && most(who, day) > 0 && teacherLoad[who]! > 0);
      atMost.push(match(inSchool, there, withTeacher).matched);
      const at = { kind: 'period', day: day + 1, period: model.periods[period]! } as const;
      const when = `On {day} in period ${model.periods[period]!}`;
      const full = match(inSchool.filter(isFull), there, withTeacher);
      if (full.lacking > 0) {
        const { required, available, blamed, others } = full;
        const message = `${when} {classes} need ${required} teachers, since they have a lesson in every period, and ${available} of theirs can come.`;
        report({ ...at, reason: 'period_teachers', required, available, message }, blamed, others);
      }
      const always = match(there.filter(isAlwaysThere), inSchool, withClass);
      if (always.lacking > 0) {
        const { required, available, blamed, others } = always;
        const message = `${when} {teachers} need ${required} classes, since they teach whenever they can, and ${available} of theirs have school.`;
        report({ ...at, reason: 'period_classes', required, available, message }, others, blamed);
      }
    }
  }
  return atMost;
}

/** Checks the whole week with the maximum number of lessons per period. */
function wholeWeek({ model, teachers, days, free, most, teacherLoad }: Loads, atMost: number[], report: Report): void {
  const net = network();
  const slots = atMost.map((lessons) => {
    const node = net.node();
    net.pipe(node, sink, lessons);
    return node;
  });
  for (const who of teachers) {
    const node = net.node();
    net.pipe(source, node, teacherLoad[who]!);
    for (const day of days) {
      const onDay = net.node();
      net.pipe(node, onDay, most(who, day));
      for (let period = 0; period < model.length; period++)
        if (free(who, day) & (1 << period)) net.pipe(onDay, slots[day * model.length + period]!, 1);
    }
  }
  const available = net.maxFlow();
  if (available === model.required) return;
  const message = `There are ${model.required} lessons a week, and ${available} fit into the periods in which there are both classes and teachers for them.`;
  report({ reason: 'week_teachers', required: model.required, available, message });
}

/**
 * Proves that no timetable exists, and names the cause. An empty result does not prove that one exists. The checks are
 * necessary conditions: counts, and flows that ignore some rules (Hall's condition, from the minimum cut). Classes and
 * teachers that fail a simple check are skipped by later ones.
 */
export function overCapacity(model: Model): OverCapacity[] {
  const loads = loadsOf(model);
  const found: OverCapacity[] = [];
  const report: Report = (given, classes = [], teachers = []) => {
    found.push({
      kind: 'week',
      id: null,
      day: null,
      period: null,
      ...given,
      classes: classes.map((who) => model.classIds[who]!),
      teachers: teachers.map((who) => model.teacherIds[who]!),
    });
  };
  eachAlone(loads, counts(loads, report), report);
  if (found.length > 0) return found;
  perDay(loads, report);
  if (found.length > 0) return found;
  const atMost = perPeriod(loads, report);
  if (found.length > 0) return found;
  wholeWeek(loads, atMost, report);
  return found;
}

/**
 * Reduces the lessons to the capacity. The reduction is spread over the subjects of the affected classes and teachers.
 * @returns the remaining number of lessons by kind
 */
export function withinCapacity(model: Model): Int32Array {
  const { classes, teachers, openPeriods, maxLessons } = loadsOf(model);
  const net = network();
  const classNodes = classes.map((who) => {
    const node = net.node();
    net.pipe(node, sink, openPeriods[who]!);
    return node;
  });
  const teacherNodes = teachers.map((who) => {
    const node = net.node();
    net.pipe(source, node, Math.min(maxLessons[who]!, Math.max(0, model.weekLimit[who]!)));
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
