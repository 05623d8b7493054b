import type { z } from 'zod';
import type * as auth from '../endpoints/auth.ts';
import type * as impersonation from '../endpoints/impersonation.ts';
import type * as platform from '../endpoints/platform.ts';
import type * as notifications from '../endpoints/platform-notifications.ts';

// The response types of the API, inferred from the schemas that document and validate it.
export type Profile = z.output<typeof auth.Profile>;
export type Overview = z.output<typeof platform.Overview>;
export type Tenant = z.output<typeof platform.Tenant>;
export type TenantDetail = z.output<typeof platform.TenantDetail>;
export type AuditLog = z.output<typeof platform.AuditLog>;
export type Plan = z.output<typeof platform.Plan>;
export type Settings = z.output<typeof notifications.Settings>;
export type NotificationEvent = z.output<typeof notifications.Event>;
export type Template = z.output<typeof notifications.Template>;
export type Channel = Template['channel'];
export type Feature = (typeof platform.features)[number];
export type Preview = z.output<typeof notifications.Preview>;
export type Impersonation = z.output<typeof impersonation.Impersonation>;
