import type { TestService } from '../../support/server/service.ts';
import type { Login, SpecificationClient } from '../client.ts';
import { chargeFees, sendInvoices } from './billing.ts';
import { keepHolidays, markAttendance, notify, openDashboards, planLessons, readWithoutPermission } from './daily.ts';
import { addSchool, manageSchools, writeNotificationTexts } from './operator.ts';
import { addClasses, addTeachers, admitStudents, keepDocuments } from './people.ts';
import { addUsers, keepMasterData, logIn, planYears, setUp } from './setup.ts';
import { runBuses } from './transport.ts';
import { endYear, logOut } from './year-end.ts';

/** Runs the first year of a school. Each step uses records of earlier steps. Returns the admin of the school. */
export async function runFirstYear(
  client: SpecificationClient,
  service: TestService,
): Promise<{ admin: Login; subdomain: string }> {
  const platform = await addSchool(client);
  await writeNotificationTexts(client, platform.operator);
  const admin = await logIn(client, service, platform);
  const setup = await setUp(client, admin);
  const nextYearId = await planYears(client, admin, setup.yearId);
  const contextId = await keepMasterData(client, admin);
  const studentRoleId = await addUsers(client, service, admin, platform.subdomain);

  const classes = await addClasses(client, admin, { ...setup, contextId });
  const school = { ...platform, ...setup, ...classes };
  const teachers = await addTeachers(client, admin, school);
  const students = await admitStudents(client, service, admin, school);
  const people = { admin, studentRoleId, ...school, ...teachers, ...students };
  const documentId = await keepDocuments(client, admin, people.aminaId);

  await planLessons(client, people);
  await keepHolidays(client, people);
  await markAttendance(client, people);
  await chargeFees(client, people);
  await sendInvoices(client, people);
  await runBuses(client, people);
  await notify(client, service, people);
  await openDashboards(client, people);

  const toClassId = await endYear(client, { ...people, nextYearId });
  await readWithoutPermission(client, { ...people, nextYearId, toClassId, documentId });
  await manageSchools(client, platform, admin);
  await logOut(client, people.student);
  await logOut(client, platform.operator);
  return { admin, subdomain: platform.subdomain };
}
