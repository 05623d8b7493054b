import type { Model } from './model.ts';
import type { OverCapacity } from './problem.ts';

export function overCapacity(_model: Model): OverCapacity[] {
  return [];
}
