import type { Resource } from '../endpoint.ts';
import { auth } from './auth.ts';
import { imports } from './imports.ts';
import { platform } from './platform.ts';
import { rbac } from './rbac.ts';
import { students } from './students.ts';
import { users } from './users.ts';

/** Every documented endpoint, in the order of the specification; fixed paths below a resource (imports) come before its `/:id`. */
export const resources: readonly Resource[] = [auth, imports, students, rbac, users, platform];
