import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { Command } from 'commander';
import type { Generated, Id, Placed, Problem } from '../src/timetable/problem.ts';
import { count } from './run.ts';
import { findDefects, type TimetableDefects } from '../test/support/fixtures/timetable-defects.ts';
import { instances } from '../test/support/fixtures/stored-problems.ts';
import { feasibleProblem, plainSchool, type School } from '../test/support/fixtures/random-problems.ts';

// `npm run bench:timetable -- [effort] [names,...]`: runs the generator on stored and on generated problems, and
// also FET if `fet-cl` is installed.

const [effort, names] = new Command('bench:timetable')
  .description('Runs the timetable generator on stored and generated problems, and FET if fet-cl is installed.')
  .argument('[effort]', 'effort of the generator, also the time limit of FET in seconds', count, 10)
  .argument('[names]', 'names of problems, separated by commas; default: all')
  .parse().processedArgs as [number, string | undefined];
const print = (text: string) => process.stdout.write(`${text}\n`);
const run = promisify(execFile);

const schools: Record<string, Partial<School>> = {
  'full, half without slack': {
    classes: 24,
    classLoad: 1,
    teacherLoad: 0.8,
    withoutFreePeriods: 0.5,
    exactLimits: true,
  },
  'half-time teachers': { classes: 24, classLoad: 0.95, teacherLoad: 0.5, partTime: 0.6 },
  'half-time, full, no slack': {
    classes: 40,
    classLoad: 1,
    teacherLoad: 0.5,
    withoutFreePeriods: 0.9,
    partTime: 0.5,
    exactLimits: true,
    days: 6,
    periods: 7,
    lunch: [4],
  },
  'one teacher for all': {
    classes: 30,
    classLoad: 1,
    teacherLoad: 0.7,
    hasSharedTeacher: true,
    withoutFreePeriods: 0.3,
  },
  'twelve periods': {
    classes: 20,
    classLoad: 1,
    teacherLoad: 0.7,
    days: 6,
    periods: 12,
    lunch: [5, 6],
    withoutFreePeriods: 0.3,
    doubles: 0.3,
  },
  'eighty classes': {
    classes: 80,
    classLoad: 0.95,
    teacherLoad: 0.65,
    days: 6,
    periods: 9,
    partTime: 0.2,
    withoutFreePeriods: 0.1,
  },
  'eighty full classes': {
    classes: 80,
    classLoad: 1,
    teacherLoad: 0.8,
    lunch: [4, 5],
    withoutFreePeriods: 0.5,
    exactLimits: true,
  },
};

interface Attempt {
  seconds: number;
  cpuSeconds: number | null;
  megabytes: number | null;
  placed: Placed[];
}

/**
 * Runs our generator in a thread, as the service does. `megabytes` is the peak memory that this adds to the process.
 */
async function runOurs(problem: Problem): Promise<Attempt> {
  const before = process.memoryUsage().rss;
  let highest = before;
  const timer = setInterval(() => (highest = Math.max(highest, process.memoryUsage().rss)), 20);
  const cpuBefore = process.cpuUsage();
  const thread = new Worker(new URL('../src/timetable/generate.worker.ts', import.meta.url));
  thread.postMessage({ problem, options: { effort: effort, time_limit_ms: 600_000 } });
  const result = await new Promise<Generated>((resolve, reject) => thread.on('message', resolve).on('error', reject));
  const { user, system } = process.cpuUsage(cpuBefore);
  clearInterval(timer);
  await thread.terminate();
  return {
    seconds: result.seconds,
    cpuSeconds: (user + system) / 1e6,
    megabytes: (highest - before) / 1e6,
    placed: result.status === 'infeasible' ? [] : result.placed,
  };
}

const text = (value: Id) => String(value).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
const tag = (name: string, content: string | number) => `<${name}>${content}</${name}>`;

/**
 * Writes a problem in the file format of FET. Rules and class gaps have a weight of 100 %, spread 95 % (not for lessons
 * that occur more than once a day). Teacher gaps have 100 % if requested, otherwise they are ignored. FET cannot count
 * a fixed lesson outside the plan towards the daily limit, so its problem is slightly easier than ours.
 */
