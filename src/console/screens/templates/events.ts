import { channelNames } from '../../parts/format.tsx';
import { useData } from '../../data/load.ts';
import type { Channel, NotificationEvent } from '../../types.ts';

export const channels = Object.keys(channelNames) as Channel[];

/** The events that send notifications. */
export const useEvents = () => useData<NotificationEvent[]>('/api/platform/notification-events');
