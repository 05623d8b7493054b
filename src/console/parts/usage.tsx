import { BarChart } from './charts.tsx';
import { AsyncContent, Card, Statistic } from './components.tsx';
import { ExportButton } from './export-button.tsx';
import { dayName, formatBytes, formatCompactBytes, formatNumber, monthName } from './format.tsx';
import { type Loaded, useData } from '../data/load.ts';
import type { Usage } from '../types.ts';

const path = '/api/platform/usage';

/** The usage of a school, or of all schools. */
export const useUsage = (tenantId?: string): Loaded<Usage> => useData(path, { tenant_id: tenantId });

/** The buttons that save the usage of a school, or of all schools, as CSV. */
export function UsageExports({ tenantId }: { tenantId?: string }) {
  const query = { tenant_id: tenantId };
  const message = 'Usage exported.';
  return (
    <>
      <ExportButton path={`${path}/export`} query={query} label="Export months (CSV)" message={message} />
      <ExportButton
        path={`${path}/export`}
        query={{ ...query, months: 2, period: 'day' }}
        label="Export days (CSV)"
        message={message}
      />
    </>
  );
}

/** `of 200`, with the share that is used. */
const ofLimit = (used: number, limit: number) =>
  `of ${formatNumber(limit)}${limit > 0 ? ` (${Math.floor((used / limit) * 100)}%)` : ''}`;

function Figures({ usage: { current, months } }: { usage: Usage }) {
  const thisMonth = months.at(-1);
  const ofMonth = (value: number | null | undefined) => (value == null ? '–' : formatNumber(value));
  const { students, teachers, storage_bytes, max_students, max_teachers } = current;
  return (
    <dl class="figures">
      <Statistic label="Students" value={formatNumber(students)} note={ofLimit(students, max_students)} />
      <Statistic label="Teachers" value={formatNumber(teachers)} note={ofLimit(teachers, max_teachers)} />
      <Statistic label="Storage" value={storage_bytes === null ? '–' : formatBytes(storage_bytes)} />
      <Statistic label="Active users a day" value={ofMonth(thisMonth?.active_users)} note="this month" />
      <Statistic label="Requests" value={ofMonth(thisMonth?.requests)} note="this month" />
      <Statistic label="Messages" value={ofMonth(thisMonth?.messages)} note="this month" />
    </dl>
  );
}

type MonthFigure = Exclude<keyof Usage['months'][number], 'month'>;
type DayFigure = Exclude<keyof Usage['days'][number], 'date'>;

const ChartCard = ({ title, ...chart }: Parameters<typeof BarChart>[0] & { title: string }) => (
  <Card title={title}>
    <BarChart {...chart} />
  </Card>
);

/** The figures of a school, or the sums of all schools: charts by month and by day, each with a table. */
export function UsageCharts({ usage }: { usage: Usage }) {
  const { max_students, max_teachers } = usage.current;
  // Only one school has the limits of one plan.
  const limitOf = (limit: number) => (usage.tenant_id === null ? undefined : limit);
  const byMonth = (figure: MonthFigure) =>
    usage.months.map(({ month, ...figures }) => ({
      label: monthName(month),
      name: monthName(month, true),
      value: figures[figure],
    }));
  const byDay = (figure: DayFigure) =>
    usage.days.map(({ date, ...figures }) => ({
      label: String(Number(date.slice(8))),
      name: dayName(date),
      value: figures[figure],
    }));
  return (
    <>
      <Figures usage={usage} />
      <div class="charts">
        <ChartCard
          title="Students by month"
          bars={byMonth('students')}
          columns={['Month', 'Students']}
          limit={limitOf(max_students)}
        />
        <ChartCard
          title="Teachers by month"
          bars={byMonth('teachers')}
          columns={['Month', 'Teachers']}
          limit={limitOf(max_teachers)}
        />
        <ChartCard title="Active users a day, by month" bars={byMonth('active_users')} columns={['Month', 'Average']} />
        <ChartCard title="Active users, last 31 days" bars={byDay('active_users')} columns={['Day', 'Active users']} />
        <ChartCard title="Requests by month" bars={byMonth('requests')} columns={['Month', 'Requests']} />
        <ChartCard title="Requests, last 31 days" bars={byDay('requests')} columns={['Day', 'Requests']} />
        <ChartCard title="Messages by month" bars={byMonth('messages')} columns={['Month', 'Messages']} />
        <ChartCard title="Messages, last 31 days" bars={byDay('messages')} columns={['Day', 'Messages']} />
        <ChartCard
          title="Storage by month"
          bars={byMonth('storage_bytes')}
          columns={['Month', 'Storage']}
          formatTick={formatCompactBytes}
          format={formatBytes}
        />
        <Card title="What the figures mean">
          <ul class="prose">
            <li>Students and teachers: the highest number of active ones in the month. A line shows the limit.</li>
            <li>A user is active on a day on which they log in, refresh their login or use an API key.</li>
            <li>Requests are those with a login or an API key. Messages are emails and push messages.</li>
            <li>The figures are recorded every hour. This month and today are not complete.</li>
            <li>For earlier months, students are those who were enrolled in a class. “–” means not recorded.</li>
          </ul>
        </Card>
      </div>
    </>
  );
}

/** Loads the usage and shows it. */
export const UsageContent = ({ state }: { state: Loaded<Usage> }) => (
  <AsyncContent state={state} lines={8}>
    {(usage) => <UsageCharts usage={usage} />}
  </AsyncContent>
);
