import { useSignalEffect } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect, useErrorBoundary, useRef, useState } from 'preact/hooks';
import { confirm, Confirmations, Dialog, Toasts, showToast } from './parts/dialogs.tsx';
import { toFailure, Failure, isAbort } from './data/http.ts';
import { Icon } from './parts/icons.tsx';
import { clearCache } from './data/load.ts';
import { EmptyState, PageHeader, ErrorMessage, Segments } from './parts/components.tsx';
import { type Page, Palette } from './palette.tsx';
import { href, hasUnsavedChanges, match, route } from './router.ts';
import { AuditLog } from './screens/audit-log/audit-log.tsx';
import { AnalystNotice, LogIn, LogInAgain } from './screens/log-in.tsx';
import { Integrations } from './screens/integrations/integrations.tsx';
import { WebhookScreen } from './screens/integrations/webhook.tsx';
import { Operators } from './screens/operators/operators.tsx';
import { Overview } from './screens/overview.tsx';
import { Profile } from './screens/profile.tsx';
import { School } from './screens/schools/school.tsx';
import { NewSchool } from './screens/schools/new-school.tsx';
import { Schools } from './screens/schools/schools.tsx';
import { Settings } from './screens/settings/settings.tsx';
import { System } from './screens/system/system.tsx';
import { Usage } from './screens/usage/usage.tsx';
import { NewTemplate } from './screens/templates/new-template.tsx';
import { Template } from './screens/templates/template.tsx';
import { Templates } from './screens/templates/templates.tsx';
import { logOut, operator, restoreSession, startFailure, status } from './data/session.ts';
import { paletteKey, useShortcuts } from './shortcuts.ts';
import { setTheme, type Theme, theme } from './theme.ts';

const screens: [pattern: string, screen: ComponentType<Record<string, string>>][] = [
  ['/', Overview],
  ['/schools', Schools],
  ['/schools/new', NewSchool],
  ['/schools/:id', School],
  ['/schools/:id/:part', School],
  ['/usage', Usage],
  ['/system', System],
  ['/operators', Operators],
  ['/integrations', Integrations],
  ['/integrations/:part', Integrations],
  ['/integrations/webhooks/:id', WebhookScreen],
  ['/audit', AuditLog],
  ['/templates', Templates],
  ['/templates/new', NewTemplate],
  ['/templates/:id', Template],
  ['/settings', Settings],
  ['/settings/:part', Settings],
  ['/profile', Profile],
];

const menu = [
  ['/', 'overview', 'Overview'],
  ['/schools', 'schools', 'Schools'],
  ['/usage', 'usage', 'Usage'],
  ['/system', 'system', 'System'],
  ['/operators', 'operators', 'Operators'],
  ['/integrations', 'integrations', 'Integrations'],
  ['/audit', 'audit', 'Audit log'],
  ['/templates', 'templates', 'Templates'],
  ['/settings', 'settings', 'Settings'],
] as const;

/** What the palette offers besides schools. */
const pages: Page[] = [
  ...menu.map(([path, , label]) => ({ path, label })),
  { path: '/schools/new', label: 'Create school' },
  { path: '/templates/new', label: 'Create template' },
  { path: '/settings/notifications', label: 'Notification settings' },
  { path: '/integrations/webhooks', label: 'Webhooks' },
  { path: '/profile', label: 'Your profile' },
];

function NotFound() {
  return (
    <>
      <PageHeader title="Page not found" />
      <EmptyState title="There is no page at this address.">
        <a href={href('/')}>Go to the overview</a>
      </EmptyState>
    </>
  );
}

function Screen() {
  const { path } = route.value;
  for (const [pattern, Component] of screens) {
    const params = match(pattern, path);
    // The key gives each school and each template a screen with its own state.
    if (params) return <Component key={params['id'] ?? pattern} {...params} />;
  }
  return <NotFound />;
}

/** Shows an error in place of a screen that threw, so that the menu stays usable. */
function GuardedScreen() {
  const [error] = useErrorBoundary((thrown) => reportError(thrown)) as [unknown, () => void];
  if (error === undefined) return <Screen />;
  return (
    <>
      <PageHeader title="Something went wrong" />
      <ErrorMessage
        failure={new Failure(0, 'internal_error', 'This page cannot be shown because of an internal error.')}
        onRetry={() => location.reload()}
      />
    </>
  );
}

