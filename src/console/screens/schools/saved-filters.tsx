import { useState } from 'preact/hooks';
import { Dialog, DialogFoot, showToast } from '../../parts/dialogs.tsx';
import { TextField } from '../../parts/fields.tsx';
import { Icon } from '../../parts/icons.tsx';
import { href } from '../../router.ts';
import { useStored } from '../../data/stored.ts';
import { Button } from '../../parts/button.tsx';

interface SavedFilter {
  name: string;
  /** The query of the address. */
  search: string;
}

interface NameDialogProps {
  onClose: () => void;
  onSave: (name: string) => void;
}

function NameDialog({ onClose, onSave }: NameDialogProps) {
  const [name, setName] = useState('');
  const [error, setError] = useState<string>();
  return (
    <Dialog title="Save filter" onClose={onClose}>
      <form
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          if (name.trim() === '') setError('is required');
          else onSave(name.trim());
        }}
      >
        <div class="dialog-body">
          <TextField
            label="Name"
            name="name"
            isRequired
            hint="Kept in this browser. A filter with the same name is replaced."
            error={error}
            value={name}
            onChange={setName}
            input={{ autocomplete: 'off' }}
          />
        </div>
        <DialogFoot onCancel={onClose} label="Save filter" />
      </form>
    </Dialog>
  );
}

interface SavedFiltersProps {
  /** The query of the address, without the page. */
  search: string;
  /** Whether there is something to save. */
  isFiltered: boolean;
}

/** Links to the filters that the operator has saved, and a button that saves the current one. */
export function SavedFilters({ search, isFiltered }: SavedFiltersProps) {
  const [saved, setSaved] = useStored<SavedFilter[]>('school-filters', []);
  const [isNaming, setNaming] = useState(false);
  const isSaved = saved.some((filter) => filter.search === search);
  if (saved.length === 0 && !isFiltered) return null;
  return (
    <div class="saved-filters">
      {saved.length > 0 && (
        <ul class="chips" aria-label="Saved filters">
          {saved.map((filter) => (
            <li key={filter.name} class="chip-item">
              <a href={href(`/schools?${filter.search}`)} aria-current={filter.search === search ? 'true' : undefined}>
                {filter.name}
              </a>
              <button
                type="button"
                class="icon-button"
                aria-label={`Remove filter ${filter.name}`}
                onClick={() => {
                  setSaved(saved.filter((other) => other !== filter));
                  showToast(`Filter ${filter.name} removed.`);
                }}
              >
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      {isFiltered && !isSaved && <Button label="Save this filter" kind="link" onClick={() => setNaming(true)} />}
      {isNaming && (
        <NameDialog
          onClose={() => setNaming(false)}
          onSave={(name) => {
            setSaved([...saved.filter((other) => other.name !== name), { name, search }]);
            setNaming(false);
            showToast(`Filter ${name} saved.`);
          }}
        />
      )}
    </div>
  );
}
