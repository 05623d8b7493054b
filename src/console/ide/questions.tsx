import { useState } from 'preact/hooks';
import { request } from '../data/api.ts';
import { AsyncContent, EmptyState } from '../parts/components.tsx';
import { confirm, Dialog, showToast } from '../parts/dialogs.tsx';
import { SelectField, TextArea, TextField } from '../parts/fields.tsx';
import { SearchBox } from '../parts/list.tsx';
import { FormError, useForm } from '../parts/forms.tsx';
import { Failure } from '../data/http.ts';
import { clearCache, loadAll, useLoad } from '../data/load.ts';
import { operator } from '../data/session.ts';
import type { Question } from '../types.ts';
import type { EditedQuery } from './editor.tsx';
import { Button } from '../parts/button.tsx';

const path = '/api/platform/questions';

export const loadQuestion = async (id: number): Promise<Question> =>
  (await request<Question>('GET', `${path}/${String(id)}`)).data;

const mayChange = ({ is_built_in, owner }: Question) =>
  !is_built_in && (owner?.id === operator.value?.id || (operator.value?.roles.includes('admin') ?? false));

/** The list of saved questions. */
export function QuestionList({ onOpen, onClose }: { onOpen: (question: Question) => void; onClose: () => void }) {
  const questions = useLoad('questions', (signal) => loadAll<Question>(path, signal));
  const [typed, setTyped] = useState('');
  const words = typed.trim().toLowerCase();
  return (
    <Dialog title="Questions" isWide onClose={onClose}>
      <div class="dialog-body">
        <SearchBox label="Search questions" placeholder="Name or description" value={typed} onChange={setTyped} />
        <AsyncContent state={questions} lines={8}>
          {(all) => {
            const shown = all.filter(({ name, description }) =>
              `${name} ${description ?? ''}`.toLowerCase().includes(words),
            );
            if (shown.length === 0) return <EmptyState title="No matching questions" />;
            return (
              <ul class="ide-questions">
                {shown.map((question) => (
                  <li key={question.id}>
                    <Button label={question.name} kind="link" onClick={() => onOpen(question)} />
                    <small>
                      {question.is_built_in ? 'Built in' : question.owner?.email}
                      {question.schedule && ` · sent ${question.schedule}`}
                    </small>
                  </li>
                ))}
              </ul>
            );
          }}
        </AsyncContent>
      </div>
    </Dialog>
  );
}

const schedules = [
  ['', 'Not sent'],
  ['daily', 'Every day at 6:00 UTC'],
  ['weekly', 'Every Monday at 6:00 UTC'],
  ['monthly', 'On the first of each month at 6:00 UTC'],
] as const;

function parseVariables(text: string): unknown {
  try {
    return text.trim() === '' ? {} : (JSON.parse(text) as unknown);
  } catch {
    throw new Failure(0, 'validation_error', 'The variables in the editor are not valid JSON.');
  }
}

/** Saves the query in the editor, as a new question or in place of the opened one. */
export function SaveDialog({
  question,
  edited,
  onSaved,
  onDeleted,
  onClose,
}: {
  question: Question | undefined;
  edited: EditedQuery;
  onSaved: (question: Question) => void;
  onDeleted: () => void;
  onClose: () => void;
}) {
  const own = question && mayChange(question) ? question : undefined;
  const [isCopy, setCopy] = useState(!own);
  const form = useForm(
    {
      name: question?.name ?? '',
      description: question?.description ?? '',
      schedule: own?.schedule ?? '',
      recipients: own?.recipients.join(', ') ?? '',
    },
    async ({ name, description, schedule, recipients }) => {
      const body = {
        name,
        description: description === '' ? null : description,
        query: edited.query,
        variables: parseVariables(edited.variables),
        schedule: schedule === '' ? null : schedule,
        recipients: recipients.split(/[\s,;]+/).filter(Boolean),
      };
      const { data } =
        own && !isCopy
          ? await request<Question>('PUT', `${path}/${String(own.id)}`, { body })
          : await request<Question>('POST', path, { body });
      form.reset(form.value);
      clearCache();
      showToast('The question is saved.');
      onSaved(data);
    },
  );
  const remove = async () => {
    if (!own) return;
    const isDeleted = await confirm({
      title: 'Delete this question?',
      text: 'Links to it stop working, and its answers are no longer sent.',
      confirmLabel: 'Delete',
      isDangerous: true,
      action: () => request('DELETE', `${path}/${String(own.id)}`),
    });
    if (!isDeleted) return;
    clearCache();
    onDeleted();
  };
  return (
    <Dialog title="Save question" onClose={onClose}>
      <form ref={form.ref} onSubmit={form.submit}>
        <div class="dialog-body">
          <FormError form={form} fields={['name', 'description', 'schedule', 'recipients']} />
          <TextField label="Name" isRequired {...form.field('name')} />
          <TextArea label="Description" rows={3} {...form.field('description')} />
          <SelectField label="Send the answer" {...form.field('schedule')} options={schedules} />
          {form.value.schedule !== '' && (
            <TextField
              label="Recipients"
              isRequired
              hint="Email addresses of operators who may see the same schools as you. They get a CSV file."
              {...form.field('recipients')}
            />
          )}
          {own && (
            <div class="check">
              <input
                id="is-copy"
                type="checkbox"
                checked={isCopy}
                onChange={(event) => setCopy(event.currentTarget.checked)}
              />
              <label for="is-copy">Save as a new question</label>
            </div>
          )}
        </div>
        <div class="dialog-foot">
          {own && <Button label="Delete" kind="danger" onClick={() => void remove()} />}
          <Button label="Cancel" onClick={onClose} />
          <button class="button primary" disabled={form.isBusy}>
            Save
          </button>
        </div>
      </form>
    </Dialog>
  );
}
