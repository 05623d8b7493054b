import type { Resource } from '../http/endpoint.ts';
import { academicTerms } from './academic-terms.ts';
import { academics } from './academics.ts';
import { apiKeys } from './api-keys.ts';
import { attendance } from './attendance.ts';
import { auditLogs } from './audit-logs.ts';
import { auth } from './auth.ts';
import { twoFactor } from './two-factor.ts';
import { balances } from './balances.ts';
import { children } from './children.ts';
import { classSubjects } from './class-subjects.ts';
import { classes } from './classes.ts';
import { dashboard } from './dashboard.ts';
import { devices } from './devices.ts';
import { feeStructures } from './fee-structures.ts';
import { financeSummary } from './finance-summary.ts';
import { guardianContacts } from './guardian-contacts.ts';
import { guardianPreferences } from './guardian-preferences.ts';
import { guardians } from './guardians.ts';
import { holidays } from './holidays.ts';
import { impersonation } from './impersonation.ts';
import { imports } from './imports.ts';
import { invoices } from './invoices.ts';
import { masterData } from './master-data.ts';
import { notificationTemplates } from './notification-templates.ts';
import { notifications } from './notifications.ts';
import { feePayments, financePayments } from './payments.ts';
import { peopleExports } from './people-exports.ts';
import { pictures } from './pictures.ts';
import { platform } from './platform.ts';
import { platformApiKeys } from './platform-api-keys.ts';
import { operators } from './platform-operators.ts';
import { platformNotifications } from './platform-notifications.ts';
import { platformSchools } from './platform-schools.ts';
import { platformQuestions } from './platform-questions.ts';
import { platformSystem } from './platform-system.ts';
import { platformUsage } from './platform-usage.ts';
import { platformWebhooks } from './platform-webhooks.ts';
import { rbac } from './rbac.ts';
import { calendar, schedule } from './schedule.ts';
import { schoolAuditLogs } from './school-audit-logs.ts';
import { schoolSetup } from './school-setup.ts';
import { attendanceAbsences, studentAbsences } from './student-absences.ts';
import { studentFeeDiscounts } from './student-fee-discounts.ts';
import { studentFees } from './student-fees.ts';
import { studentGuardians } from './student-guardians.ts';
import { students } from './students.ts';
import { gradeSubjects, subjects } from './subjects.ts';
import { subscription } from './subscription.ts';
import { teachers } from './teachers.ts';
import { rooms } from './rooms.ts';
import { timetableGenerate } from './timetable-generate.ts';
import { timetable } from './timetable.ts';
import { transportBuses } from './transport-buses.ts';
import { transportEnrollments } from './transport-enrollments.ts';
import { transportDrivers, transportStaff } from './transport-people.ts';
import { transportRoutes, transportStops } from './transport-routes.ts';
import { transportAssignments, transportSchedules } from './transport-schedules.ts';
import { transport } from './transport.ts';
import { users } from './users.ts';
import { webhooks } from './webhooks.ts';

/**
 * The resources in the order of their sections in the documentation. One whose path continues the path of another
 * (`/notifications/templates`) comes first; otherwise the `/:id` of the other would match it.
 */
export const resources: readonly Resource[] = [
  auth,
  twoFactor,
  operators,
  imports,
  peopleExports,
  studentAbsences,
  studentGuardians,
  guardianContacts,
  guardianPreferences,
  guardians,
  children,
  students,
  teachers,
  classes,
  subjects,
  gradeSubjects,
  classSubjects,
  attendance,
  attendanceAbsences,
  academics,
  academicTerms,
  feeStructures,
  studentFees,
  studentFeeDiscounts,
  financePayments,
  financeSummary,
  balances,
  invoices,
  feePayments,
  rooms,
  timetable,
  timetableGenerate,
  schedule,
  calendar,
  notificationTemplates,
  notifications,
  holidays,
  transportBuses,
  transportDrivers,
  transportRoutes,
  transportStops,
  transportEnrollments,
  transportStaff,
  transportSchedules,
  transportAssignments,
  transport,
  dashboard,
  rbac,
  users,
  pictures,
  platformSystem,
  platformUsage,
  platformSchools,
  platform,
  auditLogs,
  impersonation,
  platformNotifications,
  platformQuestions,
  schoolAuditLogs,
  schoolSetup,
  devices,
  webhooks,
  platformWebhooks,
  apiKeys,
  platformApiKeys,
  subscription,
  ...masterData,
];