function toFetFile(
  problem: Problem,
  forbidsTeacherGaps: boolean,
): { xml: string; lessonOf: Map<number, Problem['lessons'][number]> } {
  const days = Array.from({ length: problem.days }, (_, index) => `D${index + 1}`);
  const hours = Array.from({ length: problem.periods_per_day }, (_, index) => `H${index + 1}`);
  const lessonOf = new Map<number, Problem['lessons'][number]>();
  const activities: string[] = [];
  const constraints: string[] = [];
  const constraint = (name: string, weight: number, content: string) =>
    constraints.push(
      tag(name, tag('Weight_Percentage', weight) + content + tag('Active', 'true') + tag('Comments', '')),
    );
  constraint('ConstraintBasicCompulsoryTime', 100, '');
  let id = 0;
  for (const lesson of problem.lessons) {
    const ids = Array.from({ length: lesson.periods_per_week }, () => ++id);
    for (const each of ids) {
      lessonOf.set(each, lesson);
      const user =
        tag('Teacher', text(lesson.teacher)) +
        tag('Subject', text(lesson.subject)) +
        tag('Students', text(lesson.class));
      const lasts =
        tag('Duration', 1) +
        tag('Total_Duration', ids.length) +
        tag('Id', each) +
        tag('Activity_Group_Id', ids.length > 1 ? (ids[0] ?? 0) : 0);
      activities.push(tag('Activity', user + lasts + tag('Active', 'true') + tag('Comments', '')));
    }
    if (ids.length > 1 && ids.length <= problem.days) {
      constraint(
        'ConstraintMinDaysBetweenActivities',
        95,
        tag('Consecutive_If_Same_Day', 'false') +
          tag('Number_of_Activities', ids.length) +
          ids.map((each) => tag('Activity_Id', each)).join('') +
          tag('MinDays', 1),
      );
    }
  }
  const times = (name: string, all: readonly (readonly [number, number])[]) =>
    tag(`Number_of_${name}`, all.length) +
    all.map(([day, hour]) => tag(name.slice(0, -1), tag('Day', `D${day}`) + tag('Hour', `H${hour}`))).join('');
  const breaks = problem.lunch_periods.flatMap((hour) => days.map((_, day) => [day + 1, hour] as const));
  if (breaks.length > 0) constraint('ConstraintBreakTimes', 100, times('Break_Times', breaks));
  constraint('ConstraintStudentsEarlyMaxBeginningsAtSecondHour', 100, tag('Max_Beginnings_At_Second_Hour', 0));
  constraint('ConstraintStudentsMaxGapsPerWeek', 100, tag('Max_Gaps', 0));
  for (const { id: teacher, unavailable = [], busy = [], max_per_day } of problem.teachers) {
    const away = [...unavailable, ...busy];
    if (away.length > 0)
      constraint(
        'ConstraintTeacherNotAvailableTimes',
        100,
        tag('Teacher', text(teacher)) + times('Not_Available_Times', away),
      );
    if (max_per_day != null)
      constraint(
        'ConstraintTeacherMaxHoursDaily',
        100,
        tag('Teacher_Name', text(teacher)) + tag('Maximum_Hours_Daily', Math.max(1, max_per_day)),
      );
  }
  if (forbidsTeacherGaps) constraint('ConstraintTeachersMaxGapsPerWeek', 100, tag('Max_Gaps', 0));
  const classes = problem.classes.map((each) => (typeof each === 'object' ? each.id : each));
  const subjects = [...new Set(problem.lessons.map(({ subject }) => text(subject)))];
  const xml = `<?xml version="1.0" encoding="UTF-8"?>\n<fet version="6.8.5">${
    tag('Institution_Name', 'bench') +
    tag('Comments', '') +
    tag('Days_List', tag('Number_of_Days', days.length) + days.map((name) => tag('Day', tag('Name', name))).join('')) +
    tag(
      'Hours_List',
      tag('Number_of_Hours', hours.length) + hours.map((name) => tag('Hour', tag('Name', name))).join(''),
    ) +
    tag('Subjects_List', subjects.map((name) => tag('Subject', tag('Name', name) + tag('Comments', ''))).join('')) +
    tag('Activity_Tags_List', '') +
    tag(
      'Teachers_List',
      problem.teachers
        .map((teacher) =>
          tag(
            'Teacher',
            tag('Name', text(teacher.id)) +
              tag('Target_Number_of_Hours', 0) +
              tag('Qualified_Subjects', '') +
              tag('Comments', ''),
          ),
        )
        .join(''),
    ) +
    tag(
      'Students_List',
      classes
        .map((name) => tag('Year', tag('Name', text(name)) + tag('Number_of_Students', 0) + tag('Comments', '')))
        .join(''),
    ) +
    tag('Activities_List', activities.join('')) +
    tag('Buildings_List', '') +
    tag('Rooms_List', '') +
    tag('Time_Constraints_List', constraints.join('')) +
    tag(
      'Space_Constraints_List',
      '<ConstraintBasicCompulsorySpace><Weight_Percentage>100</Weight_Percentage><Active>true</Active><Comments></Comments></ConstraintBasicCompulsorySpace>',
    )
  }</fet>\n`;
  return { xml, lessonOf };
}

