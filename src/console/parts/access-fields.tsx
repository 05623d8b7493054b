import { CheckboxField, SelectField } from './fields.tsx';
import { type Form } from './forms.tsx';
import { Icon } from './icons.tsx';
import { SchoolPicker } from './school-picker.tsx';

interface SchoolName {
  id: number;
  name: string;
}

/** What an operator or an API key may do, as a form edits it. */
export interface Access {
  role: 'admin' | 'analyst';
  isLimited: boolean;
  schools: SchoolName[];
}

export const roleNames = { admin: 'Admin', analyst: 'Analyst' } as const;

/** The body of a request. An admin is not limited to schools. */
export const toBody = ({ role, isLimited, schools }: Access) => ({
  role,
  ...(role === 'analyst' ? { tenant_ids: isLimited ? schools.map(({ id }) => id) : null } : {}),
});

function SchoolList({ schools, onRemove }: { schools: SchoolName[]; onRemove: (school: SchoolName) => void }) {
  if (schools.length === 0) return null;
  return (
    <ul class="chips" aria-label="Schools of the analyst">
      {schools.map((school) => (
        <li key={school.id} class="chip-item">
          <bdi>{school.name}</bdi>
          <button
            type="button"
            class="icon-button"
            aria-label={`Remove ${school.name}`}
            onClick={() => onRemove(school)}
          >
            <Icon name="close" />
          </button>
        </li>
      ))}
    </ul>
  );
}

/** The role of an operator or of an API key, and the schools of an analyst. */
export function AccessFields<T extends Access>({
  form,
  isOwn = false,
  adminHint = 'Manages schools, plans, templates and operators.',
}: {
  form: Form<T>;
  isOwn?: boolean;
  adminHint?: string;
}) {
  const { role, isLimited, schools } = form.value;
  const set = (change: Partial<Access>) => form.set(change as Partial<T>);
  const hint = role === 'admin' ? adminHint : 'Queries figures of schools, and cannot change anything.';
  return (
    <>
      {isOwn ? (
        <p class="muted">You cannot change your own role. Ask another admin to do it.</p>
      ) : (
        <SelectField
          label="Role"
          name="role"
          isRequired
          hint={hint}
          error={form.error('role')}
          value={role}
          options={Object.entries(roleNames)}
          onChange={(to) => set({ role: to === 'admin' ? 'admin' : 'analyst' })}
        />
      )}
      {role === 'analyst' && (
        <>
          <CheckboxField
            label="Only some schools"
            hint="Otherwise the analyst sees the figures of every school."
            isOn={isLimited}
            onChange={(to) => set({ isLimited: to })}
          />
          {isLimited && (
            <>
              <SchoolPicker
                id=""
                label="Add a school"
                placeholder="Name, subdomain or email"
                error={form.error('tenant_ids') && 'Choose at least one school.'}
                onPick={(_, school) => {
                  if (school && !schools.some(({ id }) => id === school.id))
                    set({ schools: [...schools, { id: school.id, name: school.name }] });
                }}
              />
              <SchoolList
                schools={schools}
                onRemove={(school) => set({ schools: schools.filter(({ id }) => id !== school.id) })}
              />
            </>
          )}
        </>
      )}
    </>
  );
}
