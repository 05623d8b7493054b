import { expect, test } from '@jest/globals';
import {
  correctEstimate,
  estimatedMb,
  maxPreparedStatements,
  newBackend,
  remember,
} from '../../src/database/pool/backend-memory.ts';

test('after each correction the estimate is what the backend reported, and grows from there', () => {
  const backend = newBackend();
  for (const reported of [7, 9, 4]) {
    const before = estimatedMb(backend);
    remember(backend, { school: reported, planKey: 'students_list' });
    expect(estimatedMb(backend)).toBeGreaterThan(before);
    correctEstimate(backend, reported);
    expect(estimatedMb(backend)).toBeCloseTo(reported);
  }
});

test('plans count up to the number of statements that a connection keeps, what else an operation loads counts on', () => {
  const backend = newBackend();
  const growth = () => {
    const before = estimatedMb(backend);
    remember(backend, { school: 1, planKey: `operation ${backend.statementCount}` });
    return estimatedMb(backend) - before;
  };
  while (backend.statementCount < maxPreparedStatements - 1) growth();
  const [last, next] = [growth(), growth()];
  expect(backend.statementCount).toBe(maxPreparedStatements + 1);
  expect(last).toBeGreaterThan(next);
  expect(next).toBeGreaterThan(0);
});

test('a repeated operation of a school counts once, and each school for itself', () => {
  const backend = newBackend();
  const after = (school: number, planKey: string) => {
    remember(backend, { school, planKey });
    return estimatedMb(backend);
  };
  const once = after(1, 'students_get');
  expect(after(1, 'students_get')).toBe(once);
  expect(after(2, 'students_get')).toBeCloseTo(2 * once);
});
