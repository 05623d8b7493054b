import { z } from 'zod';
import { isAllowedEndpoint, isFirebaseToken, readSubscription, subscriptionToken } from '../domain/push.ts';
import { type Exchange, json, resource } from '../http/endpoint.ts';
import { choice } from '../http/coercion.ts';
import { ApiError } from '../domain/errors.ts';
import { Deleted, id, text, timestamps } from '../http/schemas.ts';

const token = text(4096).meta({
  description: 'The Firebase token of the device. A browser (`web`) may send the JSON of its PushSubscription instead.',
  examples: ['fcm:APA91bH'],
});
const platform = choice(['ios', 'android', 'web'], {
  synonyms: { ios: ['iphone', 'ipad', 'apple'], web: ['browser', 'webpush'] },
});

const DeviceInput = z.strictObject({ token, platform }).meta({ id: 'DeviceInput' });
export const Device = z.object({ id, token: z.string(), platform, ...timestamps }).meta({ id: 'Device' });

/**
 * Registers a device. The endpoint of a browser is chosen by the client, so only those of allowed push services are
 * accepted.
 */
async function register({ params, call, services }: Exchange): Promise<string> {
  const token = params['token'] as string;
  if (params['platform'] !== 'web' || isFirebaseToken(token)) return call('devices_register', params);
  const parsed = readSubscription(token);
  const isAllowed = typeof parsed === 'string' || isAllowedEndpoint(parsed.endpoint, services.config.WEB_PUSH_HOSTS);
  const subscription = isAllowed
    ? parsed
    : 'must be the JSON of a PushSubscription; its endpoint does not belong to an allowed push service';
  if (typeof subscription === 'string') {
    throw new ApiError('validation_error', `token: ${subscription}`, {
      details: [{ path: 'token', message: subscription }],
    });
  }
  return call('devices_register', { ...params, token: subscriptionToken(subscription) });
}

/** Deletes a device by its stored token, or by the JSON of the browser's PushSubscription. */
async function remove({ params, call }: Exchange): Promise<string> {
  const subscription = readSubscription(params['token'] as string);
  return call('devices_delete', typeof subscription === 'string' ? params : { token: subscriptionToken(subscription) });
}

export const devices = resource('/devices', 'Devices', 'The devices that receive the push messages of a user.', {
  'POST /register': {
    operation: 'devices_register',
    summary: 'Register a device',
    description:
      'A token that is already registered keeps its device, which then belongs to the user who sent it last. A ' +
      'user keeps the 20 devices that were registered last. Of a PushSubscription the endpoint and the keys are ' +
      'stored. Returns 400 if the endpoint does not belong to an allowed push service.',
    body: DeviceInput,
    response: json(Device, { handler: register }),
  },
  'GET /web-push-key': {
    operation: 'devices_web_push_key',
    summary: 'Get the key for Web Push subscriptions',
    description: 'The `applicationServerKey` for `pushManager.subscribe()`; null if Web Push is not configured.',
    response: json(z.object({ public_key: z.string().nullable() }).meta({ id: 'WebPushKey' }), {
      handler: ({ services, call }) => call('devices_web_push_key', { public_key: services.config.VAPID_PUBLIC_KEY }),
    }),
  },
  'DELETE /:token': {
    operation: 'devices_delete',
    summary: 'Delete one of your devices',
    params: { token },
    response: json(Deleted, { handler: remove }),
  },
});
