import { useRef, useState } from 'preact/hooks';
import { request } from '../../data/api.ts';
import { Dialog, showToast } from '../../parts/dialogs.tsx';
import { SelectField, TextArea, TextField } from '../../parts/fields.tsx';
import { toFailure } from '../../data/http.ts';
import { usePlans } from '../../data/plans.ts';
import type { Plan, Tenant } from '../../types.ts';
import { Button } from '../../parts/button.tsx';

type Action = 'plan' | 'suspend' | 'activate' | 'message';

/** What the operator enters before an action runs. */
interface Input {
  planId: string;
  title: string;
  message: string;
}

interface ActionText {
  button: string;
  /** The past participle, for "2 schools suspended". */
  done: string;
  effect: string;
  isDangerous?: boolean;
}

const texts: Record<Action, ActionText> = {
  plan: { button: 'Change plan', done: 'changed', effect: 'The limits and features of the plan apply immediately.' },
  suspend: {
    button: 'Suspend',
    done: 'suspended',
    effect: 'Their users lose access immediately. No data is deleted.',
    isDangerous: true,
  },
  activate: { button: 'Activate', done: 'activated', effect: 'Their users can log in again immediately.' },
  message: {
    button: 'Message admins',
    done: 'messaged',
    effect: 'Every admin of the schools gets the message in-app and by email.',
  },
};

const path = ({ id }: Tenant) => `/api/platform/tenants/${id}`;

const send = (action: Action, school: Tenant, { planId, title, message }: Input): Promise<unknown> => {
  if (action === 'plan') return request('PUT', path(school), { body: { plan_id: Number(planId) } });
  if (action === 'message') return request('POST', `${path(school)}/message`, { body: { title, message } });
  return request('POST', `${path(school)}/${action}`);
};

const count = (number: number) => `${number} ${number === 1 ? 'school' : 'schools'}`;

function Inputs({
  action,
  input,
  plans,
  onChange,
}: {
  action: Action;
  input: Input;
  plans: Plan[];
  onChange: (change: Partial<Input>) => void;
}) {
  if (action === 'plan')
    return (
      <SelectField
        label="New plan"
        name="plan_id"
        isRequired
        value={input.planId}
        options={[['', 'Choose a plan'], ...plans.map(({ id, name }) => [String(id), name] as const)]}
        onChange={(planId) => onChange({ planId })}
      />
    );
  if (action !== 'message') return null;
  return (
    <>
      <TextField
        label="Subject"
        name="title"
        isRequired
        value={input.title}
        onChange={(title) => onChange({ title })}
        input={{ autocomplete: 'off' }}
      />
      <TextArea
        label="Message"
        name="message"
        isRequired
        hint="{{first_name}} and {{school_name}} are filled in."
        rows={6}
        value={input.message}
        onChange={(message) => onChange({ message })}
      />
    </>
  );
}

interface FailedSchool {
  school: Tenant;
  message: string;
}

/** The result if some schools failed. */
function Failures({ action, total, failed }: { action: Action; total: number; failed: FailedSchool[] }) {
  return (
    <div class="problem" role="alert" tabIndex={-1} ref={(element) => element?.focus()}>
      <div>
        <p>
          {count(total - failed.length)} {texts[action].done}, {failed.length} failed:
        </p>
        <ul>
          {failed.map(({ school, message }) => (
            <li key={school.id}>
              <strong>
                <bdi>{school.name}</bdi>
              </strong>
              : {message}
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

interface BulkDialogProps {
  action: Action;
  schools: Tenant[];
  /** Called when the action has run, with the schools that failed. */
  onRun: (failed: Tenant[]) => void;
  onClose: () => void;
}

/** Runs an action on each school, one after the other, and names those that failed and why. */
function BulkDialog({ action, schools: given, onRun, onClose }: BulkDialogProps) {
  // Once the action has run, only the failed schools stay selected.
  const schools = useRef(given).current;
  const { button, done, effect, isDangerous } = texts[action];
  const plans = usePlans();
  const [input, setInput] = useState<Input>({ planId: '', title: '', message: '' });
  const [finished, setFinished] = useState<number>();
  const [failed, setFailed] = useState<FailedSchool[]>();
  const isRunning = finished !== undefined && failed === undefined;
  const isReady =
    action === 'plan'
      ? input.planId !== ''
      : action !== 'message' || (input.title.trim() !== '' && input.message.trim() !== '');

  const run = async (event: Event) => {
    event.preventDefault();
    if (!isReady || finished !== undefined) return;
    const problems: FailedSchool[] = [];
    for (const [n, school] of schools.entries()) {
      setFinished(n);
      try {
        await send(action, school, input);
      } catch (thrown) {
        problems.push({ school, message: toFailure(thrown).message });
      }
    }
    onRun(problems.map(({ school }) => school));
    if (problems.length > 0) setFailed(problems);
    else {
      onClose();
      showToast(`${count(schools.length)} ${done}.`);
    }
  };

  return (
    <Dialog title={`${button}: ${count(schools.length)}`} isPersistent={isRunning} onClose={onClose}>
      {failed ? (
        <>
          <div class="dialog-body">
            <Failures action={action} total={schools.length} failed={failed} />
          </div>
          <div class="dialog-foot">
            <Button label="Done" kind="primary" onClick={onClose} />
          </div>
        </>
      ) : (
        <form onSubmit={(event) => void run(event)} noValidate>
          <div class="dialog-body">
            <p>{effect}</p>
            <ul class="selected-schools" aria-label="Selected schools" tabIndex={0}>
              {schools.map(({ id, name }) => (
                <li key={id}>
                  <bdi>{name}</bdi>
                </li>
              ))}
            </ul>
            <Inputs
              action={action}
              input={input}
              plans={plans.data ?? []}
              onChange={(change) => setInput((now) => ({ ...now, ...change }))}
            />
            <p role="status" class={isRunning ? 'muted' : 'hidden'}>
              {isRunning && `${finished} of ${schools.length} done…`}
            </p>
          </div>
          <div class="dialog-foot">
            <Button label="Cancel" isDisabled={isRunning} onClick={onClose} />
            <button class={isDangerous ? 'button danger' : 'button primary'} disabled={isRunning || !isReady}>
              {isRunning ? 'Working…' : button}
            </button>
          </div>
        </form>
      )}
    </Dialog>
  );
}

interface BulkActionsProps {
  schools: Tenant[];
  onRun: (failed: Tenant[]) => void;
  onClear: () => void;
}

/** The actions on the selected schools. */
export function BulkActions({ schools, onRun, onClear }: BulkActionsProps) {
  const [action, setAction] = useState<Action>();
  return (
    <>
      {schools.length > 0 && (
        <div class="bulk-bar" role="group" aria-label="Selected schools">
          <p role="status">{count(schools.length)} selected</p>
          {(Object.keys(texts) as Action[]).map((name) => (
            <Button key={name} label={texts[name].button} isSmall onClick={() => setAction(name)} />
          ))}
          <Button label="Clear selection" kind="link" onClick={onClear} />
        </div>
      )}
      {action && <BulkDialog action={action} schools={schools} onRun={onRun} onClose={() => setAction(undefined)} />}
    </>
  );
}
