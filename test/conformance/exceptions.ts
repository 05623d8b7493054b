/** Deviations that are expected. An exception that does not occur fails the run. */
export const exceptions: { operation: string; failure: RegExp; reason: string }[] = [];

const needsAuthenticator =
  'A passkey needs an authenticator. test/console/two-factor.browser.test.ts uses the virtual one of a browser.';

const needsFailure = 'The API cannot make a job fail. test/api/platform-system.test.ts tests it.';

const endless = 'The response does not end, so neither Prism nor Newman can read it.';

/** Operations that are not called. */
export const notCalled: { operation: string; reason: string }[] = [
  { operation: 'GET /api/notifications/stream', reason: `${endless} test/api/notification-stream.test.ts tests it.` },
  { operation: 'GET /api/platform/system/stream', reason: `${endless} test/api/system-stream.test.ts tests it.` },
  { operation: 'POST /api/platform/jobs/{id}/retry', reason: needsFailure },
  { operation: 'POST /api/platform/jobs/{id}/cancel', reason: needsFailure },
  {
    operation: 'POST /api/platform/operators/{id}/invitation',
    reason: 'It is refused for two minutes after the invitation. test/api/platform-operators.test.ts tests it.',
  },
  { operation: 'POST /api/auth/two-factor/passkeys', reason: needsAuthenticator },
  { operation: 'DELETE /api/auth/two-factor/passkeys/{id}', reason: needsAuthenticator },
];

const forwardsText = 'Prism forwards the body of a request as UTF-8 text, which destroys a picture.';

/** Operations that are called without Prism. Portman tests their responses. */
export const withoutPrism: { operation: string; reason: string }[] = [
  { operation: 'POST /api/auth/profile/picture', reason: forwardsText },
  { operation: 'POST /api/school-setup/school-info', reason: forwardsText },
];
