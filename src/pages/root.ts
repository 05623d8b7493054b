import type { RequestHandler } from 'express';
import { ApiError } from '../domain/errors.ts';
import { serviceInfo } from '../http/health.ts';

const addresses = { docs: '/api/docs/', guide: '/api/guide/', openapi: '/api/openapi.json' };

/**
 * Handles the root URLs. Browsers are redirected to the documentation. Other clients get name, version and addresses at
 * /api, and an error that names the addresses at /.
 */
export const describeRoot: RequestHandler = (req, res) => {
  res.vary('Accept');
  if (req.accepts(['json', 'html']) === 'html') {
    res.redirect(addresses.docs);
    return;
  }
  if (req.path === '/') {
    throw new ApiError(
      'not_found',
      `There is no route GET /. The API is described in ${addresses.openapi} and, to browse, at ${addresses.docs}. ` +
        `The guide is at ${addresses.guide}.`,
    );
  }
  const { service: name, version } = serviceInfo;
  res.json({ success: true, data: { name, version, ...addresses } });
};
