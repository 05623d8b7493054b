import type { Lesson, Placed, Problem, Teacher, Time } from '../../src/timetable/problem.ts';

/** What a school looks like whose problem is made up; shares are from 0 to 1. */
export interface School {
  classes: number;
  days: number;
  periods: number;
  lunch: number[];
  /** Of the periods in which a class has lessons, on average; 1 fills all. */
  full: number;
  /** Of its week that a teacher teaches, on average. */
  load: number;
  /** Of the teachers who can come in no period but those in which they teach in the hidden timetable. */
  tight: number;
  /** Of the teachers who come on two or three days only. */
  partTime: number;
  /** Of the lessons of a subject that may come twice a day. */
  doubles: number;
  /** Of the other free periods in which a teacher can't come. */
  away: number;
  /** Whether every limit is what the hidden timetable needs. */
  exactLimits: boolean;
  /** A subject that one teacher gives in all classes. */
  oneForAll: boolean;
}

export const plainSchool: School = {
  classes: 12,
  days: 5,
  periods: 8,
  lunch: [5],
  full: 0.9,
  load: 0.6,
  tight: 0,
  partTime: 0,
  doubles: 0.1,
  away: 0.15,
  exactLimits: false,
  oneForAll: false,
};

/** mulberry32, from 0 to 1. */
export function randoms(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** A problem that is made from a hidden timetable, which solves it: without gaps in the classes. */
export function feasibleProblem(school: School, seed: number): { problem: Problem; hidden: Placed[] } {
  const { classes, days, periods, lunch } = school;
  const random = randoms(seed);
  const below = (n: number) => Math.floor(random() * n);
  const shuffled = <T>(all: T[]) => {
    for (let left = all.length; left > 1; left--) {
      const other = below(left);
      const one = all[left - 1] as T;
      all[left - 1] = all[other] as T;
      all[other] = one;
    }
    return all;
  };
  const open = Array.from({ length: periods }, (_, index) => index + 1).filter((period) => !lunch.includes(period));
  const teacherCount = Math.max(classes + 1, Math.ceil((classes * school.full) / school.load));
  const teachers = Array.from({ length: teacherCount }, (_, n) => {
    const onDays = random() < school.partTime ? new Set(shuffled(Array.from({ length: days }, (__, day) => day + 1)).slice(0, 2 + below(2))) : undefined;
    return { id: `T${String(n + 1).padStart(3, '0')}`, onDays, taught: new Set<string>() };
  });
  // Everybody's subjects: a few more than a day has periods, each with a teacher for this class.
  const offers = Array.from({ length: classes }, (_, n) => {
    const chosen = shuffled([...teachers.keys()]).slice(0, Math.min(teacherCount, open.length + 4 + below(4)));
    if (school.oneForAll && !chosen.includes(0)) chosen.push(0);
    return chosen.map((teacher, index) => ({
      class: n + 1,
      subject: teacher === 0 && school.oneForAll ? 'Music' : `Subject ${String(index + 1)}`,
      teacher,
      most: random() < school.doubles ? 2 : 1,
      days: new Map<number, number>(),
    }));
  });
  type Offer = (typeof offers)[number][number];
  const hidden: Placed[] = [];
  const counts = new Map<Offer, number>();
  for (let day = 1; day <= days; day++) {
    const lengths = offers.map(() => open.filter(() => random() < school.full).length);
    const ended = new Set<number>();
    for (const [index, period] of open.entries()) {
      // The classes find teachers by augmenting paths.
      const by = new Map<number, Offer>();
      const find = (who: number, seen: Set<number>): boolean => {
        for (const offer of shuffled([...(offers[who] ?? [])])) {
          const teacher = teachers[offer.teacher];
          if (!teacher || seen.has(offer.teacher) || (offer.days.get(day) ?? 0) >= offer.most) continue;
          if (teacher.onDays && !teacher.onDays.has(day)) continue;
          seen.add(offer.teacher);
          const taken = by.get(offer.teacher);
          if (taken && !find(taken.class - 1, seen)) continue;
          by.set(offer.teacher, offer);
          return true;
        }
        return false;
      };
      for (const who of shuffled([...offers.keys()])) {
        if (index >= (lengths[who] ?? 0) || ended.has(who)) continue;
        if (!find(who, new Set())) ended.add(who);
      }
      for (const offer of by.values()) {
        const teacher = teachers[offer.teacher];
        if (!teacher) continue;
        offer.days.set(day, (offer.days.get(day) ?? 0) + 1);
        counts.set(offer, (counts.get(offer) ?? 0) + 1);
        teacher.taught.add(`${String(day)}.${String(period)}`);
        hidden.push({ class: offer.class, subject: offer.subject, teacher: teacher.id, day, period });
      }
    }
  }
  const lessons: Lesson[] = [...counts].map(([offer, periods_per_week]) => ({
    class: offer.class,
    subject: offer.subject,
    teacher: teachers[offer.teacher]?.id ?? '',
    periods_per_week,
  }));
  const described: Teacher[] = teachers.map(({ id, onDays, taught }) => {
    const isTight = random() < school.tight;
    const unavailable: Time[] = [];
    const busy: Time[] = [];
    let most = 0;
    for (let day = 1; day <= days; day++) {
      let here = 0;
      for (const period of open) {
        if (taught.has(`${String(day)}.${String(period)}`)) here++;
        else if (isTight || (onDays && !onDays.has(day)) || random() < school.away) {
          if (!isTight && random() < 0.1) {
            busy.push([day, period]);
            here++;
          } else unavailable.push([day, period]);
        }
      }
      most = Math.max(most, here);
    }
    const slack = school.exactLimits ? 0 : 1 + below(2);
    return { id, unavailable, busy, max_per_day: random() < 0.1 ? null : most + slack, max_per_week: taught.size + busy.length + slack * 2 };
  });
  return {
    problem: { days, periods_per_day: periods, lunch_periods: lunch, classes: offers.map((_, n) => n + 1), teachers: described, lessons },
    hidden,
  };
}
