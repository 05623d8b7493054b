import { z } from 'zod';
import { file, resource } from '../http/endpoint.ts';

export const pictures = resource('/pictures', 'Pictures', 'Profile pictures and logos, for pages that show them.', {
  'GET /:token': {
    operation: 'pictures_get',
    summary: 'Get a picture by its signed address',
    description:
      'The address is in the record, for example as `profile_picture_url`. It needs no token, so that an `<img>` ' +
      'can show it. ' +
      'It stays the same for up to 6 hours and expires after 18 to 24 hours. ' +
      '404 for an address that has expired or was changed, for a picture that was replaced or removed, and for a ' +
      'school that is suspended or deleted.',
    params: { token: z.string().max(200) },
    resolve: ({ token }, { pictures: addresses }) => addresses.verify(String(token)),
    response: file(['image/jpeg', 'image/png', 'image/webp'], { isEmbeddable: true }),
  },
});
