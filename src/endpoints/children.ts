import { z } from 'zod';
import { json, page, resource } from '../http/endpoint.ts';
import { id } from '../http/schemas.ts';
import { relationship } from './parts/guardian-link.ts';
import { StudentDashboard } from './students.ts';

const Child = z
  .object({
    student_id: id,
    first_name: z.string().meta({ examples: ['Amina'] }),
    last_name: z.string().meta({ examples: ['García'] }),
    student_name: z.string(),
    admission_number: z.string(),
    class_id: id.nullable(),
    class_name: z.string().nullable(),
    grade_name: z.string().nullable(),
    is_active: z.boolean().meta({ description: 'False for a student who has left.' }),
    relationship: z.enum(relationship.options).nullable(),
    can_see_contacts: z.boolean(),
    receives_messages: z.boolean(),
    can_pick_up: z.boolean(),
  })
  .meta({ id: 'Child' });

export const children = resource('/me', 'Children', 'The children of the guardian who is logged in.', {
  'GET /children': {
    operation: 'me_children_list',
    summary: 'List your children',
    description: 'The students whose records you may see, by first name.',
    response: page(Child),
  },
  'GET /children/:student_id/dashboard': {
    operation: 'me_children_dashboard',
    summary: 'Get the dashboard of a child',
    description: 'Class, attendance, fees and lessons of today of the child, and your unread notifications.',
    response: json(StudentDashboard),
  },
});
