import { useState } from 'preact/hooks';
import { request } from '../../data/api.ts';
import { AsyncContent, Card, PageHeader, Fact } from '../../parts/components.tsx';
import { attempt, confirm, Dialog } from '../../parts/dialogs.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { toFailure } from '../../data/http.ts';
import { useData } from '../../data/load.ts';
import { href, navigate } from '../../router.ts';
import type { Webhook } from '../../types.ts';
import { Deliveries } from './deliveries.tsx';
import { SecretResult } from './secret-dialog.tsx';
import { path, WebhookDialog } from './webhook-dialog.tsx';
import { WebhookState } from './webhooks-tab.tsx';
import { Button } from '../../parts/button.tsx';

function Facts({ webhook }: { webhook: Webhook }) {
  return (
    <Card title="Webhook">
      <dl class="facts">
        <Fact label="Status">
          <WebhookState webhook={webhook} />{' '}
          {webhook.disabled_at && (
            <>
              disabled by the service <Timestamp at={webhook.disabled_at} format="relative" />
            </>
          )}
          {webhook.is_active && webhook.failing_since && (
            <>
              since <Timestamp at={webhook.failing_since} format="relative" />
            </>
          )}
        </Fact>
        <Fact label="Description">{webhook.description ?? '–'}</Fact>
        <Fact label="Events">{webhook.events.join(', ')}</Fact>
      </dl>
    </Card>
  );
}

/** Replaces the secret after a confirmation, and shows the new one once. */
function RotateDialog({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const [secret, setSecret] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState('');
  const rotate = async () => {
    setBusy(true);
    try {
      setSecret((await request<{ secret: string }>('POST', `${path}/${webhook.id}/rotate-secret`)).data.secret);
    } catch (thrown) {
      setError(toFailure(thrown).message);
    }
    setBusy(false);
  };
  return (
    <Dialog title="Replace the secret" onClose={onClose}>
      {secret === undefined ? (
        <>
          <div class="dialog-body">
            <p>For 24 hours, messages have a signature of each secret. Change yours in this time.</p>
            {error && (
              <p class="problem" role="alert">
                {error}
              </p>
            )}
          </div>
          <div class="dialog-foot">
            <Button label="Cancel" onClick={onClose} />
            <Button label="Replace secret" kind="primary" isDisabled={isBusy} onClick={() => void rotate()} />
          </div>
        </>
      ) : (
        <SecretResult label="Secret" secret={secret} onClose={onClose}>
          Copy the new secret now. It is not shown again.
        </SecretResult>
      )}
    </Dialog>
  );
}

async function remove({ id, url }: Webhook): Promise<void> {
  const isDeleted = await confirm({
    title: 'Delete this webhook?',
    text: <p>{url} gets no more messages. Its delivery log is deleted too.</p>,
    confirmLabel: 'Delete webhook',
    isDangerous: true,
    action: () => request('DELETE', `${path}/${id}`),
    done: 'Webhook deleted.',
  });
  if (isDeleted) await navigate('/integrations/webhooks');
}

/** A webhook with its delivery log. */
export function WebhookScreen({ id = '' }: Record<string, string>) {
  const [opened, setOpened] = useState<'edit' | 'rotate'>();
  const [testedAt, setTestedAt] = useState(0);
  const state = useData<Webhook>(`${path}/${id}`);
  const webhook = state.data;
  const setActive = (isActive: boolean) =>
    attempt(
      async () => {
        await request('PUT', `${path}/${id}`, { body: { is_active: isActive } });
        await state.reload();
      },
      isActive ? 'Webhook enabled.' : 'Webhook disabled.',
    );
  const test = () =>
    attempt(async () => {
      await request('POST', `${path}/${id}/test`);
      setTestedAt(Date.now());
    }, 'Test event sent.');
  return (
    <>
      <PageHeader
        title={webhook?.url ?? 'Webhook'}
        back={<a href={href('/integrations/webhooks')}>Webhooks</a>}
        actions={
          webhook && (
            <>
              {webhook.is_active && <Button label="Send test event" onClick={() => void test()} />}
              <Button label="Edit" onClick={() => setOpened('edit')} />
              <Button label="Replace secret" onClick={() => setOpened('rotate')} />
              <Button
                label={webhook.is_active ? 'Disable' : 'Enable'}
                onClick={() => void setActive(!webhook.is_active)}
              />
              <Button label="Delete" kind="warning" onClick={() => void remove(webhook)} />
            </>
          )
        }
      />
      <AsyncContent state={state}>
        {(data) => (
          <>
            <Facts webhook={data} />
            <Deliveries key={testedAt} webhook={data} />
          </>
        )}
      </AsyncContent>
      {webhook && opened === 'rotate' && <RotateDialog webhook={webhook} onClose={() => setOpened(undefined)} />}
      {webhook && opened === 'edit' && (
        <WebhookDialog
          id={webhook.id}
          onClose={() => setOpened(undefined)}
          onSaved={() => {
            setOpened(undefined);
            void state.reload();
          }}
        />
      )}
    </>
  );
}
