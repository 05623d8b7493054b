import { request } from '../../data/api.ts';
import { channelNames } from '../../parts/format.tsx';
import { useLoad } from '../../data/load.ts';
import type { Channel, NotificationEvent } from '../../types.ts';

export const channels = Object.keys(channelNames) as Channel[];

/** The events that send notifications. */
export const useEvents = () =>
  useLoad(
    'events',
    async (signal) => (await request<NotificationEvent[]>('GET', '/api/platform/notification-events', { signal })).data,
  );
