import { network, sink, source } from './flow.ts';
import { bits, type Model } from './model.ts';
import type { CapacityReason, OverCapacity } from './problem.ts';

type Given = Partial<OverCapacity> & { reason: CapacityReason; required: number; available: number; message: string };

/**
 * Proofs that no timetable exists, each with who is to blame; none is no proof that one does. All are conditions that every timetable meets: counts, and flows
 * that leave out some of the rules (Hall's condition, read from the smallest cut). Who is refused by a simple count is not looked at again.
 */
export function overCapacity(model: Model): OverCapacity[] {
  const { days, length, classIds, teacherIds, classOf, teacherOf, count } = model;
  const whole = (1 << length) - 1;
  const classes = [...classIds.keys()];
  const teachers = [...teacherIds.keys()];
  const dayNumbers = Array.from({ length: days }, (_, day) => day);
  const sum = (numbers: number[]) => numbers.reduce((total, n) => total + n, 0);

  const openOf = (who: number, day: number) => whole & ~model.classClosed[who * days + day]!;
  const freeOf = (who: number, day: number) => whole & ~(model.teacherAway[who * days + day]! | model.teacherBusy[who * days + day]!);
  /** Lessons that a teacher may have on a day. */
  const mostOf = (who: number, day: number) => Math.min(model.dayLimit[who * days + day]!, bits(freeOf(who, day)));

  // Periods of a class with a teacher.
  const withTeacher = classes.map(() => new Map<number, number>());
  const withClass = teachers.map(() => new Map<number, number>());
  for (let kind = 0; kind < count.length; kind++) {
    const [who, teacher] = [classOf[kind]!, teacherOf[kind]!];
    withTeacher[who]!.set(teacher, (withTeacher[who]!.get(teacher) ?? 0) + count[kind]!);
    withClass[teacher]!.set(who, (withClass[teacher]!.get(who) ?? 0) + count[kind]!);
  }
  const classLoad = withTeacher.map((shares) => sum([...shares.values()]));
  const teacherLoad = withClass.map((shares) => sum([...shares.values()]));
  const openPeriods = classes.map((who) => sum(dayNumbers.map((day) => bits(openOf(who, day)))));
  const freePeriods = teachers.map((who) => sum(dayNumbers.map((day) => bits(freeOf(who, day)))));
  const mostLessons = teachers.map((who) => sum(dayNumbers.map((day) => mostOf(who, day))));

  const found: OverCapacity[] = [];
  const none = { kind: 'week', id: null, day: null, period: null } as const;
  const report = (given: Given, inClasses: number[] = [], ofTeachers: number[] = []) => {
    found.push({ ...none, ...given, classes: inClasses.map((who) => classIds[who]!), teachers: ofTeachers.map((who) => teacherIds[who]!) });
  };
  const ofClass = (who: number) => ({ kind: 'class', id: classIds[who]! }) as const;
  const ofTeacher = (who: number) => ({ kind: 'teacher', id: teacherIds[who]! }) as const;

  // The counts.
  const isRefused = { class: new Set<number>(), teacher: new Set<number>() };
  for (const who of classes) {
    const [required, available] = [classLoad[who]!, openPeriods[who]!];
    if (required <= available) continue;
    isRefused.class.add(who);
    const message = `{class} has ${required} lessons a week, and ${available} periods.`;
    report({ ...ofClass(who), reason: 'class_periods', required, available, message }, [who]);
  }
  for (const who of teachers) {
    const required = teacherLoad[who]!;
    const refuse = (reason: CapacityReason, available: number, why: string) => {
      if (required <= available) return;
      isRefused.teacher.add(who);
      report({ ...ofTeacher(who), reason, required, available, message: `{teacher} has ${required} lessons a week to give, and ${why}.` }, [], [who]);
    };
    const room = Math.max(0, model.weekLimit[who]!);
    refuse('teacher_week_limit', room, `room for ${room} under the week limit`);
    if (required > freePeriods[who]!) refuse('teacher_periods', freePeriods[who]!, `is available in ${freePeriods[who]!} periods`);
    else refuse('teacher_day_limit', mostLessons[who]!, `may have ${mostLessons[who]!} under the day limit when available`);
  }

  // A class and its teachers: every lesson in a period of its own in which its teacher can come.
  for (const who of classes) {
    if (isRefused.class.has(who)) continue;
    const shares = [...withTeacher[who]!].filter(([teacher]) => !isRefused.teacher.has(teacher));
    const net = network();
    const slots = Array.from({ length: days * length }, () => net.node());
    for (const slot of slots) net.pipe(slot, sink, 1);
    const nodes = shares.map(([teacher, lessons]) => {
      const node = net.node();
      net.pipe(source, node, lessons);
      for (const day of dayNumbers) {
        const onDay = net.node();
        net.pipe(node, onDay, mostOf(teacher, day));
        const both = openOf(who, day) & freeOf(teacher, day);
        for (let period = 0; period < length; period++) if (both & (1 << period)) net.pipe(onDay, slots[day * length + period]!, 1);
      }
      return node;
    });
    const lacking = sum(shares.map(([, lessons]) => lessons)) - net.maxFlow();
    if (lacking === 0) continue;
    const blamed = shares.filter((_, index) => net.isBeforeCut(nodes[index]!));
    const required = sum(blamed.map(([, lessons]) => lessons));
    const available = required - lacking;
    const message = `{class} has ${required} lessons a week with {teachers}, and they can come in ${available} of its periods.`;
    report({ ...ofClass(who), reason: 'class_teachers', required, available, message }, [who], blamed.map(([teacher]) => teacher)); // prettier-ignore
  }
  // A teacher and their classes, the same way round.
  for (const who of teachers) {
    if (isRefused.teacher.has(who)) continue;
    const shares = [...withClass[who]!].filter(([inClass]) => !isRefused.class.has(inClass));
    const net = network();
    const slots = dayNumbers.flatMap((day) => {
      const onDay = net.node();
      net.pipe(onDay, sink, mostOf(who, day));
      return Array.from({ length }, () => {
        const slot = net.node();
        net.pipe(slot, onDay, 1);
        return slot;
      });
    });
    const nodes = shares.map(([inClass, lessons]) => {
      const node = net.node();
      net.pipe(source, node, lessons);
      for (const day of dayNumbers) {
        const both = openOf(inClass, day) & freeOf(who, day);
        for (let period = 0; period < length; period++) if (both & (1 << period)) net.pipe(node, slots[day * length + period]!, 1);
      }
      return node;
    });
    const lacking = sum(shares.map(([, lessons]) => lessons)) - net.maxFlow();
    if (lacking === 0) continue;
    const blamed = shares.filter((_, index) => net.isBeforeCut(nodes[index]!));
    const required = sum(blamed.map(([, lessons]) => lessons));
    const available = required - lacking;
    const message = `{teacher} has ${required} lessons a week to give in {classes}, and they fit in ${available} periods in which both are there.`;
    report({ ...ofTeacher(who), reason: 'teacher_classes', required, available, message }, blamed.map(([inClass]) => inClass), [who]); // prettier-ignore
  }
  if (found.length > 0) return found;

  // What a class needs on a day at least, since its other days have no room for it, and what its teachers can give then; and the same for teachers.
  for (const day of dayNumbers) {
    const flow = (
      whoNeed: number[],
      needs: (who: number) => number,
      shares: Map<number, number>[],
      room: (who: number) => number,
      both: (who: number, other: number) => number,
    ) => {
      const net = network();
      const rooms = new Map<number, number>();
      const needing = whoNeed.map((who) => ({ who, need: needs(who), node: net.node() })).filter(({ need }) => need > 0);
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
      const others = [...rooms].filter(([, node]) => net.isBeforeCut(node)).map(([who]) => who);
      return { lacking, required: sum(blamed.map(({ need }) => need)), blamed: blamed.map(({ who }) => who), others };
    };
    const classNeed = (who: number) => classLoad[who]! - (openPeriods[who]! - bits(openOf(who, day)));
    const byClass = flow(classes, classNeed, withTeacher, (who) => mostOf(who, day), (who, other) => openOf(who, day) & freeOf(other, day)); // prettier-ignore
    const at = { kind: 'day', id: day + 1, day: day + 1 } as const;
    if (byClass.lacking > 0) {
      const { required, blamed, others } = byClass;
      const available = required - byClass.lacking;
      const message = `On day ${day + 1} {classes} need ${required} lessons, and their teachers can give ${available}.`;
      report({ ...at, reason: 'day_teachers', required, available, message }, blamed, others);
    }
    const teacherNeed = (who: number) => teacherLoad[who]! - (mostLessons[who]! - mostOf(who, day));
    const byTeacher = flow(teachers, teacherNeed, withClass, (who) => bits(openOf(who, day)), (who, other) => openOf(other, day) & freeOf(who, day)); // prettier-ignore
    if (byTeacher.lacking > 0) {
      const { required, blamed, others } = byTeacher;
      const available = required - byTeacher.lacking;
      const message = `On day ${day + 1} {teachers} have to give ${required} lessons, since they can't on other days, and their classes can have ${available}.`;
      report({ ...at, reason: 'day_classes', required, available, message }, others, blamed);
    }
  }

  // One period at a time: who is in a lesson whenever they can needs somebody then.
  const isFull = classes.map((who) => (classLoad[who] ?? 0) > 0 && classLoad[who] === openPeriods[who]);
  const isAlwaysThere = teachers.map((who) => (teacherLoad[who] ?? 0) > 0 && teacherLoad[who] === freePeriods[who]);
  const net = network();
  const perSlot: number[] = [];
  for (const day of dayNumbers) {
    for (let period = 0; period < length; period++) {
      const bit = 1 << period;
      const open = classes.filter((who) => openOf(who, day) & bit && classLoad[who]! > 0);
      const free = teachers.filter((who) => freeOf(who, day) & bit && mostOf(who, day) > 0 && teacherLoad[who]! > 0);
      const match = (some: number[], others: number[], shares: Map<number, number>[]) => {
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
        return {
          matched,
          lacking: some.length - matched,
          blamed: some.filter((_, index) => pairs.isBeforeCut(nodes[index]!)),
          others: [...there].filter(([, node]) => pairs.isBeforeCut(node)).map(([who]) => who),
        };
      };
      perSlot.push(match(open, free, withTeacher).matched);
      const at = { kind: 'period', day: day + 1, period: model.periods[period]! } as const;
      const when = `On day ${day + 1} in period ${model.periods[period]!}`;
      const full = match(open.filter((who) => isFull[who]), free, withTeacher); // prettier-ignore
      if (full.lacking > 0) {
        const required = full.blamed.length;
        const available = required - full.lacking;
        const message = `${when} {classes} need ${required} teachers, since they have a lesson in every period, and ${available} of theirs can come.`;
        report({ ...at, reason: 'period_teachers', required, available, message }, full.blamed, full.others);
      }
      const there = match(free.filter((who) => isAlwaysThere[who]), open, withClass); // prettier-ignore
      if (there.lacking > 0) {
        const required = there.blamed.length;
        const available = required - there.lacking;
        const message = `${when} {teachers} need ${required} classes, since they teach whenever they can, and ${available} of theirs have school.`;
        report({ ...at, reason: 'period_classes', required, available, message }, there.others, there.blamed);
      }
    }
  }
  if (found.length > 0) return found;

  // The whole week: in each period as many lessons as it can have, by the teachers who can give them.
  const slotNodes = perSlot.map((most) => {
    const node = net.node();
    net.pipe(node, sink, most);
    return node;
  });
  for (const who of teachers) {
    const node = net.node();
    net.pipe(source, node, teacherLoad[who]!);
    for (const day of dayNumbers) {
      const onDay = net.node();
      net.pipe(node, onDay, mostOf(who, day));
      for (let period = 0; period < length; period++) if (freeOf(who, day) & (1 << period)) net.pipe(onDay, slotNodes[day * length + period]!, 1);
    }
  }
  const available = net.maxFlow();
  if (available < model.required) {
    const message = `There are ${model.required} lessons a week, and ${available} fit into the periods in which there are both classes and teachers for them.`;
    report({ reason: 'week_teachers', required: model.required, available, message });
  }
  return found;
}
