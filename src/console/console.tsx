import { useSignalEffect } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect, useErrorBoundary, useRef, useState } from 'preact/hooks';
import { confirm, Confirmations, Dialog, Notices, say } from './dialogs.tsx';
import { asFailure, Failure, isGivenUp } from './http.ts';
import { Icon } from './icons.tsx';
import { forget } from './load.ts';
import { Empty, Head, Problem } from './parts.tsx';
import { href, isSomethingUnsaved, match, place } from './router.ts';
import { Audit } from './screens/audit.tsx';
import { Analyst, LogIn, LogInAgain } from './screens/log-in.tsx';
import { Overview } from './screens/overview.tsx';
import { Profile } from './screens/profile.tsx';
import { School } from './screens/school.tsx';
import { SchoolNew } from './screens/school-new.tsx';
import { Schools } from './screens/schools.tsx';
import { Settings } from './screens/settings.tsx';
import { Template, TemplateNew } from './screens/template.tsx';
import { Templates } from './screens/templates.tsx';
import { logOut, operator, start, startFailure, status } from './session.ts';
import { setTheme, type Theme, theme } from './theme.ts';

const screens: [pattern: string, screen: ComponentType<Record<string, string>>][] = [
  ['/', Overview],
  ['/schools', Schools],
  ['/schools/new', SchoolNew],
  ['/schools/:id', School],
  ['/audit', Audit],
  ['/templates', Templates],
  ['/templates/new', TemplateNew],
  ['/templates/:id', Template],
  ['/settings', Settings],
  ['/settings/:part', Settings],
  ['/profile', Profile],
];

const menu = [
  ['/', 'overview', 'Overview'],
  ['/schools', 'schools', 'Schools'],
  ['/audit', 'audit', 'Audit log'],
  ['/templates', 'templates', 'Templates'],
  ['/settings', 'settings', 'Settings'],
] as const;

function NotFound() {
  return (
    <>
      <Head title="Nothing here" />
      <Empty title="This address leads nowhere.">
        <a href={href('/')}>To the overview</a>
      </Empty>
    </>
  );
}

function Screen() {
  const { path } = place.value;
  for (const [pattern, Found] of screens) {
    const parameters = match(pattern, path);
    // A school, a template: another one is another screen, with a state of its own.
    if (parameters) return <Found key={parameters['id'] ?? pattern} {...parameters} />;
  }
  return <NotFound />;
}

/** What a fault leaves of a screen: the menu and a way out, not an empty page. */
function GuardedScreen() {
  const [fault] = useErrorBoundary((thrown) => reportError(thrown)) as [unknown, () => void];
  if (fault === undefined) return <Screen />;
  return (
    <>
      <Head title="This did not work" />
      <Problem
        failure={new Failure(0, 'internal_error', 'This page cannot be shown, by a fault of ours.')}
        onRetry={() => location.reload()}
      />
    </>
  );
}

async function leave(): Promise<void> {
  if (await isSomethingUnsaved()) {
    const text = 'Changes in this or another tab are not saved yet. They are lost when you log out.';
    if (
      !(await confirm({ title: 'Log out without saving?', text, action: 'Log out', isDangerous: true, cancel: 'Stay' }))
    )
      return;
  }
  try {
    await logOut();
  } catch (thrown) {
    if (!isGivenUp(thrown)) say(`You are still logged in: ${asFailure(thrown).message}`, true);
  }
}

const themeNames: Record<Theme, string> = { system: 'System', light: 'Light', dark: 'Dark' };
const themes: Theme[] = ['system', 'light', 'dark'];

function Menu({ onGo }: { onGo?: () => void }) {
  const { path } = place.value;
  return (
    <>
      <nav aria-label="Main" class="menu" onClick={onGo}>
        <ul>
          {menu.map(([to, icon, label]) => {
            const isHere = to === '/' ? path === '/' : path === to || path.startsWith(`${to}/`);
            return (
              <li key={to}>
                <a href={href(to)} aria-current={isHere ? (path === to ? 'page' : 'true') : undefined}>
                  <Icon name={icon} /> {label}
                </a>
              </li>
            );
          })}
        </ul>
      </nav>
      <div class="menu-foot">
        <fieldset class="segments">
          <legend class="hidden">Colours</legend>
          {themes.map((one) => (
            <label key={one}>
              <input
                type="radio"
                name={onGo ? 'theme-panel' : 'theme'}
                checked={theme.value === one}
                onChange={() => setTheme(one)}
              />
              <span>{themeNames[one]}</span>
            </label>
          ))}
        </fieldset>
        <a class="who" href={href('/profile')} onClick={onGo} aria-current={path === '/profile' ? 'page' : undefined}>
          <Icon name="person" />
          <span>
            {operator.value?.first_name} {operator.value?.last_name}
            <small>{operator.value?.email}</small>
          </span>
        </a>
        <button type="button" class="menu-button" onClick={() => void leave()}>
          <Icon name="leave" /> Log out
        </button>
      </div>
    </>
  );
}

const Brand = () => (
  <a class="brand" href={href('/')}>
    <svg viewBox="0 0 32 32" width="28" height="28" aria-hidden="true">
      <rect width="32" height="32" rx="8" class="brand-ground" />
      <path d="M6 13.5 16 8l10 5.5L16 19z" class="brand-cap" />
      <path d="M10.5 17.6v4.2c1.4 1.4 3.3 2.2 5.5 2.2s4.1-.8 5.5-2.2v-4.2L16 20.7z" class="brand-base" />
    </svg>
    <span>Operators’ console</span>
  </a>
);

function Shell() {
  const [isMenuOpen, setMenuOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const shown = useRef(place.value.path);
  const { path } = place.value;
  // Whoever goes to another place by keyboard, or hears the page, begins at its head.
  useEffect(() => {
    if (shown.current === path) return;
    shown.current = path;
    main.current?.querySelector<HTMLElement>('h1')?.focus({ preventScroll: true });
  }, [path]);
  return (
    <div class="shell">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <header class="top">
        <button type="button" class="icon-button" aria-label="Menu" onClick={() => setMenuOpen(true)}>
          <Icon name="menu" />
        </button>
        <Brand />
      </header>
      <header class="side">
        <Brand />
        <Menu />
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        <GuardedScreen key={path} />
      </main>
      {isMenuOpen && (
        <Dialog title="Menu" isPanel onClose={() => setMenuOpen(false)}>
          <Menu onGo={() => setMenuOpen(false)} />
        </Dialog>
      )}
      {status.value === 'ended' && <LogInAgain onLeave={() => void leave()} />}
    </div>
  );
}

function Content() {
  useSignalEffect(() => {
    if (status.value !== 'out') return;
    forget();
  });
  if (startFailure.value !== undefined) {
    return (
      <main class="alone">
        <Problem failure={asFailure(startFailure.value)} onRetry={() => void start()} />
      </main>
    );
  }
  if (status.value === 'starting') return <main class="alone" aria-busy="true" aria-label="Loading" />;
  if (status.value === 'out' || !operator.value) return <LogIn />;
  if (!operator.value.roles.includes('admin')) return <Analyst onLeave={() => void leave()} />;
  return <Shell key={operator.value.id} />;
}

/** The whole page. */
export function Console() {
  return (
    <>
      <Content />
      <Confirmations />
      <Notices />
    </>
  );
}