/** Runs FET. @returns undefined if it found nothing within the limit */
async function runFet(problem: Problem, forbidsTeacherGaps: boolean, limit: number): Promise<Attempt | undefined> {
  const folder = await mkdtemp(join(tmpdir(), 'fet-'));
  try {
    const { xml, lessonOf } = toFetFile(problem, forbidsTeacherGaps);
    await writeFile(join(folder, 'school.fet'), xml);
    const begin = performance.now();
    const options = [
      `--inputfile=${join(folder, 'school.fet')}`,
      `--outputdir=${folder}`,
      `--timelimitseconds=${limit}`,
    ];
    const output = await run('fet-cl', options).catch((error: unknown) => ({
      stdout: error instanceof Error ? error.message : '',
    }));
    const took = (performance.now() - begin) / 1000;
    const solution = await readFile(join(folder, 'timetables', 'school', 'school_activities.xml'), 'utf8').catch(
      () => undefined,
    );
    if (solution === undefined) {
      if (process.env['VERBOSE']) print(output.stdout);
      return undefined;
    }
    const placed: Placed[] = [];
    for (const [, id, day, period] of solution.matchAll(
      /<Id>(\d+)<\/Id>\s*<Day>D(\d+)<\/Day>\s*<Hour>H(\d+)<\/Hour>/g,
    )) {
      const lesson = lessonOf.get(Number(id));
      if (lesson)
        placed.push({
          class: lesson.class,
          subject: lesson.subject,
          teacher: lesson.teacher,
          day: Number(day),
          period: Number(period),
        });
    }
    return { seconds: took, cpuSeconds: null, megabytes: null, placed };
  } finally {
    await rm(folder, { recursive: true });
  }
}

const number = (value: number | null, digits = 0) => (value === null ? '' : value.toFixed(digits)).padStart(8);
function row(name: string, { seconds: took, cpuSeconds, megabytes }: Attempt, defects: TimetableDefects): void {
  const broken = Object.values(defects.broken).reduce((sum, n) => sum + n, 0);
  const { unplaced, spread_excess, class_gaps, teacher_gaps } = defects;
  print(
    `${name.padEnd(34)}${number(took, 2)}${number(cpuSeconds, 2)}${[unplaced, broken, spread_excess, class_gaps, teacher_gaps].map((n) => number(n)).join('')}${number(megabytes)}`,
  );
}

const generated = Object.entries(schools).map(([name, school]) => ({
  name,
  problem: feasibleProblem({ ...plainSchool, ...school }, 1).problem,
}));
const hasFet = await run('fet-cl', ['--version']).then(
  () => true,
  () => false,
);
print(
  hasFet
    ? 'FET runs too, without and with the rule that teachers have no gaps.'
    : 'fet-cl is not installed (Debian: apt-get install fet), so FET is skipped.',
);
print(`Effort ${effort}, which is also the time limit of FET in seconds.`);
print(
  `${''.padEnd(34)}${['seconds', 'cpu', 'unplaced', 'broken', 'spread', 'class', 'teacher', 'MB'].map((head) => head.padStart(8)).join('')}`,
);
for (const { name, problem } of [...instances, ...generated]) {
  if (names && !names.split(',').includes(name)) continue;
  const attempt = await runOurs(problem);
  row(name, attempt, findDefects(problem, attempt.placed));
  if (!hasFet) continue;
  for (const forbidsGaps of [false, true]) {
    const other = await runFet(problem, forbidsGaps, effort);
    const label = forbidsGaps ? '  FET, no gaps' : '  FET';
    if (other) row(label, other, findDefects(problem, other.placed));
    else print(`${label.padEnd(34)}    nothing within the limit`);
  }
}
