import type { Resource } from '../endpoint.ts';
import { academics } from './academics.ts';
import { academicTerms } from './academic-terms.ts';
import { auth } from './auth.ts';
import { devices } from './devices.ts';
import { platform } from './platform.ts';
import { rbac } from './rbac.ts';
import { schoolSetup } from './school-setup.ts';
import { students } from './students.ts';
import { subscription } from './subscription.ts';
import { users } from './users.ts';

/** Every documented endpoint, in the order of the specification. */
export const resources: readonly Resource[] = [auth, students, academics, academicTerms, rbac, users, platform, schoolSetup, devices, subscription];
