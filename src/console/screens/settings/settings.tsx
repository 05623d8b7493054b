import { PageHeader } from '../../parts/components.tsx';
import { href } from '../../router.ts';
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
      <nav class="tabs" aria-label="Settings">
        {tabs.map(([name, label]) => (
          <a key={name} href={href(`/settings/${name}`)} aria-current={part === name ? 'page' : undefined}>
            {label}
          </a>
        ))}
      </nav>
      {part === 'notifications' ? <NotificationSettingsTab /> : part === 'general' ? <GeneralTab /> : <PlansTab />}
    </>
  );
}
