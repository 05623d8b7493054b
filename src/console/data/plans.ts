import { featureName } from '../parts/format.tsx';
import { useData } from './load.ts';
import type { Plan, PlatformSettings } from '../types.ts';

/** All plans, by price. */
export const usePlans = () => useData<Plan[]>('/api/platform/plans', { pageSize: 100 });

export const settingsPath = '/api/platform/settings';

/** The currency of all prices, and its decimals. */
export const usePriceCurrency = () => useData<PlatformSettings>(settingsPath).data;

/** The features of a plan as text. */
export const planFeatures = ({ features_json }: Plan): string =>
  features_json.features.map(featureName).join(', ') || 'No features';
