import { expect, test } from '@jest/globals';
import { fileForm, png } from '../support/fixtures/pictures.ts';
import { serviceWithSchool, testPassword } from '../support/server/service.ts';

interface Person {
  profile_picture_url: string | null;
}

const { service, school } = await serviceWithSchool({ PUBLIC_URL: 'https://api.valley.example/school/' });

test('a picture has its address at PUBLIC_URL, with its path', async () => {
  const body = fileForm(png, 'me.png', 'image/png');
  const { data } = await school.admin.send<Person>('POST', '/api/auth/profile/picture', { body }, 200);
  const login = { tenant_id: school.id, email: school.adminEmail, password: testPassword };
  const opened = await service.anonymous.post<{ user: Person }>('/api/auth/login', login);
  expect(opened.data.user.profile_picture_url).toBe(data.profile_picture_url);
  expect(data.profile_picture_url).toMatch(/^https:\/\/api\.valley\.example\/school\/api\/pictures\/[\w-]+$/);
});
