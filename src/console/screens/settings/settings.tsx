import { PageHeader, Tabs } from '../../parts/components.tsx';
import { GeneralTab } from './general-tab.tsx';
import { NotificationSettingsTab } from './notifications-tab.tsx';
import { PlansTab } from './plans-tab.tsx';

export function Settings({ part = 'plans' }: Record<string, string>) {
  const tabs = [
    ['plans', 'Plans'],
    ['notifications', 'Notifications'],
    ['general', 'General'],
  ] as const;
  return (
    <>
      <PageHeader title="Settings" lead="These settings apply to all schools." />
      <Tabs label="Settings" base="/settings" tabs={tabs} current={part} />
      {part === 'notifications' ? <NotificationSettingsTab /> : part === 'general' ? <GeneralTab /> : <PlansTab />}
    </>
  );
}
