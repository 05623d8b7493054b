import { z } from 'zod';

/** The attendance rate in percent. */
export const attendanceRate = z
  .number()
  .nullable()
  .meta({
    description: 'Percentage of marks that are present or late, with up to 2 decimals; null without marks.',
    examples: [95.31],
  });
