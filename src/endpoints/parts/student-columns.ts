import type { ExportColumn } from './exports.ts';

/** The columns that identify a student. */
export const studentColumns = {
  admissionNumber: { header: 'Admission number', type: 'text' },
  student: { header: 'Student', type: 'text', width: 30 },
  class: { header: 'Class', type: 'text', width: 20 },
} satisfies Record<string, ExportColumn>;
