import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { Deleted, id, nameText, optionalText, timestamps } from '../http/schemas.ts';

const RoleInput = z
  .strictObject({
    name: nameText(100).meta({ examples: ['Librarian'] }),
    description: optionalText(500),
    permission_ids: z
      .array(id)
      .max(500)
      .optional()
      .meta({ description: 'From GET /api/rbac/permissions. Only permissions that you have yourself are allowed.' }),
  })
  .meta({ id: 'RoleInput' });

export const Role = z
  .object({
    id,
    name: z.string(),
    description: z.string().nullable(),
    is_system: z.boolean().meta({ description: 'System roles cannot be deleted or renamed.' }),
    permission_ids: z.array(id),
    permissions: z.array(z.string()),
    user_count: z.int(),
    ...timestamps,
  })
  .meta({ id: 'Role' });

export const Permission = z
  .object({ id, name: z.string().meta({ examples: ['student.read'] }), description: z.string() })
  .meta({ id: 'Permission' });

const UserRole = z
  .object({ id, name: z.string(), description: z.string().nullable(), is_system: z.boolean() })
  .meta({ id: 'UserRole', description: 'A role of a user.' });
const UserRoles = z.array(UserRole).meta({ id: 'UserRoles', description: 'The roles of one user.' });

export const rbac = resource('/rbac', 'Roles and permissions', 'Roles, their permissions, and the roles of users.', {
  'GET /roles': {
    operation: 'rbac_roles_list',
    summary: 'List roles',
    response: page(Role),
  },
  'POST /roles': {
    operation: 'rbac_roles_create',
    summary: 'Create a role',
    body: RoleInput,
    response: created(Role),
  },
  'GET /roles/:id': { operation: 'rbac_roles_get', summary: 'Get a role', response: json(Role) },
  'PUT /roles/:id': {
    operation: 'rbac_roles_update',
    summary: 'Update a role',
    description: 'Takes effect at the next request of its users.',
    body: RoleInput.partial().meta({ id: 'RoleChange' }),
    response: json(Role),
  },
  'DELETE /roles/:id': {
    operation: 'rbac_roles_delete',
    summary: 'Delete a role',
    description: '409 in_use while a user has it.',
    response: json(Deleted),
  },
  'GET /permissions': {
    operation: 'rbac_permissions_list',
    summary: 'List all permissions',
    response: page(Permission, {}, { defaultSize: 100 }),
  },
  'GET /users/:user_id/roles': {
    operation: 'rbac_user_roles_list',
    summary: 'List the roles of a user',
    response: page(UserRole, {}, { defaultSize: 100 }),
  },
  'POST /users/:user_id/roles': {
    operation: 'rbac_user_roles_add',
    summary: 'Add a role to a user',
    body: z.strictObject({ role_id: id }).meta({ id: 'RoleAssignment' }),
    response: json(UserRoles),
  },
  'DELETE /users/:user_id/roles/:role_id': {
    operation: 'rbac_user_roles_remove',
    summary: 'Remove a role from a user',
    response: json(UserRoles),
  },
});
