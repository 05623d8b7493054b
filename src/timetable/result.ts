import { countBoard } from './board.ts';
import { bits, type Model } from './model.ts';
import type { Figures, Placed, Unplaced, UnplacedReason } from './problem.ts';
import { roomsOfSlots } from './rooms.ts';

/**
 * Removes lessons that break a rule or wait, then places missing lessons where they fit.
 * @returns the number of missing lessons by kind, and the rooms of the others
 */
export function keepRules(
  model: Model,
  classAt: Int32Array,
): { missing: Int32Array; rooms: ReturnType<typeof roomsOfSlots> } {
  const { days, length, classOf, teacherOf } = model;
  const slots = (days + 1) * length;
  const missing = Int32Array.from(model.count);
  const inWeek = new Int32Array(model.teacherIds.length);
  const onDay = new Int32Array(model.teacherIds.length * days);
  const { teacherAt } = countBoard(model, classAt);
  const rooms = roomsOfSlots(model);
  const isClosed = (kind: number, day: number, period: number) =>
    ((model.classClosed[classOf[kind]! * days + day]! |
      model.teacherAway[teacherOf[kind]! * days + day]! |
      model.teacherBusy[teacherOf[kind]! * days + day]!) &
      (1 << period)) !==
    0;
  for (let classIndex = 0; classIndex < model.classIds.length; classIndex++) {
    for (let slot = 0; slot < slots; slot++) {
      const kind = classAt[classIndex * slots + slot]!;
      if (kind < 0) continue;
      const day = Math.floor(slot / length);
      const at = teacherOf[kind]! * days + day;
      if (
        day < days &&
        !isClosed(kind, day, slot % length) &&
        onDay[at]! < model.dayLimit[at]! &&
        rooms.take(kind, slot)
      ) {
        onDay[at]!++;
        inWeek[teacherOf[kind]!]!++;
        missing[kind]!--;
      } else {
        classAt[classIndex * slots + slot] = -1;
        teacherAt[teacherOf[kind]! * slots + slot] = -1;
      }
    }
  }
  for (let kind = 0; kind < missing.length; kind++) {
    for (let slot = 0; slot < days * length && missing[kind]! > 0; slot++) {
      const day = Math.floor(slot / length);
      const at = teacherOf[kind]! * days + day;
      if (classAt[classOf[kind]! * slots + slot]! >= 0 || teacherAt[teacherOf[kind]! * slots + slot]! >= 0) continue;
      if (
        isClosed(kind, day, slot % length) ||
        onDay[at]! >= model.dayLimit[at]! ||
        inWeek[teacherOf[kind]!]! >= model.weekLimit[teacherOf[kind]!]! ||
        !rooms.take(kind, slot)
      )
        continue;
      classAt[classOf[kind]! * slots + slot] = kind;
      teacherAt[teacherOf[kind]! * slots + slot] = kind;
      onDay[at]!++;
      inWeek[teacherOf[kind]!]!++;
      missing[kind]!--;
    }
  }
  return { missing, rooms };
}

/** The placed lessons, sorted by class, day and period. */
export function placedLessons(model: Model, classAt: Int32Array, rooms: ReturnType<typeof roomsOfSlots>): Placed[] {
  const { days, length } = model;
  const slots = (days + 1) * length;
  const placed: Placed[] = [];
  for (let classIndex = 0; classIndex < model.classIds.length; classIndex++) {
    for (let slot = 0; slot < days * length; slot++) {
      const kind = classAt[classIndex * slots + slot]!;
      if (kind < 0) continue;
      placed.push({
        class: model.classIds[classIndex]!,
        subject: model.subjects[kind]!,
        teacher: model.teacherIds[model.teacherOf[kind]!]!,
        day: Math.floor(slot / length) + 1,
        period: model.periods[slot % length]!,
        ...(!model.isAtHome[kind] && { room: model.roomIds[rooms.roomAt(classIndex, slot)]! }),
      });
    }
  }
  return placed;
}

const because: Record<UnplacedReason, string> = {
  class_full: '{class} has a lesson in every period in which it has school.',
  teacher_clash: '{teacher} teaches another class in most of the periods in which {class} is free.',
  teacher_unavailable: '{teacher} is not available in most of the periods in which {class} is free.',
  teacher_busy: '{teacher} has lessons outside this plan in most of the periods in which {class} is free.',
  teacher_day_limit: '{teacher} has reached the day limit on most of the days on which {class} is free.',
  teacher_week_limit: '{teacher} has reached the week limit.',
  room_taken: 'its rooms are taken in most of the periods in which {class} is free.',
};

export function unplacedLessons(
  model: Model,
  classAt: Int32Array,
  missing: Int32Array,
  rooms: ReturnType<typeof roomsOfSlots>,
): Unplaced[] {
  const { days, length } = model;
  const slots = (days + 1) * length;
  const { teacherAt, teacherMask } = countBoard(model, classAt);
  const unplaced: Unplaced[] = [];
  for (let kind = 0; kind < missing.length; kind++) {
    if (missing[kind] === 0) continue;
    const classIndex = model.classOf[kind]!;
    const teacher = model.teacherOf[kind]!;
    const periods = {
      class_taken: 0,
      teacher_unavailable: 0,
      teacher_busy: 0,
      teacher_clash: 0,
      teacher_day_limit: 0,
      room_taken: 0,
    };
    let open = 0;
    for (let slot = 0; slot < days * length; slot++) {
      const day = Math.floor(slot / length);
      const bit = 1 << (slot % length);
      if (model.classClosed[classIndex * days + day]! & bit) continue;
      open++;
      if (classAt[classIndex * slots + slot]! >= 0) periods.class_taken++;
      else if (model.teacherAway[teacher * days + day]! & bit) periods.teacher_unavailable++;
      else if (model.teacherBusy[teacher * days + day]! & bit) periods.teacher_busy++;
      else if (teacherAt[teacher * slots + slot]! >= 0) periods.teacher_clash++;
      else if (bits(teacherMask[teacher * (days + 1) + day]!) >= model.dayLimit[teacher * days + day]!)
        periods.teacher_day_limit++;
      else if (!rooms.isFree(kind, slot)) periods.room_taken++;
    }
    const whileFree = [
      ...(['teacher_unavailable', 'teacher_busy', 'teacher_clash', 'teacher_day_limit', 'room_taken'] as const),
    ];
    const most = whileFree.reduce((a, b) => (periods[b] > periods[a] ? b : a));
    let inWeek = 0;
    for (let day = 0; day < days; day++) inWeek += bits(teacherMask[teacher * (days + 1) + day]!);
    const reason =
      periods.class_taken === open ? 'class_full' : inWeek >= model.weekLimit[teacher]! ? 'teacher_week_limit' : most;
    const count = missing[kind]!;
    unplaced.push({
      class: model.classIds[classIndex]!,
      subject: model.subjects[kind]!,
      teacher: model.teacherIds[teacher]!,
      missing: count,
      reason,
      message: `${count} of ${model.count[kind]!} periods of {subject} with {teacher} have no slot in {class}: ${because[reason]}`,
      periods,
    });
  }
  return unplaced;
}

export function figuresOf(model: Model, classAt: Int32Array): Figures {
  const { totals, classMask } = countBoard(model, classAt);
  return {
    spread_excess: totals.spread,
    class_gaps: totals.classGaps,
    teacher_gaps: totals.teacherGaps,
    required_periods: model.required,
    placed_periods: classMask.reduce((sum, mask) => sum + bits(mask), 0),
  };
}
