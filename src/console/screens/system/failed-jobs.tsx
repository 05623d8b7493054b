import { request } from '../../data/api.ts';
import { Card } from '../../parts/components.tsx';
import { attempt, confirm } from '../../parts/dialogs.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { PagedList, useListScreen } from '../../parts/list.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { href } from '../../router.ts';
import type { FailedJob } from '../../types.ts';
import { Button } from '../../parts/button.tsx';

const path = '/api/platform/jobs';

async function retry({ id, task }: FailedJob, reload: () => Promise<void>): Promise<void> {
  await attempt(() => request('POST', `${path}/${id}/retry`), `Job ${id} (${task}) runs again.`);
  await reload();
}

const cancel = ({ id, task }: FailedJob, reload: () => Promise<void>) =>
  confirm({
    title: `Remove job ${id}?`,
    text: <p>The job {task} is removed from the queue and does not run again.</p>,
    confirmLabel: 'Remove job',
    isDangerous: true,
    action: () => request('POST', `${path}/${id}/cancel`),
    reload,
    done: `Job ${id} removed.`,
  });

const columns: Column<FailedJob>[] = [
  {
    label: 'Job',
    cell: ({ id, task, error }) => (
      <>
        {task} <span class="muted">{id}</span>
        <small>{error}</small>
      </>
    ),
  },
  {
    label: 'School',
    cell: ({ tenant_id, subdomain }) =>
      tenant_id && <a href={href(`/schools/${tenant_id}`)}>{subdomain ?? tenant_id}</a>,
  },
  {
    label: 'Attempts',
    cell: ({ attempts, max_attempts, next_run_at }) => (
      <>
        {attempts} of {max_attempts}
        <small>{next_run_at ? <Timestamp at={next_run_at} format="time" /> : 'no attempts left'}</small>
      </>
    ),
  },
];

/** The jobs that have failed, with buttons to run them again or to remove them. */
export function FailedJobs() {
  const list = useListScreen<FailedJob>(path, { pageSize: 20 });
  return (
    <Card title="Failed jobs" isFlush>
      <PagedList list={list} names={['failed job', 'failed jobs']} empty="No job has failed">
        {(jobs) => (
          <Table
            caption="Failed jobs"
            items={jobs}
            keyOf={({ id }) => id}
            columns={columns}
            actions={(job) => (
              <>
                <Button
                  label="Retry"
                  isSmall
                  name={`Retry job ${job.id}`}
                  onClick={() => void retry(job, list.reload)}
                />{' '}
                <Button
                  label="Remove"
                  kind="warning"
                  isSmall
                  name={`Remove job ${job.id}`}
                  onClick={() => void cancel(job, list.reload)}
                />
              </>
            )}
          />
        )}
      </PagedList>
    </Card>
  );
}
