import { useEffect, useRef, useState } from 'preact/hooks';
import { CopyButton, ErrorMessage, Skeleton, usePageTitle } from '../parts/components.tsx';
import { showToast, Toasts, Confirmations } from '../parts/dialogs.tsx';
import { isAbort, toFailure } from '../data/http.ts';
import { LogIn, LogInAgain } from '../screens/log-in.tsx';
import { logOut, operator, restoreSession, startFailure, status } from '../data/session.ts';
import type { Question } from '../types.ts';
import { AnswerDialog } from './answer.tsx';
import { Editor, type EditedQuery } from './editor.tsx';
import { loadQuestion, QuestionList, SaveDialog } from './questions.tsx';
import { Button } from '../parts/button.tsx';

const firstQuery: EditedQuery = {
  query: '{\n  tenants {\n    totalCount\n    nodes {\n      name\n      status\n      studentCount\n    }\n  }\n}\n',
  variables: '',
};

async function logOutHere(): Promise<void> {
  try {
    await logOut();
  } catch (thrown) {
    if (!isAbort(thrown)) showToast(`Logging out failed. ${toFailure(thrown).message}`, true);
  }
}

/** The id of the question in the address. */
const linkedQuestion = () => Number(new URLSearchParams(location.search).get('question')) || undefined;
const link = (question: Question | undefined) =>
  `${location.origin}${location.pathname}${question ? `?question=${String(question.id)}` : ''}`;

function Workspace() {
  const [question, setQuestion] = useState<Question>();
  /** Counts the questions that were opened, so that the editor starts again with each. */
  const [opened, setOpened] = useState(linkedQuestion() === undefined ? 1 : 0);
  const [dialog, setDialog] = useState<'list' | 'save' | 'answer'>();
  const edited = useRef(firstQuery);
  usePageTitle(question?.name ?? 'Analytics');
  const show = (next: Question | undefined) => {
    setQuestion(next);
    history.replaceState(null, '', link(next));
  };
  const open = (next: Question) => {
    edited.current = {
      query: next.query,
      variables: Object.keys(next.variables).length > 0 ? JSON.stringify(next.variables, null, 2) : '',
    };
    show(next);
    setOpened((count) => count + 1);
    setDialog(undefined);
  };
  useEffect(() => {
    const id = linkedQuestion();
    if (id === undefined) return;
    loadQuestion(id).then(open, (thrown: unknown) => {
      showToast(toFailure(thrown).message, true);
      show(undefined);
      setOpened(1);
    });
  }, []);
  const close = () => setDialog(undefined);
  return (
    <main class="ide">
      <header class="ide-bar">
        <h1>{question?.name ?? 'Analytics'}</h1>
        <Button label="Questions" onClick={() => setDialog('list')} />
        <Button label="Save" onClick={() => setDialog('save')} />
        {question && (
          <>
            <Button label="Answer" kind="primary" onClick={() => setDialog('answer')} />
            <CopyButton key={question.id} text={link(question)}>
              Copy link
            </CopyButton>
          </>
        )}
        <p class="ide-who">
          {operator.value?.email}
          <Button label="Log out" onClick={() => void logOutHere()} />
        </p>
      </header>
      {opened > 0 && (
        <Editor
          key={opened}
          initial={edited.current}
          onEdit={(change) => (edited.current = { ...edited.current, ...change })}
        />
      )}
      {dialog === 'list' && <QuestionList onOpen={open} onClose={close} />}
      {dialog === 'save' && (
        <SaveDialog
          question={question}
          edited={edited.current}
          onSaved={(saved) => {
            show(saved);
            close();
          }}
          onDeleted={() => {
            show(undefined);
            close();
          }}
          onClose={close}
        />
      )}
      {dialog === 'answer' && question && <AnswerDialog question={question} onClose={close} />}
    </main>
  );
}

/** The page at /graphql/ide: the query editor of analysts, behind the log-in of the console. */
export function Ide() {
  if (startFailure.value !== undefined)
    return (
      <main class="alone">
        <ErrorMessage failure={toFailure(startFailure.value)} onRetry={() => void restoreSession()} />
      </main>
    );
  if (status.value === 'starting')
    return (
      <main class="alone">
        <Skeleton />
      </main>
    );
  return (
    <>
      {status.value === 'loggedOut' ? (
        <LogIn title="Analytics" lead="For platform staff with the role analyst or admin." />
      ) : (
        <Workspace />
      )}
      {status.value === 'expired' && <LogInAgain onLogOut={() => void logOutHere()} />}
      <Confirmations />
      <Toasts />
    </>
  );
}
