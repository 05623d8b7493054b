import type { Resource } from '../endpoint.ts';
import { auth } from './auth.ts';
import { classSubjects } from './class-subjects.ts';
import { classes } from './classes.ts';
import { dashboard } from './dashboard.ts';
import { masterData } from './master-data.ts';
import { platform } from './platform.ts';
import { rbac } from './rbac.ts';
import { students } from './students.ts';
import { gradeSubjects, subjects } from './subjects.ts';
import { teachers } from './teachers.ts';
import { users } from './users.ts';

/** Every documented endpoint, in the order of the specification. */
export const resources: readonly Resource[] = [
  auth,
  students,
  teachers,
  classes,
  subjects,
  gradeSubjects,
  classSubjects,
  dashboard,
  rbac,
  users,
  platform,
  ...masterData,
];
