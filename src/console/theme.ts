import { signal } from '@preact/signals';

const kept = 'console.theme';
export type Theme = 'system' | 'light' | 'dark';

const read = (): Theme => {
  const found = localStorage.getItem(kept);
  return found === 'light' || found === 'dark' ? found : 'system';
};

export const theme = signal<Theme>(read());

/** Light, dark, or as the system has it; in every tab. */
export function setTheme(to: Theme): void {
  theme.value = to;
  if (to === 'system') localStorage.removeItem(kept);
  else localStorage.setItem(kept, to);
  show();
}

function show(): void {
  if (theme.value === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = theme.value;
}

addEventListener('storage', ({ key }) => {
  if (key !== kept) return;
  theme.value = read();
  show();
});
show();
