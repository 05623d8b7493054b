import { request } from '../data/api.ts';
import { AsyncContent, Badge, Card } from '../parts/components.tsx';
import { confirm } from '../parts/dialogs.tsx';
import { Timestamp } from '../parts/format.tsx';
import { useData } from '../data/load.ts';
import type { Session } from '../types.ts';
import { Button } from '../parts/button.tsx';

const path = '/api/auth/sessions';

/** Names of browsers in a user agent. The earlier ones also name the later ones. */
const browsers = [
  ['Edg/', 'Edge'],
  ['OPR/', 'Opera'],
  ['Firefox/', 'Firefox'],
  ['Chrome/', 'Chrome'],
  ['Safari/', 'Safari'],
] as const;
const systems = ['Windows', 'Android', 'iPhone', 'iPad', 'Mac OS', 'Linux'] as const;

/** A short name of the program of a session, for example "Chrome on Linux". */
function programName(userAgent: string | null): string {
  if (userAgent === null) return 'Unknown program';
  const browser = browsers.find(([mark]) => userAgent.includes(mark))?.[1];
  const system = systems.find((name) => userAgent.includes(name));
  return browser && system ? `${browser} on ${system}` : userAgent;
}

interface ListProps {
  sessions: Session[];
  onEnd: (sessions: Session[]) => void;
}

function SessionList({ sessions, onEnd }: ListProps) {
  const others = sessions.filter(({ is_current }) => !is_current);
  return (
    <div class="form">
      <ul>
        {sessions.map((session) => (
          <li key={session.id} class="session">
            <div>
              <p>
                {programName(session.user_agent)} {session.is_current && <Badge value="this session" tone="good" />}
              </p>
              <p class="muted small">
                {session.ip ?? 'Unknown address'} · used <Timestamp at={session.last_used_at} format="relative" /> ·
                logged in <Timestamp at={session.created_at} />
              </p>
            </div>
            {!session.is_current && (
              <Button
                label="End"
                isSmall
                name={`End session ${session.id}: ${programName(session.user_agent)}`}
                onClick={() => onEnd([session])}
              />
            )}
          </li>
        ))}
      </ul>
      {others.length > 1 && (
        <div class="form-foot">
          <Button label="End all other sessions" onClick={() => onEnd(others)} />
        </div>
      )}
    </div>
  );
}

/** The sessions of the operator, to end those that should not be open. */
export function SessionsCard() {
  const state = useData<Session[]>(path, { pageSize: 100 }, { isUncached: true });
  const end = (sessions: Session[]) =>
    confirm({
      title: sessions.length === 1 ? 'End this session?' : `End ${sessions.length} sessions?`,
      text: <p>The device must log in again, with the second factor if you have one.</p>,
      confirmLabel: sessions.length === 1 ? 'End session' : 'End sessions',
      isDangerous: true,
      action: async () => {
        try {
          for (const { id } of sessions) await request('DELETE', `${path}/${id}`);
        } finally {
          await state.reload();
        }
      },
      done: sessions.length === 1 ? 'Session ended.' : `${sessions.length} sessions ended.`,
    });
  return (
    <Card title="Sessions">
      <AsyncContent state={state}>
        {(sessions) => <SessionList sessions={sessions} onEnd={(ended) => void end(ended)} />}
      </AsyncContent>
    </Card>
  );
}
