import { z } from 'zod';
import { allowsEndpoint, readSubscription, tokenOf } from '../domain/push.ts';
import { type Exchange, resource } from '../http/endpoint.ts';
import { ApiError } from '../domain/errors.ts';
import { Deleted, id, text, timestamps } from '../http/schemas.ts';

const token = text(4096).meta({
  description: 'The token that Firebase gave the device; of a browser (`web`) the JSON of its PushSubscription.',
  examples: ['fcm:APA91bH'],
});
const platform = z.enum(['ios', 'android', 'web']);

const DeviceInput = z.strictObject({ token, platform }).meta({ id: 'DeviceInput' });
export const Device = z.object({ id, token: z.string(), platform, ...timestamps }).meta({ id: 'Device' });

/** A browser names the address that it wants messages from: only the push services that are known get any. */
async function register({ params, call, services }: Exchange): Promise<string> {
  if (params['platform'] !== 'web') return call('devices_register', params);
  const given = readSubscription(params['token'] as string);
  const isKnown = typeof given === 'string' || allowsEndpoint(given.endpoint, services.config.WEB_PUSH_HOSTS);
  const subscription = isKnown
    ? given
    : 'must be the JSON of a PushSubscription; in it endpoint is not of a push service that is known here';
  if (typeof subscription === 'string') {
    throw new ApiError('validation_error', `token: ${subscription}`, {
      details: [{ path: 'token', message: subscription }],
    });
  }
  return call('devices_register', { ...params, token: tokenOf(subscription) });
}

/** By what a device is stored under, or by the JSON of the browser as it was registered. */
async function remove({ params, call }: Exchange): Promise<string> {
  const subscription = readSubscription(params['token'] as string);
  return call('devices_delete', typeof subscription === 'string' ? params : { token: tokenOf(subscription) });
}

export const devices = resource('/devices', 'Devices', 'Where a user gets push messages.', {
  'POST /register': {
    operation: 'devices_register',
    summary: 'Register a device',
    description:
      'A token that is known already keeps its device, which then belongs to whoever sent it last. A user has the 20 devices that were registered last. Of a PushSubscription the endpoint and the keys are kept; 400 when its endpoint is none of a known push service.',
    body: DeviceInput,
    answer: Device,
    handler: register,
  },
  'GET /web-push-key': {
    operation: 'devices_web_push_key',
    summary: 'The key that a browser subscribes with',
    description:
      'The `applicationServerKey` of `pushManager.subscribe()`; null where this installation sends no Web Push.',
    answer: z.object({ public_key: z.string().nullable() }).meta({ id: 'WebPushKey' }),
    handler: ({ services, call }) => call('devices_web_push_key', { public_key: services.config.VAPID_PUBLIC_KEY }),
  },
  'DELETE /:token': {
    operation: 'devices_delete',
    summary: 'Remove a device of your own',
    params: { token },
    answer: Deleted,
    handler: remove,
  },
});
