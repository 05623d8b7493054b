import { useEffect, useRef } from 'preact/hooks';
import { send } from '../data/api.ts';
import { toFailure } from '../data/http.ts';

/** The parts of Ruru, GraphiQL for PostGraphile, that this page uses. The service serves it from its package. */
interface RuruModule {
  createRoot: (element: Element) => { render: (element: unknown) => void; unmount: () => void };
  React: { createElement: (type: unknown, props: object) => unknown };
  Ruru: unknown;
}
const folder = '/graphql/ide/ruru/';
const workers: Record<string, string> = { json: 'jsonWorker.js', graphql: 'graphqlWorker.js' };
const loadRuru = () => import(/* @vite-ignore */ `${folder}ruru.js`) as Promise<RuruModule>;

/** A query in the editor, with its variables as JSON. */
export interface EditedQuery {
  query: string;
  variables: string;
}

export interface GraphqlAnswer {
  data?: Record<string, unknown> | null;
  errors?: { message: string; extensions?: { code?: string } }[];
}

/** Sends a query with the access token of the session. Requests that are refused before GraphQL become errors. */
export async function askGraphql(body: {
  query: string;
  variables?: unknown;
  operationName?: string | undefined;
}): Promise<GraphqlAnswer> {
  try {
    return (await (await send('POST', '/graphql', { body })).json()) as GraphqlAnswer;
  } catch (thrown) {
    const { message, code } = toFailure(thrown);
    return { errors: [{ message, extensions: { code } }] };
  }
}

/** Loads the styles of Ruru, once. */
function loadStyles(): void {
  if (document.querySelector('link[data-ruru]')) return;
  const link = document.createElement('link');
  link.rel = 'stylesheet';
  link.href = `${folder}ruru.css`;
  link.dataset['ruru'] = '';
  document.head.append(link);
}

/** The query editor. It starts with `initial`; a different `key` loads another query. */
export function Editor({ initial, onEdit }: { initial: EditedQuery; onEdit: (edited: Partial<EditedQuery>) => void }) {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    loadStyles();
    Object.assign(globalThis, {
      MonacoEnvironment: {
        getWorker: (_: string, label: string) =>
          new Worker(folder + (workers[label] ?? 'editorWorker.js'), { type: 'module' }),
      },
    });
    let unmount = (): void => undefined;
    let isGone = false;
    void loadRuru().then(({ createRoot, React, Ruru }) => {
      if (isGone || !element.current) return;
      const root = createRoot(element.current);
      unmount = () => root.unmount();
      root.render(
        React.createElement(Ruru, {
          fetcher: askGraphql,
          initialQuery: initial.query,
          initialVariables: initial.variables,
          onEditQuery: (query: string) => onEdit({ query }),
          onEditVariables: (variables: string) => onEdit({ variables }),
        }),
      );
    });
    return () => {
      isGone = true;
      unmount();
    };
  }, []);
  return (
    <div class="ide-editor" ref={element}>
      Loading…
    </div>
  );
}
