import { z } from 'zod';
import { resource } from '../endpoint.ts';
import { Deleted, id, text, timestamps } from '../schemas.ts';

const token = text(4096).meta({ description: 'The token that the push service gave the device.', examples: ['fcm:APA91bH'] });
const platform = z.enum(['ios', 'android', 'web']);

const DeviceInput = z.strictObject({ token, platform }).meta({ id: 'DeviceInput' });
const Device = z.object({ id, token: z.string(), platform, ...timestamps }).meta({ id: 'Device' });

export const devices = resource('/devices', 'Devices', 'Where a user gets push messages.', {
  'POST /register': {
    operation: 'devices_register',
    summary: 'Register a device',
    description: 'A token that is known already keeps its device, which then belongs to whoever sent it last.',
    body: DeviceInput,
    answer: Device,
  },
  'DELETE /:token': {
    operation: 'devices_delete',
    summary: 'Remove a device of your own',
    params: { token },
    answer: Deleted,
  },
});
