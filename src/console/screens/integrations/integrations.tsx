import { PageHeader } from '../../parts/components.tsx';
import { href } from '../../router.ts';
import { ApiKeysTab } from './api-keys-tab.tsx';
import { WebhooksTab } from './webhooks-tab.tsx';

const tabs = [
  ['api-keys', 'API keys'],
  ['webhooks', 'Webhooks'],
] as const;

/** What connects programs of the operators with the platform. */
export function Integrations({ part = 'api-keys' }: Record<string, string>) {
  return (
    <>
      <PageHeader
        title="Integrations"
        lead="Access for your own programs: API keys to call the API, and webhooks that report changes."
      />
      <nav class="tabs" aria-label="Integrations">
        {tabs.map(([name, label]) => (
          <a key={name} href={href(`/integrations/${name}`)} aria-current={part === name ? 'page' : undefined}>
            {label}
          </a>
        ))}
      </nav>
      {part === 'webhooks' ? <WebhooksTab /> : <ApiKeysTab />}
    </>
  );
}
