import { signal } from '@preact/signals';

const storageKey = 'console.theme';
export type Theme = 'system' | 'light' | 'dark';

const read = (): Theme => {
  const stored = localStorage.getItem(storageKey);
  return stored === 'light' || stored === 'dark' ? stored : 'system';
};

export const theme = signal<Theme>(read());

/** Sets the theme in every tab. */
export function setTheme(next: Theme): void {
  theme.value = next;
  if (next === 'system') localStorage.removeItem(storageKey);
  else localStorage.setItem(storageKey, next);
  apply();
}

function apply(): void {
  if (theme.value === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = theme.value;
}

addEventListener('storage', ({ key }) => {
  if (key !== storageKey) return;
  theme.value = read();
  apply();
});
apply();
