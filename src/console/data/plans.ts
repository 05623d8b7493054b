import { request } from './api.ts';
import { featureName } from '../parts/format.tsx';
import { useLoad } from './load.ts';
import type { Plan, PlatformSettings } from '../types.ts';

/** All plans, by price. */
export const usePlans = () =>
  useLoad(
    'plans',
    async (signal) => (await request<Plan[]>('GET', '/api/platform/plans', { query: { pageSize: 100 }, signal })).data,
  );

export const settingsPath = '/api/platform/settings';

/** The currency of all prices. */
export const useCurrency = () =>
  useLoad(
    'currency',
    async (signal) => (await request<PlatformSettings>('GET', settingsPath, { signal })).data.currency,
  );

/** The features of a plan as text. */
export const planFeatures = ({ features_json }: Plan): string =>
  features_json.features.map(featureName).join(', ') || 'No features';