async function confirmLogOut(): Promise<void> {
  if (await hasUnsavedChanges()) {
    const text = 'You have unsaved changes in this or another tab. They will be lost if you log out.';
    if (
      !(await confirm({
        title: 'Log out without saving?',
        text,
        confirmLabel: 'Log out',
        isDangerous: true,
        cancelLabel: 'Stay',
      }))
    )
      return;
  }
  try {
    await logOut();
  } catch (thrown) {
    if (!isAbort(thrown)) showToast(`Logging out failed. ${toFailure(thrown).message}`, true);
  }
}

const themeNames: Record<Theme, string> = { system: 'System', light: 'Light', dark: 'Dark' };
const themes: Theme[] = ['system', 'light', 'dark'];

interface MenuProps {
  onNavigate?: () => void;
  onGoTo: () => void;
}

function Menu({ onNavigate, onGoTo }: MenuProps) {
  const { path } = route.value;
  return (
    <>
      <button type="button" class="menu-button go-to" aria-keyshortcuts="Control+K Meta+K" onClick={onGoTo}>
        <Icon name="search" /> Go to… <kbd>{paletteKey}</kbd>
      </button>
      <nav aria-label="Main" class="menu" onClick={onNavigate}>
        <ul>
          {menu.map(([to, icon, label]) => {
            const isCurrent = to === '/' ? path === '/' : path === to || path.startsWith(`${to}/`);
            return (
              <li key={to}>
                <a href={href(to)} aria-current={isCurrent ? (path === to ? 'page' : 'true') : undefined}>
                  <Icon name={icon} /> {label}
                </a>
              </li>
            );
          })}
        </ul>
      </nav>
      <div class="menu-foot">
        <Segments
          legend="Theme"
          name={onNavigate ? 'theme-panel' : 'theme'}
          options={themes.map((one) => [one, themeNames[one]] as const)}
          value={theme.value}
          onChange={setTheme}
        />
        <a
          class="who"
          href={href('/profile')}
          onClick={onNavigate}
          aria-current={path === '/profile' ? 'page' : undefined}
        >
          <Icon name="person" />
          <span>
            {`${operator.value?.first_name ?? ''} ${operator.value?.last_name ?? ''}`.trim()}
            <small>{operator.value?.email}</small>
          </span>
        </a>
        <button type="button" class="menu-button" onClick={() => void confirmLogOut()}>
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
    <span>Operator console</span>
  </a>
);

function Shell() {
  const [isMenuOpen, setMenuOpen] = useState(false);
  const [isPaletteOpen, setPaletteOpen] = useState(false);
  useShortcuts(() => setPaletteOpen(true));
  const main = useRef<HTMLElement>(null);
  const focusedPath = useRef(route.value.path);
  const { path } = route.value;
  // After navigation, keyboard and screen reader users start at the title of the new page.
  useEffect(() => {
    if (focusedPath.current === path) return;
    focusedPath.current = path;
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
        Skip to main content
      </a>
      <header class="top">
        <button type="button" class="icon-button" aria-label="Menu" onClick={() => setMenuOpen(true)}>
          <Icon name="menu" />
        </button>
        <Brand />
      </header>
      <header class="side">
        <Brand />
        <Menu onGoTo={() => setPaletteOpen(true)} />
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        <GuardedScreen key={path} />
      </main>
      {isMenuOpen && (
        <Dialog title="Menu" isPanel onClose={() => setMenuOpen(false)}>
          <Menu
            onNavigate={() => setMenuOpen(false)}
            onGoTo={() => {
              setMenuOpen(false);
              setPaletteOpen(true);
            }}
          />
        </Dialog>
      )}
      {isPaletteOpen && <Palette pages={pages} onClose={() => setPaletteOpen(false)} />}
      {status.value === 'expired' && <LogInAgain onLogOut={() => void confirmLogOut()} />}
    </div>
  );
}

function Content() {
  useSignalEffect(() => {
    if (status.value !== 'loggedOut') return;
    clearCache();
  });
  if (startFailure.value !== undefined) {
    return (
      <main class="alone">
        <ErrorMessage failure={toFailure(startFailure.value)} onRetry={() => void restoreSession()} />
      </main>
    );
  }
  if (status.value === 'starting') return <main class="alone" aria-busy="true" aria-label="Loading" />;
  if (status.value === 'loggedOut' || !operator.value) return <LogIn />;
  if (!operator.value.roles.includes('admin')) return <AnalystNotice onLogOut={() => void confirmLogOut()} />;
  return <Shell key={operator.value.id} />;
}

export function Console() {
  return (
    <>
      <Content />
      <Confirmations />
      <Toasts />
    </>
  );
}
