import { PageHeader, Tabs } from '../../parts/components.tsx';
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
      <Tabs label="Integrations" base="/integrations" tabs={tabs} current={part} />
      {part === 'webhooks' ? <WebhooksTab /> : <ApiKeysTab />}
    </>
  );
}
