import { confirm, showToast } from '../../parts/dialogs.tsx';
import { Timestamp } from '../../parts/format.tsx';
import { request } from '../../data/api.ts';
import { isAbort, toFailure } from '../../data/http.ts';
import { useLoad } from '../../data/load.ts';
import { Card, EmptyState, PagedList } from '../../parts/components.tsx';
import { href, route, setSearch } from '../../router.ts';
import type { FailedJob } from '../../types.ts';

async function retry({ id, task }: FailedJob, reload: () => Promise<void>): Promise<void> {
  try {
    await request('POST', `/api/platform/jobs/${id}/retry`);
    showToast(`Job ${id} (${task}) runs again.`);
  } catch (thrown) {
    if (!isAbort(thrown)) showToast(toFailure(thrown).message, true);
  }
  await reload();
}

async function cancel({ id, task }: FailedJob, reload: () => Promise<void>): Promise<void> {
  const isConfirmed = await confirm({
    title: `Remove job ${id}?`,
    text: <p>The job {task} is removed from the queue and does not run again.</p>,
    confirmLabel: 'Remove job',
    isDangerous: true,
    action: async () => {
      await request('POST', `/api/platform/jobs/${id}/cancel`);
      await reload();
    },
  });
  if (isConfirmed) showToast(`Job ${id} removed.`);
}

function JobRow({ job, reload }: { job: FailedJob; reload: () => Promise<void> }) {
  const { id, task, tenant_id, subdomain, attempts, max_attempts, error, next_run_at } = job;
  return (
    <tr>
      <th scope="row">
        {task} <span class="muted">{id}</span>
        <small>{error}</small>
      </th>
      <td class="wide-only">{tenant_id && <a href={href(`/schools/${tenant_id}`)}>{subdomain ?? tenant_id}</a>}</td>
      <td class="wide-only">
        {attempts} of {max_attempts}
        <small>{next_run_at ? <Timestamp at={next_run_at} format="time" /> : 'no attempts left'}</small>
      </td>
      <td class="number">
        <button
          type="button"
          class="button small-button"
          aria-label={`Retry job ${id}`}
          onClick={() => void retry(job, reload)}
        >
          Retry
        </button>{' '}
        <button
          type="button"
          class="button small-button warning"
          aria-label={`Remove job ${id}`}
          onClick={() => void cancel(job, reload)}
        >
          Remove
        </button>
      </td>
    </tr>
  );
}

/** The jobs that have failed, with buttons to run them again or to remove them. */
export function FailedJobs() {
  const { page = '1' } = Object.fromEntries(route.value.search);
  const query = { page, pageSize: 20 };
  const jobs = useLoad(
    `jobs ${page}`,
    (signal) => request<FailedJob[]>('GET', '/api/platform/jobs', { query, signal }),
    { keepPrevious: true },
  );
  return (
    <Card title="Failed jobs" isFlush>
      <PagedList
        state={jobs}
        lines={4}
        names={['failed job', 'failed jobs']}
        onPage={(to) => setSearch({ page: to?.toString() })}
        empty={<EmptyState title="No job has failed" />}
      >
        {(data) => (
          <table class="table">
            <caption class="hidden">Failed jobs</caption>
            <thead>
              <tr>
                <th scope="col">Job</th>
                <th scope="col" class="wide-only">
                  School
                </th>
                <th scope="col" class="wide-only">
                  Attempts
                </th>
                <th scope="col">
                  <span class="hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {data.map((job) => (
                <JobRow key={job.id} job={job} reload={jobs.reload} />
              ))}
            </tbody>
          </table>
        )}
      </PagedList>
    </Card>
  );
}
