import { readdirSync, readFileSync } from 'node:fs';
import type { Problem } from '../../src/timetable/problem.ts';

const folder = new URL('../data/timetable/', import.meta.url);

/** The instances in test/data/timetable, smallest first. */
export const instances: { name: string; problem: Problem }[] = readdirSync(folder)
  .filter((file) => file.endsWith('.json'))
  .map((file) => JSON.parse(readFileSync(new URL(file, folder), 'utf8')) as Problem & { name: string; lunch_period: number | null })
  .map(({ name, lunch_period, ...problem }) => ({ name, problem: { ...problem, lunch_periods: lunch_period === null ? [] : [lunch_period] } }))
  .sort((a, b) => a.problem.lessons.length - b.problem.lessons.length);
