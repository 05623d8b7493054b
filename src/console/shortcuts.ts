import { useEffect } from 'preact/hooks';
import { useStored } from './data/stored.ts';

const isApple = /Mac|iPhone|iPad/.test(navigator.platform);
/** How the keyboard of the operator names the key of the palette. */
export const paletteKey = isApple ? '⌘K' : 'Ctrl K';

/** Whether `/` goes to the search field. Speech input presses single letters by mistake, so it can be turned off. */
export const useSlashSetting = () => useStored('slash', true);

const isTyping = ({ target }: KeyboardEvent) =>
  target instanceof HTMLElement && target.matches('input:not([type=checkbox], [type=radio]), textarea, select');

/** Ctrl-K (or Cmd-K) opens the palette, and `/` goes to the search field of the page. Neither works in a dialog. */
export function useShortcuts(openPalette: () => void): void {
  const [isSlashOn] = useSlashSetting();
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.altKey || document.querySelector('dialog[open]')) return;
      const hasCommand = event.ctrlKey || event.metaKey;
      if (hasCommand && event.key.toLowerCase() === 'k') {
        event.preventDefault();
        openPalette();
      } else if (isSlashOn && event.key === '/' && !hasCommand && !isTyping(event)) {
        const field = document.querySelector<HTMLInputElement>('main [type=search]');
        if (!field) return;
        event.preventDefault();
        field.focus();
        field.select();
      }
    };
    addEventListener('keydown', onKeyDown);
    return () => removeEventListener('keydown', onKeyDown);
  }, [isSlashOn]);
}
