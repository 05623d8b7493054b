import { expect, test } from '@jest/globals';
import packageJson from '../../package.json' with { type: 'json' };
import { raw } from '../support/client/raw.ts';
import { serviceOfFile } from '../support/server/service.ts';

const service = await serviceOfFile();
const { name, version } = packageJson;

test.each(['/', '/api', '/api/'])(
  '%s redirects browsers to the documentation, and returns its path to other clients',
  async (path) => {
    const browser = await raw(service.url, {
      path,
      headers: { Accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' },
    });
    expect([browser.status, browser.headers.location, browser.headers.vary]).toEqual([302, '/api/docs/', 'Accept']);
    expect((await raw(service.url, { path: '/api/docs/' })).body).toContain('<title>');
    for (const headers of [{}, { Accept: '*/*' }, { Accept: 'application/json' }]) {
      const program = await raw(service.url, { path, headers });
      expect([program.status, JSON.parse(program.body)]).toEqual(
        path === '/'
          ? [
              404,
              {
                success: false,
                error: 'not_found',
                message:
                  'There is no route GET /. The API is described in /api/openapi.json and, to browse, at /api/docs/. ' +
                  'The guide is at /api/guide/.',
                request_id: program.headers['x-request-id'],
              },
            ]
          : [
              200,
              {
                success: true,
                data: { name, version, docs: '/api/docs/', guide: '/api/guide/', openapi: '/api/openapi.json' },
              },
            ],
      );
    }
    const { status } = await raw(service.url, { path, method: 'POST' });
    expect(status).toBe(path === '/' ? 404 : 405);
    expect((await raw(service.url, { path: '/api/openapi.json' })).status).toBe(200);
  },
);
