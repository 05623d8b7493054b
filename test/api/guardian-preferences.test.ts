import { describe, expect, test } from '@jest/globals';
import { guardianHelpers } from '../support/fixtures/guardians.ts';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { addStudent, addParent } = guardianHelpers(service, school);

describe('a guardian', () => {
  test('chooses of which events they are notified', async () => {
    const parent = await addParent([{ student_id: (await addStudent()).id }]);
    const url = `/api/guardians/${parent.guardian.id}/notification-preferences`;
    const off = [{ key: 'attendance.late', is_enabled: false }];
    const { data } = await parent.put<{ events: { key: string; is_enabled: boolean }[] }>(url, { events: off });
    expect(data.events.filter(({ is_enabled }) => !is_enabled).map(({ key }) => key)).toEqual(['attendance.late']);
    expect((await school.admin.get(url)).data).toEqual(data);
    await parent.put(url, { events: [{ key: 'operator.login', is_enabled: false }] }, 400);
    const stranger = await addParent([{ student_id: (await addStudent()).id }]);
    await stranger.get(url, 404);
    await stranger.put(url, { events: off }, 404);
  });
});
