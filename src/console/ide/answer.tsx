import { useState } from 'preact/hooks';
import { download, send } from '../data/api.ts';
import { AsyncContent, EmptyState, Segments } from '../parts/components.tsx';
import { Dialog, showToast } from '../parts/dialogs.tsx';
import { SelectField } from '../parts/fields.tsx';
import { toFailure } from '../data/http.ts';
import { useLoad } from '../data/load.ts';
import type { Question } from '../types.ts';
import { parseCsv } from './csv.ts';
import { Button } from '../parts/button.tsx';

interface Answer {
  headers: string[];
  rows: string[][];
}

const answerPath = (id: number) => `/api/platform/questions/${String(id)}/answer`;

async function loadAnswer(id: number, signal: AbortSignal): Promise<Answer> {
  const response = await send('GET', answerPath(id), { signal });
  const [headers = [], ...rows] = parseCsv(await response.text());
  return { headers, rows };
}

const isNumber = (text: string | undefined) => text !== undefined && /^-?\d+(\.\d+)?$/.test(text);
const amount = new Intl.NumberFormat('en', { maximumFractionDigits: 4 });
const formatAmount = (value: number) => amount.format(value);
/** The columns whose values are all numbers. */
const numericColumns = ({ headers, rows }: Answer): number[] =>
  headers.flatMap((_, index) => (rows.length > 0 && rows.every((row) => isNumber(row[index])) ? [index] : []));

/** More bars are not readable. The table has all rows. */
const maxBars = 60;

/** One bar for each row, with the length of one numeric column. The others are in its label. */
function Chart({ answer }: { answer: Answer }) {
  const numeric = numericColumns(answer);
  const [column, setColumn] = useState(numeric.at(-1) ?? 0);
  if (numeric.length === 0) return <EmptyState title="The answer has no numbers to draw." />;
  const rows = answer.rows.slice(0, maxBars);
  const label = (row: string[]) => row.filter((_, index) => !numeric.includes(index)).join(' · ');
  const maximum = Math.max(...rows.map((row) => Math.abs(Number(row[column]))), 1);
  const [width, left, step] = [640, 220, 26];
  return (
    <>
      {numeric.length > 1 && (
        <SelectField
          label="Column"
          name="column"
          isFilter
          value={String(column)}
          onChange={(value) => setColumn(Number(value))}
          options={numeric.map((index) => [String(index), answer.headers[index] ?? ''] as const)}
        />
      )}
      <figure class="chart ide-chart scroll" tabIndex={0} aria-label="Answer">
        <svg
          viewBox={`0 0 ${String(width)} ${String(rows.length * step)}`}
          role="img"
          aria-label={answer.headers[column]}
        >
          {rows.map((row, index) => {
            const value = Number(row[column]);
            const length = (Math.abs(value) / maximum) * (width - left - 90);
            return (
              <g key={index} class="bar current">
                <title>{`${label(row)}: ${formatAmount(value)}`}</title>
                <text class="tick" x={left - 8} y={index * step + 17} text-anchor="end">
                  {label(row).slice(0, 34)}
                </text>
                <rect x={left} y={index * step + 4} width={Math.max(length, 2)} height={step - 8} rx="3" />
                <text class="tick" x={left + length + 6} y={index * step + 17}>
                  {formatAmount(value)}
                </text>
              </g>
            );
          })}
        </svg>
        {answer.rows.length > maxBars && <figcaption>The first {maxBars} rows. The table has all.</figcaption>}
      </figure>
    </>
  );
}

function Table({ answer }: { answer: Answer }) {
  const { headers, rows } = answer;
  const numeric = numericColumns(answer);
  return (
    // The region scrolls, so keyboards must reach it.
    <div class="scroll" tabIndex={0} role="region" aria-label="Answer">
      <table class="table compact">
        <thead>
          <tr>
            {headers.map((header, column) => (
              <th key={header} scope="col" class={numeric.includes(column) ? 'number' : undefined}>
                {header}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>
              {headers.map((header, cell) => (
                <td key={header} class={isNumber(row[cell]) ? 'number' : undefined}>
                  {row[cell]}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const views = [
  ['table', 'Table'],
  ['chart', 'Chart'],
] as const;

/** The answer to a saved question, as it is saved: a table, a chart, and a file. */
export function AnswerDialog({ question, onClose }: { question: Question; onClose: () => void }) {
  const [view, setView] = useState<'table' | 'chart'>('table');
  const answer = useLoad(`answer ${String(question.id)}`, (signal) => loadAnswer(question.id, signal), {
    isUncached: true,
  });
  const save = () => {
    download(answerPath(question.id), {}).catch((thrown: unknown) => showToast(toFailure(thrown).message, true));
  };
  return (
    <Dialog title={question.name} isWide onClose={onClose}>
      <div class="dialog-body">
        {question.description && <p>{question.description}</p>}
        <Segments legend="View" name="view" options={views} value={view} onChange={setView} />
        <AsyncContent state={answer}>
          {(loaded) =>
            loaded.rows.length === 0 ? (
              <EmptyState title="The answer has no rows." />
            ) : view === 'chart' ? (
              <Chart answer={loaded} />
            ) : (
              <Table answer={loaded} />
            )
          }
        </AsyncContent>
      </div>
      <div class="dialog-foot">
        <Button label="Close" onClick={onClose} />
        <Button label="Download CSV" kind="primary" onClick={save} />
      </div>
    </Dialog>
  );
}
