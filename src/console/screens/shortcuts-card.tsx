import { Card } from '../parts/components.tsx';
import { CheckboxField } from '../parts/fields.tsx';
import { paletteKey, useSlashSetting } from '../shortcuts.ts';

/** The keyboard shortcuts, and the switch for the one that is a single character. */
export function ShortcutsCard() {
  const [isSlashOn, setSlashOn] = useSlashSetting();
  return (
    <Card title="Keyboard shortcuts">
      <div class="form">
        <p>
          <kbd>{paletteKey}</kbd> goes to a page or a school by its name.
        </p>
        <CheckboxField
          label="/ goes to the search field of a page"
          hint="Turn it off if you use speech input."
          isOn={isSlashOn}
          onChange={setSlashOn}
        />
      </div>
    </Card>
  );
}
